"""The links that a run keeps busy longest, as a table: what pointing at lines shows, for all readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.reporting.section_kinds import Section, table_section
from weft.topology.drawing_style import speed_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from weft.topology.graph import Topology

MOST_LINKS: Final = 20
"""Rows of the table."""


def busiest_section(topology: Topology, busy: ArrayLike, what: str) -> Section:
    """List the busiest links with their speeds.

    Parameters
    ----------
    topology
        The topology that the links belong to.
    busy
        For each link, the share of the time that it was busy.
    what
        The name of the run, which the note begins with.
    """
    shares = np.asarray(busy, np.float64)
    order = np.argsort(-shares, kind="stable")[:MOST_LINKS].tolist()
    rows = [
        (topology.link_name(link), speed_text(int(topology.bandwidth[link])), f"{100 * shares[link]:.1f} %")
        for link in order
        if shares[link] > 0
    ]
    idle = int((shares == 0).sum())
    mean = f"Of {topology.links:,} links the mean share is {100 * shares.mean():.1f} %"
    rest = f"{idle:,} carry nothing" if idle else "none is idle"
    note = f"{what}. {mean}, and {rest}."
    return table_section("Busiest links", ("link", "speed", "busy share of the time"), rows, note=note)
