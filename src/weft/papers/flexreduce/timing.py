"""Times of all contenders on one cluster, every schedule verified, beside what is proven to be the least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import units
from weft.algorithms import flexreduce
from weft.bounds.collective_bound import lower_bound
from weft.bounds.packing import pack
from weft.papers.claims import StudyCase
from weft.papers.flexreduce.baselines import CONVENTIONAL, FLEX, schedules
from weft.simulation.simulator import search_segments
from weft.verification import verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

NEAR_ENOUGH: Final = 0.999
"""A contender this near the bound is not cut further."""

EQUAL: Final = "equal shares"
"""FlexReduce as it comes, but every host keeps as much as any other, whatever its NIC. Its GPUs divide that
evenly, so those of small hosts still own more."""


@dataclass(frozen=True, slots=True)
class TimingCase(StudyCase):
    """One cluster and one size.

    Parameters
    ----------
    topology
        Its spec.
    size_bytes
        Of the buffer.
    seconds
        By contender, each with the best of its segment sizes: conventional ones with the best of their
        options, FlexReduce as it comes, with the plan that it chooses for the size. Those that do not apply
        are missing.
    best_plan_s
        FlexReduce with the best of all its plans.
    bound_s
        What no schedule beats: cuts, latency, and prices of links that forest's linear programme finds.
    packed_s
        What forest's best packing of trees takes, latency apart: next to the bound, it says that there is
        nothing between the two.
    """

    derived = (
        "best_conventional",
        "speedup",
        "best_plan_speedup",
        "choice",
        "balance_gain",
        "fraction_of_bound",
    )

    topology: str
    size_bytes: int
    seconds: Mapping[str, float]
    best_plan_s: float
    bound_s: float
    packed_s: float

    @property
    def best_conventional(self) -> str:
        """The fastest of the conventional ones."""
        return min((name for name in CONVENTIONAL if name in self.seconds), key=self.seconds.__getitem__)

    @property
    def speedup(self) -> float:
        """FlexReduce as it comes over the fastest of the conventional ones."""
        return self.over(self.best_conventional)

    @property
    def best_plan_speedup(self) -> float:
        """The same with the best of all plans of FlexReduce."""
        return self.seconds[self.best_conventional] / self.best_plan_s

    @property
    def choice(self) -> float:
        """The chosen plan over the best of FlexReduce's own: 1 if no other would have been faster."""
        return self.best_plan_s / self.seconds[FLEX]

    @property
    def balance_gain(self) -> float:
        """FlexReduce as it comes over the same with equal shares for all hosts."""
        return self.seconds[EQUAL] / self.seconds[FLEX]

    def over(self, name: str) -> float:
        """How many times as fast as another FlexReduce as it comes is."""
        return self.seconds[name] / self.seconds[FLEX]

    @property
    def fraction_of_bound(self) -> dict[str, float]:
        """Share of the bound that each contender reaches."""
        return {name: self.fraction(name) for name in self.seconds}

    def fraction(self, name: str) -> float:
        """Share of the bound that a contender reaches."""
        return self.bound_s / self.seconds[name]


def measure(topology: Topology, sizes: Sequence[str], *, as_it_comes: bool = False) -> list[TimingCase]:
    """Build, verify and time every contender.

    Parameters
    ----------
    topology
        Where.
    sizes
        Of the buffer, such as ``"64MiB"``.
    as_it_comes
        Whether FlexReduce's other plans are left out; the others have their options all the same.

    Raises
    ------
    VerificationError
        If a schedule is wrong.
    """
    packing = pack(topology)
    packed = float(packing.rate)
    built = {name: schedules(topology, name) for name in (*CONVENTIONAL, *([] if as_it_comes else [FLEX]))}
    for several in built.values():
        for schedule in several:
            verify(schedule, max_work=None)
    points = []
    for size in sizes:
        size_bytes = units.parse_size(size)
        bound = lower_bound(topology, "all_reduce", size_bytes, certificate=packing.certificate).seconds
        seconds = {
            name: min(_fastest(schedule, size_bytes, bound) for schedule in several)
            for name, several in built.items()
            if several
        }
        chosen = {
            portions: flexreduce.all_reduce(topology, portions=portions, size_bytes=size_bytes)
            for portions in ("balanced", "even")
        }
        for schedule in chosen.values():
            verify(schedule, max_work=None)
        default, seconds[EQUAL] = (_fastest(schedule, size_bytes, bound) for schedule in chosen.values())
        best = min(default, seconds.get(FLEX, default))
        seconds[FLEX] = default
        points.append(TimingCase(topology.name, size_bytes, seconds, best, bound, size_bytes / packed))
    return points


def _fastest(schedule: Schedule, size_bytes: int, bound_s: float) -> float:
    found = search_segments(schedule, size_bytes, good_enough_s=bound_s / NEAR_ENOUGH)
    return found.result.seconds
