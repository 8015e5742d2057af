"""Where flows meet: what a schedule does to the links, step by step.

A *flow* is everything one connection (src, dst, route) sends in one step, however many messages that is. Two
flows on one link in one step share its speed: legal, often avoidable, and what contention-free algorithms are
about. Chunks without weight send nothing and count for nothing. The C++ half is
``cpp/verification/contention.cpp``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core, limits
from weft.schedule.paths import find_paths, locate_links

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

# In operations as `weft.limits.MAX_WORK` counts them: a link crossed by a transfer, a link of a connection, a
# transfer.
_CROSSING_WORK: Final = 4.0
_LISTED_WORK: Final = 30.0
_ROW_WORK: Final = 30.0

_WORST_KEPT: Final = 10
_WORST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class LinkContention:
    """Several flows on one link in one step."""

    step: int
    link: str
    flows: int


@dataclass(frozen=True, slots=True)
class SwitchPair:
    """All parallel links from one switch to another, taken together.

    Parameters
    ----------
    src, dst
        Names of the switches.
    links
        How many links there are.
    flows
        Most flows at once; up to `links` of them need not meet.
    share
        What crosses them over all steps, in buffers.
    """

    src: str
    dst: str
    links: int
    flows: int
    share: float


@dataclass(frozen=True, eq=False)
class ContentionReport:
    """What `measure_contention` found.

    Parameters
    ----------
    max_flows
        Most flows on one link in one step; 1 means free of contention.
    worst
        The worst meetings, most flows first.
    contended_steps
        Steps in which some link carries more than one flow.
    link_flows, link_share
        Per link: most flows at once, and what it carries over all steps, in buffers.
    step_flows, step_share
        Per step: the most of either on a single link.
    switch_pairs
        Directed pairs of switches that are wired and used.
    busiest
        Name of the link that carries most.
    size_bytes
        Size of the buffer, where it was given.
    """

    max_flows: int
    worst: tuple[LinkContention, ...]
    contended_steps: int
    link_flows: NDArray[np.int32]
    link_share: NDArray[np.float64]
    step_flows: NDArray[np.int32]
    step_share: NDArray[np.float64]
    switch_pairs: tuple[SwitchPair, ...]
    busiest: str
    size_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Make the part of the document of ``weft verify --contention --json``."""
        return {
            "max_flows": self.max_flows,
            "contended_steps": self.contended_steps,
            "worst": [asdict(one) for one in self.worst],
            "busiest_link": self.busiest,
            "link_flows": self.link_flows.tolist(),
            "link_share": self.link_share.tolist(),
            "switch_pairs": [asdict(one) for one in self.switch_pairs],
        }

    def __str__(self) -> str:
        steps = len(self.step_flows)
        used = int(np.count_nonzero(self.link_flows))
        share = float(self.link_share.max(initial=0.0))
        amount = (
            f"{share:.4g} buffers" if self.size_bytes is None else f"{round(share * self.size_bytes):,} bytes"
        )
        load = f"{used} of {len(self.link_flows)} links used, the busiest ({self.busiest}) carries {amount}"
        if self.max_flows <= 1:
            return f"no two flows on one link in one step; {load}"
        worst = ", ".join(f"{m.flows} on {m.link} at step {m.step}" for m in self.worst[:_WORST_SHOWN])
        often = f"in {self.contended_steps} of {steps} steps"
        return f"up to {self.max_flows} flows on one link, {often} ({worst}); {load}"


def measure_contention(
    schedule: Schedule, size_bytes: int | None = None, *, max_work: float | None = limits.MAX_WORK
) -> ContentionReport:
    """Count flows and load on every link and step.

    Parameters
    ----------
    schedule
        Any schedule whose routes are right.
    size_bytes
        Size of the buffer, to count whole bytes rather than exact shares; chunks that are left without a byte
        then count for nothing.
    max_work
        Operations that it may take, by an estimate that is made first; None for any number.

    Raises
    ------
    LimitError
        If it would take more operations than `max_work`.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:8"), "broadcast", "star", chunks=1)
    >>> builder.add(step=0, chunk=0, src=0, dst=[1, 2, 3], op=Op.COPY)
    >>> print(measure_contention(builder.build()))
    up to 3 flows on one link, in 1 of 1 steps (3 on 0->1 at step 0, 2 on 1->2 at step 0);
    3 of 16 links used, the busiest (0->1) carries 3 buffers
    """
    topology = schedule.topology
    connection, first_row = _core.number_connections(schedule.src, schedule.dst, schedule.route)
    used = np.bincount(connection, minlength=len(first_row))
    offsets, links = _paths(schedule, first_row, used, max_work)
    if size_bytes is None:
        weight = schedule.weights / schedule.denominator
    else:
        weight = schedule.chunk_bytes(size_bytes) / max(size_bytes, 1)
    rows = (schedule.step, schedule.chunk, connection, weight)
    found = _core.count_flows(*rows, offsets, links, topology.links, _WORST_KEPT)
    link_flows, link_share, step_flows, step_share, worst = found
    pair_of_link, pairs = _number_switch_pairs(topology)
    pair = pair_of_link[links]
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(pair >= 0)])
    by_pair = _core.count_flows(*rows, kept[offsets], pair[pair >= 0], len(pairs), 0)
    return ContentionReport(
        max_flows=int(link_flows.max(initial=0)),
        worst=tuple(LinkContention(step, topology.link_name(link), flows) for step, link, flows in worst),
        contended_steps=int(np.count_nonzero(step_flows > 1)),
        link_flows=link_flows,
        link_share=link_share,
        step_flows=step_flows,
        step_share=step_share,
        switch_pairs=_describe_pairs(topology, pairs, by_pair[0], by_pair[1]),
        busiest=topology.link_name(int(link_share.argmax())),
        size_bytes=size_bytes,
    )


def _paths(
    schedule: Schedule, first_row: NDArray[np.int64], used: NDArray[np.int64], max_work: float | None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Links of each connection, one list after the other, if those of all transfers are not too many."""
    paths = find_paths(schedule, max_work)
    begin, length = locate_links(schedule, paths, first_row)
    crossings = float(length.astype(np.float64) @ used)
    work = _CROSSING_WORK * crossings + _LISTED_WORK * float(length.sum()) + _ROW_WORK * schedule.transfers
    what = f"counting the flows of {schedule.algorithm} on {schedule.topology.name}"
    limits.check_work(what, work, max_work)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    index = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1] - begin, length)
    return offsets, np.ascontiguousarray(paths.path_links[index], np.int32)


def _number_switch_pairs(topology: Topology) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
    """Which directed pair of switches each link joins, -1 for links that end at a rank; and the pairs."""
    src, dst = topology.link_src.astype(np.int64), topology.link_dst.astype(np.int64)
    between = np.flatnonzero((src >= topology.ranks) & (dst >= topology.ranks))
    keys, number = np.unique(src[between] * topology.nodes + dst[between], return_inverse=True)
    pair_of_link = np.full(topology.links, -1, np.int32)
    pair_of_link[between] = number
    return pair_of_link, [divmod(key, topology.nodes) for key in keys.tolist()]


def _describe_pairs(
    topology: Topology, pairs: list[tuple[int, int]], flows: NDArray[np.int32], share: NDArray[np.float64]
) -> tuple[SwitchPair, ...]:
    rows = zip(pairs, flows.tolist(), share.tolist(), strict=True)
    return tuple(
        SwitchPair(
            topology.node_name(src),
            topology.node_name(dst),
            len(topology.links_between(src, dst)),
            most,
            carried,
        )
        for (src, dst), most, carried in rows
        if most
    )
