"""NCCL's channels: how many there are, how each visits the GPUs of a box, and where it crosses to another.

NCCL searches one box for paths that begin and end at a network interface, one per channel, and joins those of
all boxes. On boxes whose GPUs hang on an NVSwitch or on PCIe switches the search finds what follows from a
rule, and that rule is used here instead:

- A channel for each GPU of a box that has a way to its counterpart in the next box, as short as any of them,
  that shares no link with those of the channels before. That counts the network interfaces: the counterparts
  are on one rail. NCCL knows nothing of the switches between boxes, so cables between those may be shared
  where the names of switches tell that they are in no box (``leaf0``, not ``host0.nic0``) and there are too
  few of them.
- Channel c enters a box at that GPU, goes down the numbers of the GPUs, cyclically, and leaves at the one
  above it.
- The last GPU sends by the interface of the channel's rail, not by its own. Where NVLink joins the two, its
  data goes through the GPU that is next to that interface (PXN); where only PCIe does, past that GPU.

NCCL runs each of these on two or more of its channels, so that enough threads work on it; the copies have the
same orders and share the same links. They count as one here, because a link does not get faster by them.

References
----------
.. [1] NVIDIA/nccl 2.30.7: src/graph/search.cc (ncclTopoCompute, ncclTopoDupChannels), src/graph/connect.cc
   (connectRings, ncclTopoPostset), src/graph/paths.cc (PXN).
.. [2] NVIDIA/nccl issue 1453: a log with the orders of all channels on three boxes of 8 H100.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.topology import Topology


class NcclChannels:
    """The channels of NCCL on a cluster of boxes.

    Parameters
    ----------
    topology
        A cluster whose ranks are in boxes (hosts).
    algorithm
        Who asks, for error messages.
    pxn
        Whether the last GPU of a box sends by the interface of the channel's rail, as NCCL does by default.
    meshed
        Whether cables may join the GPUs of a box one by one. Then only `rails` and `way` say something: in
        which order GPUs are visited does not follow from a rule.

    Attributes
    ----------
    boxes
        Ranks of each box.
    rails
        For each channel, the place in a box of the GPU where it enters.

    Raises
    ------
    UnsupportedError
        If there are no boxes, or GPUs inside them are joined by cables of their own and may not be.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> channels = NcclChannels(load_topology("dgx-h100:2"), "nccl_ring")
    >>> channels.rails, channels.order(5)
    ((0, 1, 2, 3, 4, 5, 6, 7), [5, 4, 3, 2, 1, 0, 7, 6, 13, 12, 11, 10, 9, 8, 15, 14])
    """

    def __init__(self, topology: Topology, algorithm: str, *, pxn: bool = True, meshed: bool = False) -> None:
        check_boxes(topology, algorithm, meshed=meshed)
        self.topology = topology
        self.boxes = topology.hosts
        self.pxn = pxn
        self._out: list[list[tuple[int, int]]] = [[] for _ in range(topology.nodes)]
        ends = zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
        for link, (src, dst) in enumerate(ends):
            self._out[src].append((link, dst))
        self._ways: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._between_boxes = links_between_boxes(topology)
        self.rails = self._find_rails()

    def inside(self, rail: int, box: int) -> list[int]:
        """Ranks of a box in the order in which the channel of a rail visits them."""
        members = self.boxes[box]
        if len(self.boxes) == 1:
            return list(members)
        return [members[(rail - place) % len(members)] for place in range(len(members))]

    def order(self, rail: int) -> list[int]:
        """Ranks in the order of the ring of a rail."""
        return [rank for box in range(len(self.boxes)) for rank in self.inside(rail, box)]

    def way(self, rail: int, src_box: int, dst_box: int) -> tuple[int, ...]:
        """Links from the GPU of a rail in one box to that in another."""
        if (src_box, dst_box) not in self._ways:
            self._ways[src_box, dst_box] = self._lay(src_box, dst_box, self.rails)
        return self._ways[src_box, dst_box][self.rails.index(rail)]

    def crossing(self, rail: int, src_box: int) -> tuple[int, ...]:
        """Links on which the ring of a rail leaves a box for the next one."""
        dst_box = (src_box + 1) % len(self.boxes)
        last, first = self.inside(rail, src_box)[-1], self.inside(rail, dst_box)[0]
        if not self.pxn:
            return self.topology.route(last, first)
        local = self.inside(rail, src_box)[0]
        to_local = self.topology.route(last, local) if last != local else ()
        return self._without_loops((*to_local, *self.way(rail, src_box, dst_box)))

    def _find_rails(self) -> tuple[int, ...]:
        """Places of the GPUs that have ways of their own between every two neighbouring boxes."""
        count = len(self.boxes)
        if count == 1:
            return (0,)
        places = range(min(len(box) for box in self.boxes))
        found = set(places)
        for box in range(count):
            found &= self._with_own_way(box, (box + 1) % count, places)
        # Where nothing is left, all rings have to share what there is, and one does as well as several.
        return tuple(sorted(found)) or (0,)

    def _with_own_way(self, src_box: int, dst_box: int, places: Iterable[int]) -> set[int]:
        ends = [(self.boxes[src_box][place], self.boxes[dst_box][place]) for place in places]
        own = self._routes(ends)
        shortest = min(map(len, own))
        taken: set[int] = set()
        found = set()
        for place, ((src, dst), default) in enumerate(zip(ends, own, strict=True)):
            way = self._own_way(src, dst, default, shortest, taken)
            if way is not None:
                found.add(place)
                taken.update(way)
        return found

    def _lay(self, src_box: int, dst_box: int, places: Sequence[int]) -> list[tuple[int, ...]]:
        """Ways for some places from one box to another, on separate links where there are as many."""
        taken: set[int] = set()
        ways = []
        ends = [(self.boxes[src_box][place], self.boxes[dst_box][place]) for place in places]
        for (src, dst), default in zip(ends, self._routes(ends), strict=True):
            way = self._own_way(src, dst, default, len(default), taken) or default
            taken.update(way)
            ways.append(way)
        return ways

    def _routes(self, ends: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        """Paths that the network itself takes; asked for together, because each search looks at all of it."""
        offsets, links = self.topology.routes(*np.array(ends, np.int32).T)
        return [tuple(links[a:b].tolist()) for a, b in pairwise(offsets.tolist())]

    def _own_way(
        self, src: int, dst: int, default: tuple[int, ...], longest: int, taken: set[int]
    ) -> tuple[int, ...] | None:
        """A way that shares no link with `taken`, else one that shares only cables between boxes."""
        way = self._free_way(src, dst, default, longest, taken)
        return way or self._free_way(src, dst, default, longest, taken - self._between_boxes)

    def _free_way(
        self, src: int, dst: int, default: tuple[int, ...], longest: int, taken: set[int]
    ) -> tuple[int, ...] | None:
        """The network's own way, else another that is not longer, if it shares no link with `taken`."""
        if len(default) <= longest and taken.isdisjoint(default):
            return default
        reached: dict[int, tuple[int, ...]] = {src: ()}
        frontier = [src]
        for _ in range(longest):
            onward = []
            for node in frontier:
                for link, other in self._out[node]:
                    if link not in taken and other not in reached:
                        reached[other] = (*reached[node], link)
                        onward.append(other)
            if dst in reached:
                return reached[dst]
            frontier = onward
        return None

    def _without_loops(self, links: tuple[int, ...]) -> tuple[int, ...]:
        """Leave out what leads back to a node that was crossed before: PCIe has no need to enter a GPU."""
        kept: list[int] = []
        nodes = [int(self.topology.link_src[links[0]])]
        for link in links:
            node = int(self.topology.link_dst[link])
            if node in nodes:
                place = nodes.index(node)
                del kept[place:], nodes[place + 1 :]
            else:
                kept.append(link)
                nodes.append(node)
        return tuple(kept)


def links_between_boxes(topology: Topology) -> set[int]:
    """Links both of whose ends are switches that, by their names, are in no box; none without names."""
    outside = np.zeros(topology.nodes, bool)
    for number, name in enumerate(topology.switch_names):
        outside[topology.ranks + number] = "." not in name
    return set(np.flatnonzero(outside[topology.link_src] & outside[topology.link_dst]).tolist())


def check_boxes(topology: Topology, algorithm: str, *, meshed: bool) -> None:
    """Hold that ranks are in boxes, and unless they may be `meshed` that no cables join those of a box.

    Raises
    ------
    UnsupportedError
        If it is not so.
    """
    if not topology.hosts:
        reason = f"{topology.name} has no boxes: NCCL's channels follow hosts and their network interfaces"
        raise UnsupportedError(algorithm, reason)
    if meshed:
        return
    box = np.zeros(topology.nodes, np.int64) - 1
    for number, members in enumerate(topology.hosts):
        box[list(members)] = number
    src, dst = box[topology.link_src], box[topology.link_dst]
    if bool(((src == dst) & (src >= 0)).any()) and max(map(len, topology.hosts)) > 2:
        reason = "cables join the GPUs of a box one by one, and NCCL's search for rings there is not modelled"
        raise UnsupportedError(algorithm, reason)
