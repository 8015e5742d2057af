"""A task of a sweep as text: the name of a function of Weft, and JSON for it.

Workers may be on other machines, so a task holds nothing but text: no object, no code, no name of a file that
only this machine has. `run_text` is the one function that a worker is asked to call. It takes the name of a
function in `FUNCTIONS`, which is all that a task can have run, and gives JSON back, also where a task fails.
An executor has its own way to send `run_text` and these texts; SECURITY.md says what that means.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from weft import _core, limits
from weft.errors import InputError, RuntimeFailure, WeftError, look_up

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTIONS: Final = {
    "simulate_job": "weft.training.sweep",
    "simulate_point": "weft.cli.train",
    "compare_point": "weft.planning.comparison_points",
    "build_candidate": "weft.planning.candidate_tasks",
}
"""All that a worker may be asked for: functions from JSON text to JSON text, with the modules they are in."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One point of a sweep.

    Parameters
    ----------
    function
        A name in `FUNCTIONS`.
    text
        JSON that the function reads.
    point
        What this point is called in errors.

    Raises
    ------
    InputError
        If there is no such function, or the text is longer than `weft.limits.MAX_TASK_CHARACTERS`.

    Examples
    --------
    >>> SweepTask("system", '"ls"', "size 1MiB")
    Traceback (most recent call last):
        ...
    weft.errors.InputError: there is no function of a sweep 'system'; ...
    """

    function: str
    text: str
    point: str

    def __post_init__(self) -> None:
        look_up("function of a sweep", self.function, FUNCTIONS)
        limits.check(f"characters of {self.point}", len(self.text), limits.MAX_TASK_CHARACTERS)


class TaskReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a worker gives back: JSON of the function, or what went wrong and the exit code for it."""

    result: str | None = None
    problem: str = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0


def run_text(version: str, function: str, text: str) -> str:
    """Run a task in a worker.

    Parameters
    ----------
    version
        Of the Weft that made the task: another one might read it differently.
    function, text
        As in `SweepTask`.

    Returns
    -------
    str
        A `TaskReply` as JSON. Errors are part of it, because an exception may be of a class that only this
        process knows.

    Examples
    --------
    >>> run_text("0.1.0", "compare_point", "{}")
    '{"problem":"the worker has Weft ..., the sweep 0.1.0; install the same on both","exit_code":2}'
    """
    try:
        if version != _core.version():
            msg = f"the worker has Weft {_core.version()}, the sweep {version}; install the same on both"
            raise InputError(msg)  # noqa: TRY301
        limits.check("characters of a task", len(text), limits.MAX_TASK_CHARACTERS)
        module = importlib.import_module(look_up("function of a sweep", function, FUNCTIONS))
        run: Callable[[str], str] = getattr(module, function)
        reply = TaskReply(run(text))
    except WeftError as error:
        reply = TaskReply(problem=str(error), exit_code=error.exit_code)
    except BaseException as error:  # noqa: BLE001
        # A user's script may raise anything, and only text goes back.
        problem = f"{type(error).__name__}: {error}; run it by itself to see more"
        reply = TaskReply(problem=problem, exit_code=InputError.exit_code)
    return msgspec.json.encode(reply).decode()


def read_reply(text: object) -> TaskReply:
    """Read what a worker gave back.

    Raises
    ------
    RuntimeFailure
        If it is no reply, or too long.
    """
    if not isinstance(text, str) or len(text) > 2 * limits.MAX_TASK_CHARACTERS:
        raise RuntimeFailure("a worker gave back something that is no reply, or too long for one")
    try:
        return msgspec.json.decode(text, type=TaskReply)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise RuntimeFailure(f"a worker gave back something that is no reply: {error}") from error
