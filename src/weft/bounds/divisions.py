"""All ranks divided into sets, each byte having to visit every set.

If disjoint sets P_1 .. P_p hold all ranks, each byte of an all-reduce crosses from one set to another at
least 2 (p - 1) times: p - 1 times to be summed in one place, p - 1 times to be handed out. Each crossing
leaves a set, so 2 (p - 1) M bytes must fit through what leaves the sets together. The same holds for what
enters them; other collectives but all-to-all have p - 1 crossings.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import units
from weft.bounds import node_sets, tight_cuts
from weft.bounds.demands import SingleBound
from weft.errors import list_some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.bounds.demands import Demand
    from weft.topology import Topology

_MOST_AXES: Final = 8
"""Dimensions of a grid up to which every choice of them is tried."""


def divisions(topology: Topology, demand: Demand) -> Iterator[SingleBound]:
    """Bounds from divisions: first those that have a name, then the best one of all."""
    ports = [np.flatnonzero(ends < topology.ranks) for ends in (topology.link_src, topology.link_dst)]
    links = min(ports, key=lambda links: node_sets.capacity(topology, links))
    speed, over = node_sets.capacity(topology, links), node_sets.name_links(topology, links)
    yield _divide(demand, topology.ranks, speed, "singletons", "each rank a set of its own", over)
    if topology.groups:
        yield from _divide_groups(topology, demand)
    if topology.grid is not None:
        yield from _divide_grid(topology, demand)
    if tight_cuts.affordable(topology):
        yield from _divide_best(topology, demand)


def _divide(
    demand: Demand, sets: int, speed: int, kind: str, what: str, over: str | None = None
) -> SingleBound:
    crossings = demand.passes * (sets - 1)
    over = over or f"what leaves them ({units.human_bandwidth(speed)} together)"
    text = f"{what}: {crossings} x {units.format_size(demand.size_bytes)} over {over}"
    return SingleBound(Fraction(crossings * demand.size_bytes, speed), kind, text)


def _divide_groups(topology: Topology, demand: Demand) -> Iterator[SingleBound]:
    """Take groups as sets, and the best mixture of whole groups and groups taken apart into ranks."""
    word = "host" if topology.hosts else "group"
    for outward in (True, False):
        masks = node_sets.group_masks(topology, outward=outward)
        whole = node_sets.cut_speeds(topology, masks, outward=outward)
        ports = node_sets.port_capacity(topology)[0 if outward else 1]
        apart = [sum(int(ports[rank]) for rank in group) for group in topology.groups]
        sizes = [len(group) for group in topology.groups]
        yield _divide(demand, len(sizes), sum(whole), f"{word}s", f"each {word} a set of its own")
        split = _best_mixture(whole, apart, sizes)
        if any(split) and not all(split):
            sets = sum(size if s else 1 for s, size in zip(split, sizes, strict=True))
            speed = sum(b if s else a for s, a, b in zip(split, whole, apart, strict=True))
            shown = list_some([str(index) for index, s in enumerate(split) if s], 6)
            what = f"ranks of {word} {shown} and the other {word}s as sets"
            yield _divide(demand, sets, speed, f"{word}s and singletons", what)


def _best_mixture(whole: list[int], apart: list[int], sizes: list[int]) -> list[bool]:
    """Which groups to take apart so that (sets - 1) / capacity is largest, by Dinkelbach's method."""
    split = [False] * len(sizes)
    ratio = Fraction(0)
    while True:
        sets = sum(size if s else 1 for s, size in zip(split, sizes, strict=True))
        found = Fraction(sets - 1, sum(b if s else a for s, a, b in zip(split, whole, apart, strict=True)))
        if found <= ratio:
            return split
        ratio = found
        split = [
            size - 1 > ratio * (b - a) if size > 1 else False
            for size, a, b in zip(sizes, whole, apart, strict=True)
        ]


def _divide_grid(topology: Topology, demand: Demand) -> Iterator[SingleBound]:
    """Ranks that agree in some dimensions as sets, for every choice of dimensions but none and all."""
    grid = topology.grid
    assert grid is not None
    axes = [axis for axis, size in enumerate(grid.shape) if size > 1]
    ends = (np.stack(np.unravel_index(end, grid.shape)) for end in (topology.link_src, topology.link_dst))
    differs = np.not_equal(*ends)
    speeds = {axis: node_sets.capacity(topology, np.flatnonzero(differs[axis])) for axis in axes}
    by_speed = sorted(axes, key=lambda axis: speeds[axis])
    choices = (
        [choice for count in range(1, len(axes)) for choice in combinations(axes, count)]
        if len(axes) <= _MOST_AXES
        else [tuple(by_speed[:count]) for count in range(1, len(axes))]
    )
    for choice in choices:
        crossing = node_sets.capacity(topology, np.flatnonzero(differs[list(choice)].any(axis=0)))
        sets = int(np.prod([grid.shape[axis] for axis in choice]))
        named = " and ".join(str(axis) for axis in choice)
        what = f"ranks at one position of dimension {named} a set"
        yield _divide(demand, sets, crossing, "slabs", what)


def _divide_best(topology: Topology, demand: Demand) -> Iterator[SingleBound]:
    out, into = node_sets.port_capacity(topology)
    # What leaves a set with its switches then also enters it: the other direction says the same.
    balanced = np.array_equal(out, into)
    if balanced and demand.passes == 1:
        # Set by set, what must enter bounds as much: the worst set is no better than the mean of a division.
        return
    for outward in (True,) if balanced else (True, False):
        division = tight_cuts.strongest(topology, outward=outward)
        sizes = np.bincount(division.part)
        alone = int((sizes == 1).sum())
        most = node_sets.name_ranks(division.part == sizes.argmax())
        what = f"{division.parts} sets, {alone} of them single ranks, the largest {most}"
        speed = units.human_bandwidth(division.capacity)
        over = f"what {'leaves' if outward else 'enters'} them ({speed} together)"
        yield _divide(demand, division.parts, division.capacity, "partition", what, over)
