"""Small grids drawn with characters: enough to see a torus, a mesh, and the link that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.topology import Topology

MOST_COLUMNS: Final = 12
MOST_ROWS: Final = 8


def draw_grid(topology: Topology) -> list[str]:
    r"""Lines of a sketch, or none when the topology is not a small grid of one or two dimensions.

    Links that wrap around leave on one side and come back on the other; a cable that failed is blank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> print(*draw_grid(load_topology("torus:2x3+fail=0-1")), sep="\n")
    ── 0    1 ── 2 ──
       │    │    │
    ── 3 ── 4 ── 5 ──
    """
    grid = topology.grid
    if grid is None or len(grid.shape) > 2:
        return []
    rows, columns = grid.shape if len(grid.shape) == 2 else (1, grid.shape[0])
    if columns > MOST_COLUMNS or rows > MOST_ROWS:
        return []
    wraps = (False, *grid.wrap)[-2:]
    width = len(str(topology.ranks - 1))

    def dash(a: int, b: int) -> str:
        return "──" if _joined(topology, a, b) else "  "

    def bars(pairs: list[tuple[int, int]]) -> str:
        return "".join(f"{'│' if _joined(topology, a, b) else ' ':>{width + 3}} " for a, b in pairs)

    last_row = (rows - 1) * columns
    around = bars([(last_row + c, c) for c in range(columns)]) if wraps[0] else ""
    lines = [around]
    for first in range(0, topology.ranks, columns):
        last = first + columns - 1
        side = dash(last, first) if wraps[1] else "  "
        inner = [dash(rank - 1, rank) for rank in range(first + 1, last + 1)]
        cells = [
            f"{lead} {rank:>{width}} "
            for lead, rank in zip([side, *inner], range(first, last + 1), strict=True)
        ]
        lines.append("".join(cells) + side)
        lines.append(bars([(r, r + columns) for r in range(first, last + 1)]) if first < last_row else around)
    return [line.rstrip() for line in lines if line.strip()]


def _joined(topology: Topology, a: int, b: int) -> bool:
    return bool(topology.links_between(a, b) or topology.links_between(b, a))
