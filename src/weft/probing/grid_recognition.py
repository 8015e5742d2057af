"""Recognising a mesh or torus by its cables, so that what knows grids can be used on it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from weft.topology.load import load_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.topology import Grid, Topology

_MOST_DIMENSIONS: Final = 4


def find_grid(topology: Topology) -> Grid | None:
    """The mesh or torus, ranks numbered row by row, that has exactly these cables; None if there is none.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> find_grid(load_topology("torus:2x3"))
    Grid(shape=(2, 3), wrap=(False, True))
    """
    ends = _ends(topology)
    for shape in shapes(topology.ranks, _MOST_DIMENSIONS):
        for kind in ("torus", "mesh"):
            candidate = load_topology(f"{kind}:{'x'.join(map(str, shape))}")
            if _ends(candidate) == ends:
                return candidate.grid
    return None


def shapes(ranks: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many numbers above 1 at most, few first.

    Examples
    --------
    >>> list(shapes(8, 3))
    [(8,), (2, 4), (4, 2), (2, 2, 2)]
    """
    found: set[tuple[int, ...]] = {(ranks,)}
    for _ in range(1, dimensions):
        found |= {
            (*shape[:-1], part, shape[-1] // part)
            for shape in found
            for part in range(2, shape[-1])
            if shape[-1] % part == 0
        }
    yield from sorted(found, key=lambda shape: (len(shape), shape))


def _ends(topology: Topology) -> Counter[tuple[int, int]]:
    return Counter(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True))
