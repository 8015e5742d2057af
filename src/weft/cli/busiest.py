"""The links that a run kept busiest, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.cli.output import make_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.cli.console import Console
    from weft.topology import Topology

SHOWN: Final = 5
"""Lines of a table of what is busiest."""


def print_busiest_links(
    console: Console, topology: Topology, busy_ps: NDArray[np.int64], time_ps: int
) -> None:
    """Print the links that are occupied longest, and how many carry nothing."""
    from weft.units import human_bandwidth

    table = make_table("busiest link", "bandwidth", "busy", "% of time", left=("busiest link",))
    for link in busiest(busy_ps):
        speed = human_bandwidth(int(topology.bandwidth[link]))
        table.add_row(topology.link_name(link), speed, *busy_cells(int(busy_ps[link]), time_ps))
    console.print_table(table)
    idle = int((busy_ps == 0).sum())
    if idle:
        console.print(f"{idle:,} of {topology.links:,} links carry nothing")


def busiest(busy_ps: NDArray[np.int64]) -> list[int]:
    """Numbers of the busiest, the first of equals first."""
    import numpy as np

    return [int(number) for number in np.argsort(-busy_ps, kind="stable")[:SHOWN]]


def busy_cells(busy_ps: int, time_ps: int) -> tuple[str, str]:
    """Time that something was occupied, and the share of the run."""
    from weft.units import human_seconds

    return human_seconds(busy_ps / 1e12), f"{100 * busy_ps / time_ps if time_ps else 0.0:.1f}"
