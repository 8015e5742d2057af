"""A quick choice of schedules for one size after another: the algorithms of a plan, timed once each.

`weft.plan` finds the best schedule for every size, and takes its time. A simulated iteration of training
needs schedules for a handful of sizes at once. It chooses from the same algorithms as a plan, without their
variants, without those that take too long to build on so many ranks, and without the slowest of all where
something else is as good as at the bound. What is tried depends on the cluster alone, never on a clock, so
results can be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weft import limits
from weft.algorithms import registry
from weft.bounds.collective_bound import any_shard_half_seconds, lower_bound
from weft.errors import InputError, ScheduleError, list_some
from weft.planning.segment_shares import LEAST_SEGMENT
from weft.schedule.passes import halves
from weft.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

FEW: Final = ("ring", "halving_doubling", "hierarchical")
MANY_RANKS: Final = 256
"""Beyond this many ranks only those few are tried: others have millions of transfers."""

MOST_ROWS: Final = 1 << 19
"""Transfers of a schedule, by the estimate of the registry, up to which it is tried."""

SLOW: Final = "forest"
SLOW_RANKS: Final = 32
"""What searches longest is tried up to so many ranks, where it takes a second, and last."""

NEAR: Final = 1.01
"""Within this factor of the bound nothing else is tried: it could gain a percent at most."""

_RATIO_BITS: Final = 2
"""Sizes within a factor of four share a choice: the winner rarely changes faster."""

_HALVES: Final = ("reduce_scatter", "all_gather")


Timer: TypeAlias = "Callable[[Schedule, int], tuple[int | None, float]]"
"""Gives for a schedule and a size the bytes of a segment, or None, and seconds."""


class _Timed(NamedTuple):
    """A schedule, the bytes of a segment or None, and its seconds."""

    schedule: Schedule
    segment_bytes: int | None
    seconds: float


class QuickChooser:
    """Schedules for any collective and size on a topology, chosen by simulation when they are first needed.

    A reduce-scatter and an all-gather are chosen together, because both must agree on who owns which part:
    the best with equal shards, or the two halves of an all-reduce where these are faster, as on uneven hosts.

    Parameters
    ----------
    topology
        The cluster.
    algorithms
        Names to choose from; by default all whose schedules are not too large, or `FEW` on many ranks.
    timer
        Gives the bytes of a segment, or None, and the seconds of a schedule at a size; by default those of
        `weft.simulate`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> choose = QuickChooser(load_topology("torus:4x4"))
    >>> schedule, segment_bytes = choose("all_reduce", 64 << 20)
    >>> schedule.algorithm, segment_bytes
    ('swing', None)
    """

    def __init__(
        self, topology: Topology, algorithms: Sequence[str] | None = None, *, timer: Timer | None = None
    ) -> None:
        self.topology = topology
        self._timer = timer or _simulate
        self._slow = algorithms is None and topology.ranks <= SLOW_RANKS
        if algorithms is None:
            algorithms = FEW if topology.ranks > MANY_RANKS else _affordable(topology.ranks)
        self._lines = [registry.find(name) for name in algorithms]
        self._built: dict[str, list[Schedule]] = {}
        self._chosen: dict[tuple[str, int], _Timed] = {}

    def __call__(self, collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        """Schedule for so many bytes, and the bytes of a segment or None."""
        limits.check("bytes of a collective", size_bytes, limits.MAX_SIZE_BYTES)
        place = size_bytes.bit_length() // _RATIO_BITS
        tried = 1 << (place * _RATIO_BITS + _RATIO_BITS // 2)
        if (collective, place) not in self._chosen:
            names = _HALVES if collective in _HALVES else (collective,)
            found = self._choose_halves(tried) if collective in _HALVES else [self._choose(collective, tried)]
            self._chosen.update(((name, place), one) for name, one in zip(names, found, strict=True))
        schedule, segment, _ = self._chosen[collective, place]
        if segment is not None:
            # As many pieces as at the size that was tried, so that times do not jump; rounded up,
            # because a chunk that is a byte longer than others must not be cut once more.
            segment = -(-segment * size_bytes // (tried * LEAST_SEGMENT)) * LEAST_SEGMENT
        return schedule, segment

    def _choose(self, collective: str, size_bytes: int) -> _Timed:
        """Find the fastest schedule of a collective."""
        best = self._fastest(self._build(collective), size_bytes)
        if not self._slow or collective not in registry.find(SLOW).collectives:
            return best
        if best.seconds <= NEAR * lower_bound(self.topology, collective, size_bytes).seconds:
            return best
        others = [self._fastest([schedule], size_bytes) for schedule in self._build_slow(collective)]
        return min([best, *others], key=lambda one: one.seconds)

    def _choose_halves(self, size_bytes: int) -> list[_Timed]:
        """Find the fastest reduce-scatter and all-gather that agree on who owns what."""
        pairs = [[self._choose(name, size_bytes) for name in _HALVES]]
        least = 2 * any_shard_half_seconds(self.topology, size_bytes)
        if sum(one.seconds for one in pairs[0]) <= NEAR * least:
            return pairs[0]
        wholes = (
            self._build("all_reduce") if any("all_reduce" in line.collectives for line in self._lines) else []
        )
        # Others have halves of their own, with equal shards, among which was chosen already.
        wholes = [whole for whole in wholes if "all_gather" not in registry.find(whole.algorithm).collectives]
        if self._slow:
            wholes += self._build_slow("all_reduce")
        for whole in wholes:
            try:
                pairs.append([self._fastest([half], size_bytes) for half in halves(whole)])
            except ScheduleError:
                continue  # an all-reduce that is not one half after the other
        return min(pairs, key=lambda pair: sum(one.seconds for one in pair))

    def _fastest(self, schedules: Iterable[Schedule], size_bytes: int) -> _Timed:
        found = [_Timed(schedule, *self._timer(schedule, size_bytes)) for schedule in schedules]
        return min(found, key=lambda one: one.seconds)

    def _build_slow(self, collective: str) -> list[Schedule]:
        key = f"{SLOW} {collective}"
        if key not in self._built:
            found = registry.find(SLOW).try_build(self.topology, collective)
            self._built[key] = [] if isinstance(found, registry.Refusal) else [found]
        return self._built[key]

    def _build(self, collective: str) -> list[Schedule]:
        if collective in self._built:
            return self._built[collective]
        lines = [line for line in self._lines if collective in line.collectives]
        if not lines and collective == "all_to_all":
            lines = [registry.find("direct")]  # the only one there is
        built, reasons = [], []
        for line in lines:
            found = line.try_build(self.topology, collective)
            if isinstance(found, registry.Refusal):
                reasons.append(str(found.error))
            else:
                built.append(found)
        if not built:
            why = list_some(reasons, 3, "; ") or "none of them has it"
            names = list_some(line.name for line in self._lines)
            raise InputError(f"no {collective} on {self.topology.name} by {names}: {why}")
        self._built[collective] = built
        return built


def _affordable(ranks: int) -> list[str]:
    """Algorithms whose schedules on so many ranks are not too large, without the slowest."""
    lines = [line for line in registry.ALGORITHMS.values() if not line.yardstick and line.name != SLOW]
    return [line.name for line in lines if line.cost * ranks**2 <= MOST_ROWS]


def _simulate(schedule: Schedule, size_bytes: int) -> tuple[int | None, float]:
    """Time a schedule by itself, in the segments that suit it."""
    found = simulate(schedule, size_bytes, max_work=None)
    return found.segment_bytes, found.seconds
