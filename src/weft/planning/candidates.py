"""What a plan chooses from: every algorithm and variant that applies, built, verified, each schedule once.

Why one does not apply is said by the `weft.algorithms.registry.Refusal` that `build` returns then; those that
planning itself makes are in `weft.planning.refusals`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.algorithms.registry import Refusal, for_collective
from weft.algorithms.resolver import resolve_algorithms
from weft.errors import InputError, LimitError, VerificationError, check_choice
from weft.planning.plans import PlannedSchedule, make_label
from weft.planning.segment_shares import message_shares, segments_of
from weft.schedule import COLLECTIVES
from weft.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from weft.algorithms.registry import Algorithm
    from weft.algorithms.resolver import AlgorithmLike
    from weft.schedule import Schedule
    from weft.topology import Topology

PROMPT: Final = ("multitree", "ring", "double_binary_tree")
"""Built first: they serve any network and take milliseconds, so that there is a plan at once."""

_FEW_SIZES: Final = 4
_SIZE_RATIO: Final = 16
"""Of more sizes than a few, those closer than this share a schedule that is made for a size: what suits one
suits the other nearly always, and building takes seconds on a large cluster."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An algorithm with options, not built yet."""

    algorithm: Algorithm
    options: dict[str, Any]

    @property
    def variant(self) -> str:
        """The options as text, empty for the default."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items())

    @property
    def label(self) -> str:
        """The name of the algorithm and of its variant."""
        return make_label(self.algorithm.name, self.variant)


class Candidate(PlannedSchedule):
    """A schedule that a plan may choose, and how its messages are cut."""

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of the buffer in each message."""
        return message_shares(self.schedule)

    @cached_property
    def longest(self) -> float:
        """Share of the buffer in the longest message."""
        return float(self.shares.max(initial=0.0))

    def segments(self, cuts: float) -> int:
        """How many segments a run has whose longest message is cut into so many."""
        return segments_of(self.shares, cuts)


def list_recipes(
    collective: str,
    names: AlgorithmLike | Sequence[AlgorithmLike] | None = None,
    first: Iterable[str] = (),
    soon: Iterable[str] = (),
    sizes: Sequence[int] = (),
) -> list[Recipe]:
    """Everything to try, in the order in which to try it.

    Parameters
    ----------
    collective
        One of `weft.schedule.COLLECTIVES`.
    names
        What to choose from, as for `weft.compare`; by default all of Weft's that offer the collective and are
        not yardsticks.
    first, soon
        Labels of recipes that were good on a similar network, and quick or slow to build: the former come
        before everything, the latter after what is always quick.
    sizes
        Bytes that the plan is for, ascending. Where there are several, an algorithm whose schedule depends on
        the size of the buffer is tried for each of them, or for some if they are many.

    Raises
    ------
    InputError
        If the collective or a name is unknown.

    Examples
    --------
    >>> [recipe.label for recipe in list_recipes("all_gather", ["ring", "multitree"])]
    ['multitree', 'ring', 'multitree (trees_per_root=2)', 'multitree (paper_order=True)']
    >>> [recipe.label for recipe in list_recipes("all_reduce", ["gloo_ring"], sizes=[1024, 65536])]
    ['gloo_ring', 'gloo_ring (size_bytes=1024)', 'gloo_ring (size_bytes=65536)']
    """
    check_choice("collective", collective, COLLECTIVES)
    known = resolve_algorithms(names, collective)
    offered = [line for line in known if collective in line.collectives and (names or not line.yardstick)]
    if not offered:
        asked, others = (
            ", ".join(line.name for line in some) for some in (known, for_collective(collective))
        )
        raise InputError(f"{asked}: no {collective} there; it is offered by {others}")
    apart = _apart(sizes)
    families = [
        [
            Recipe(line, options)
            for options in [*line.variants(collective), *_sized_variants(line, collective, apart)]
        ]
        for line in offered
    ]
    defaults = [family[0] for family in families]
    variants = [recipe for family in families for recipe in family[1:]]
    order = list(dict.fromkeys([*first, *PROMPT, *soon]))

    def rank(recipe: Recipe) -> int:
        return order.index(recipe.label) if recipe.label in order else len(order)

    return sorted([*defaults, *variants], key=rank)


def _sized_variants(line: Algorithm, collective: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Options of an algorithm that looks at the size; a single size is said to every recipe as it is."""
    if len(sizes) < 2 or "size_bytes" in dict(line.given) or not line.looks_at_size(collective):
        return []
    return [{"size_bytes": size} for size in sizes]


def _apart(sizes: Sequence[int]) -> list[int]:
    """Leave out of many ascending sizes those that are close to the one before."""
    if len(sizes) <= _FEW_SIZES:
        return [*sizes]
    found: list[int] = []
    for size in sizes:
        if not found or size >= _SIZE_RATIO * found[-1]:
            found.append(size)
    return found


def build(
    recipe: Recipe, topology: Topology, collective: str, root: int, expected_bytes: int | None = None
) -> Candidate | Refusal:
    """Build and verify one recipe.

    Parameters
    ----------
    recipe, topology, collective, root
        What to build.
    expected_bytes
        Size of the buffer, if there is only one.

    Raises
    ------
    VerificationError
        If an algorithm of Weft's made a wrong schedule; names it. One of the user's own is refused instead.
    """
    made = make_schedule(recipe, topology, collective, root, expected_bytes)
    return made if isinstance(made, Refusal) else verify_candidate(recipe, topology, *made)


def make_schedule(
    recipe: Recipe, topology: Topology, collective: str, root: int, expected_bytes: int | None = None
) -> tuple[Schedule, float] | Refusal:
    """Make the schedule of a recipe, not verified yet, and say how many CPU seconds that took."""
    began = time.process_time()
    schedule = recipe.algorithm.try_build(
        topology, collective, root, expected_bytes=expected_bytes, **recipe.options
    )
    return schedule if isinstance(schedule, Refusal) else (schedule, time.process_time() - began)


def verify_candidate(
    recipe: Recipe, topology: Topology, schedule: Schedule, seconds: float
) -> Candidate | Refusal:
    """Verify what a recipe made in so many CPU seconds; errors as for `build`."""
    line = recipe.algorithm
    try:
        verify(schedule, max_work=line.max_work)
    except LimitError as error:
        return Refusal.of(line.name, error)
    except VerificationError as error:
        named = error.naming(f"{recipe.label} on {topology.name} made a wrong schedule")
        if line.is_own:
            return Refusal(line.name, f"is not correct: {error}", named)
        raise named from error
    return Candidate(recipe.algorithm.name, recipe.variant, schedule, seconds)
