"""A quick choice of schedules for one size after another: a few algorithms, timed once each.

`weft.plan` finds the best schedule for every size, and takes its time. A simulated iteration of training
needs schedules for a handful of sizes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import limits
from weft.algorithms import registry
from weft.errors import InputError, list_some
from weft.planning.segment_shares import LEAST_SEGMENT
from weft.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

CANDIDATES: Final = (
    "ring",
    "bidirectional_ring",
    "halving_doubling",
    "multitree",
    "bucket",
    "direct",
    "hdrm",
)
"""Algorithms that are best on some network and build within a second on a hundred ranks."""

FEW: Final = ("ring", "halving_doubling")
MANY_RANKS: Final = 256
"""Beyond this many ranks only those few are tried: others have millions of transfers."""

_RATIO_BITS: Final = 2
"""Sizes within a factor of four share a choice: the winner rarely changes faster."""


class QuickChooser:
    """Schedules for any collective and size on a topology, chosen by simulation when they are first needed.

    Parameters
    ----------
    topology
        The cluster.
    algorithms
        Names to choose from; by default `CANDIDATES`, or `FEW` on many ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> choose = QuickChooser(load_topology("torus:4x4"))
    >>> schedule, segment_bytes = choose("all_reduce", 64 << 20)
    >>> schedule.algorithm, segment_bytes
    ('bucket', None)
    """

    def __init__(self, topology: Topology, algorithms: Sequence[str] | None = None) -> None:
        self.topology = topology
        if algorithms is None:
            algorithms = CANDIDATES if topology.ranks <= MANY_RANKS else FEW
        self._lines = [registry.find(name) for name in algorithms]
        self._built: dict[str, list[Schedule]] = {}
        self._chosen: dict[tuple[str, int], tuple[Schedule, int | None]] = {}

    def __call__(self, collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        """Schedule for so many bytes, and the bytes of a segment or None."""
        limits.check("bytes of a collective", size_bytes, limits.MAX_SIZE_BYTES)
        key = collective, size_bytes.bit_length() // _RATIO_BITS
        tried = 1 << (key[1] * _RATIO_BITS + _RATIO_BITS // 2)
        if key not in self._chosen:
            self._chosen[key] = self._choose(collective, tried)
        schedule, segment = self._chosen[key]
        if segment is not None:
            # As many pieces as at the size that was tried, so that times do not jump; rounded up,
            # because a chunk that is a byte longer than others must not be cut once more.
            segment = -(-segment * size_bytes // (tried * LEAST_SEGMENT)) * LEAST_SEGMENT
        return schedule, segment

    def _choose(self, collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        found = [simulate(schedule, size_bytes, max_work=None) for schedule in self._build(collective)]
        best = min(found, key=lambda result: result.time_ps)
        return best.schedule, best.segment_bytes

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
