"""Candidates of a plan, built on an executor: tasks go out, schedules come back and are verified here."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from weft.algorithms import registry
from weft.algorithms.registry import Refusal
from weft.errors import InputError, RuntimeFailure
from weft.planning.candidates import Candidate, Recipe, build, make_schedule, verify_candidate
from weft.planning.plans import Plan
from weft.planning.point_text import read_as, read_network, write_network
from weft.planning.refusals import refuse_as_too_slow
from weft.schedule.codec import decode_schedule, encode_schedule
from weft.sweeps import SweepTask, stream_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from weft.topology import Topology

_AHEAD: Final = 16
"""Recipes under way: the schedules of a large cluster take many megabytes each."""


class CandidateTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recipe to be built, as `weft.planning.candidates.make_schedule` takes it."""

    network: str
    collective: str
    root: int
    expected_bytes: int | None
    algorithm: str
    options: dict[str, bool | int | float | str]


class CandidateText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The file of a schedule with the CPU seconds that building took, or why there is none."""

    schedule: bytes | None = None
    seconds: float = 0.0
    refused: tuple[str, str] | None = None


def build_on(
    executor: Executor,
    recipes: Sequence[Recipe],
    topology: Topology,
    collective: str,
    root: int,
    expected_bytes: int | None,
    is_late: Callable[[], bool],
) -> Iterator[Candidate | Refusal]:
    """Have recipes built by an executor, verify what comes back, and give it in the order of the recipes.

    Algorithms of the user's own are built here.

    Parameters
    ----------
    executor
        Any of `concurrent.futures`.
    recipes, topology, collective, root, expected_bytes
        As for `weft.planning.candidates.build`.
    is_late
        Asked several times a second; once it is true, the recipes that are left are refused.

    Raises
    ------
    VerificationError
        If an algorithm of Weft's made a wrong schedule.
    WeftError
        If a worker fails; names the recipe.
    """
    sent = [recipe for recipe in recipes if _travels(recipe)]
    network = write_network(topology)
    tasks = [_make_task(recipe, network, topology, collective, root, expected_bytes) for recipe in sent]
    with closing(stream_tasks(tasks, executor, ahead=_AHEAD, until=is_late)) as stream:
        for recipe in recipes:
            if is_late():
                yield refuse_as_too_slow(recipe.algorithm.name)
            elif not _travels(recipe):
                yield build(recipe, topology, collective, root, expected_bytes)
            elif (outcome := next(stream, None)) is not None:
                yield _receive(outcome.require(), recipe, topology, collective, root)
            else:  # it has become late meanwhile, and stays so
                yield refuse_as_too_slow(recipe.algorithm.name)


def _make_task(
    recipe: Recipe, network: str, topology: Topology, collective: str, root: int, expected_bytes: int | None
) -> SweepTask:
    name, options = recipe.algorithm.name, recipe.options
    task = CandidateTask(network, collective, root, expected_bytes, name, options)
    text = msgspec.json.encode(task).decode()
    return SweepTask("build_candidate", text, f"{recipe.label} on {topology.name}")


def _travels(recipe: Recipe) -> bool:
    """Whether a worker finds the very same algorithm by its name."""
    line = recipe.algorithm
    return not line.is_own and line == registry.find(line.name)


def build_candidate(text: str) -> str:
    """Build the schedule of a `CandidateTask`, in a worker, and give it as a `CandidateText`."""
    task = read_as(text, CandidateTask)
    network = read_network(task.network)
    if isinstance(network, Plan):
        raise InputError("a candidate is built on a topology, not on a plan")
    recipe = Recipe(registry.find(task.algorithm), task.options)
    made = make_schedule(recipe, network, task.collective, task.root, task.expected_bytes)
    if isinstance(made, Refusal):
        reply = CandidateText(refused=(made.algorithm, made.reason))
    else:
        schedule, seconds = made
        reply = CandidateText(encode_schedule(schedule), seconds)
    return msgspec.json.encode(reply).decode()


def _receive(
    text: str, recipe: Recipe, topology: Topology, collective: str, root: int
) -> Candidate | Refusal:
    found = read_as(text, CandidateText)
    if found.refused is not None:
        return Refusal(*found.refused)
    # What was built is as large as the algorithm made it, and was not refused for that where it was made.
    schedule = decode_schedule(found.schedule or b"", recipe.label, max_work=None)
    is_asked_for = schedule.collective == collective and schedule.root in (None, root)
    if schedule.topology.digest != topology.digest or not is_asked_for:
        raise RuntimeFailure(f"{recipe.label}: a worker built something else than it was asked for")
    return verify_candidate(recipe, topology, schedule, found.seconds)
