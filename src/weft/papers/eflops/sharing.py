"""What a NIC of one's own is worth: an all-reduce on servers with one for each GPU, and with one or two.

The fabric is one switch that never is a bottleneck, so that all there is to see happens in the servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.papers.claims import StudyCase
from weft.papers.eflops.all_reduces import ALGORITHMS, seconds_of, shared_runs
from weft.papers.eflops.root_paths import ROOT_PATHS
from weft.topology.servers import Fabric, Server, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.simulation.simulator import Sharing
    from weft.topology import Topology

SERVERS: Final = 8
USUAL: Final = 8
"""GPUs of a server where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Shared(StudyCase):
    """One all-reduce on both kinds of server.

    Parameters
    ----------
    gpus, nics
        Of the server that shares.
    algorithm, size_bytes
        Of the all-reduce.
    sharing
        How messages share a link: ``"queue"``, one after the other, or ``"fluid"``, at equal rates.
    shared_s, own_s
        Seconds with shared NICs, and with one for each GPU.
    root
        Bytes per second through a port of the root complex, in both kinds of server; 0 for as much as PCIe.
    """

    derived = ("gain",)

    gpus: int
    nics: int
    algorithm: str
    size_bytes: int
    sharing: Sharing
    shared_s: float
    own_s: float
    root: int = 0

    @property
    def per_nic(self) -> float:
        """GPUs for each NIC: what sharing costs at most if it is ideal."""
        return self.gpus / self.nics

    @property
    def gain(self) -> float:
        """How many times as fast a NIC of one's own is."""
        return self.shared_s / self.own_s


def servers(gpus: int, nics: int, count: int = SERVERS, root: int = 0) -> Topology:
    """Servers on one switch.

    Examples
    --------
    >>> servers(gpus=4, nics=4, count=2).ranks
    8
    """
    name = f"{count} servers of {gpus} GPUs and {nics} NICs"
    return connect(name, count, Server(gpus, nics, root=root), Fabric())


def sweep(
    gpus: Sequence[int], nics: Sequence[int], sizes: Sequence[int], report: Callable[[str], None]
) -> Iterator[Shared]:
    """Give every combination in which NICs are shared.

    Parameters
    ----------
    gpus, nics, sizes
        GPUs and NICs of a server, and bytes. Links are also shared fairly at the last size.
    report
        Called before each number of GPUs.
    """
    for many in gpus:
        report(f"{many} GPUs behind few NICs")
        yield from _compare(many, nics, sizes, root=0)


def through_root(nics: Sequence[int], size: int, report: Callable[[str], None]) -> Iterator[Shared]:
    """Give the usual server with every published speed of the path through the root complex.

    Parameters
    ----------
    nics, size
        NICs of a server, and bytes, in turns and at equal rates.
    report
        Called once.
    """
    report("peer-to-peer through the root complex")
    for path in ROOT_PATHS:
        yield from _compare(USUAL, nics, (size,), path.speed)


def _compare(many: int, nics: Sequence[int], sizes: Sequence[int], root: int) -> Iterator[Shared]:
    for name, build in ALGORITHMS.items():
        own = build(servers(many, many, root=root))
        alone = {run: seconds_of(own, *run) for run in shared_runs(sizes)}
        for few in nics:
            if few >= many:
                continue
            shared = build(servers(many, few, root=root))
            for run, own_s in alone.items():
                yield Shared(many, few, name, *run, seconds_of(shared, *run), own_s, root)
