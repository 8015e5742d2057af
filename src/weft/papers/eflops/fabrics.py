"""What HDRM on a BiGraph is worth: against halving-doubling and rings on a Clos that hashes, and on itself.

Ranks here are what the paper calls sub-nodes, a GPU with its own NIC; what is inside a server plays no part.
A Clos has as many ranks on each leaf as the BiGraph on each switch, and cables of the same speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from weft.algorithms import hdrm
from weft.papers.claims import StudyCase
from weft.papers.eflops.all_reduces import ALGORITHMS, FARTHEST, NEAREST, RING, seconds_of, shared_runs
from weft.topology import load_topology
from weft.topology.servers import PCIE_SPEED
from weft.verification import measure_contention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.simulation.simulator import Sharing

LINKS: Final = f"bw={PCIE_SPEED // 10**9}GB/s,lat=1us"
"""The slower of a NIC and its PCIe slot."""

RIVALS: Final = (NEAREST, FARTHEST, RING)
SAME: Final = "same BiGraph"


@dataclass(frozen=True, slots=True)
class Against(StudyCase):
    """HDRM on a BiGraph against one rival on one network.

    Parameters
    ----------
    per_switch, switches
        Of the BiGraph.
    network
        Of the rival: ``"same BiGraph"`` with ranks as they come, or a Clos by its oversubscription, such as
        ``"2:1"``.
    algorithm, size_bytes
        Of the rival.
    sharing
        How flows share a link: ``"queue"``, message by message, or ``"fluid"``, at equal rates.
    hdrm_s
        Seconds of HDRM.
    gains
        How many times as fast it is, for each seed of the hash; one where nothing is hashed.
    flows
        Of the rival on the busiest link in one step, with the worst seed.
    """

    derived = ("mean", "most")

    per_switch: int
    switches: int
    network: str
    algorithm: str
    size_bytes: int
    sharing: Sharing
    hdrm_s: float
    gains: tuple[float, ...]
    flows: int

    @property
    def ranks(self) -> int:
        """How many ranks the BiGraph has."""
        return self.per_switch * self.switches

    @property
    def hashed(self) -> bool:
        """Whether the rival's network is a Clos."""
        return self.network != SAME

    @property
    def most(self) -> float:
        """The largest gain."""
        return max(self.gains)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.gains)


def clos(per_switch: int, switches: int, oversubscription: int, seed: int) -> str:
    """Spec of a Clos with as many leaves as a BiGraph has switches.

    Examples
    --------
    >>> clos(4, 8, 2, 5)
    'fattree:8,2,4@bw=12GB/s,lat=1us,routing=ecmp,seed=5'
    """
    spines = max(1, per_switch // oversubscription)
    return f"fattree:{switches},{spines},{per_switch}@{LINKS},routing=ecmp,seed={seed}"


def sweep(
    shapes: Sequence[tuple[int, int]],
    oversubscriptions: Sequence[int],
    sizes: Sequence[int],
    seeds: Sequence[int],
    report: Callable[[str], None],
) -> Iterator[Against]:
    """Give every rival on every network.

    Parameters
    ----------
    shapes
        BiGraphs, as ranks on a switch and switches.
    oversubscriptions
        Of the Clos: ranks of a leaf for each of its uplinks.
    sizes, seeds
        Bytes, and seeds of the hash. Links are also shared fairly at the last size.
    report
        Called before each shape.
    """
    for per_switch, switches in shapes:
        report(f"{per_switch * switches} ranks on BiGraph and Clos")
        home = load_topology(f"bigraph:{per_switch},{switches}@{LINKS}")
        best = hdrm.all_reduce(home)
        ours = {run: seconds_of(best, *run) for run in shared_runs(sizes)}
        for name in RIVALS:
            rivals = {SAME: [ALGORITHMS[name](home)]}
            for times in oversubscriptions:
                rivals[f"{times}:1"] = [
                    ALGORITHMS[name](load_topology(clos(per_switch, switches, times, seed))) for seed in seeds
                ]
            for network, schedules in rivals.items():
                flows = max(measure_contention(schedule, max_work=None).max_flows for schedule in schedules)
                for run, seconds in ours.items():
                    gains = tuple(seconds_of(schedule, *run) / seconds for schedule in schedules)
                    yield Against(per_switch, switches, network, name, *run, seconds, gains, flows)
