"""The links of a topology as tables: in a notebook, and in columns for pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.notebook_display import html_card
from weft.topology.drawing import draw_svg

if TYPE_CHECKING:
    from weft.topology.graph import Topology

_COLUMNS: Final = ("links", "bandwidth", "latency")


def link_columns(topology: Topology) -> dict[str, Any]:
    """Name, ends, bytes per second and seconds of latency of every link."""
    return {
        "link": [topology.link_name(link) for link in range(topology.links)],
        "src": [topology.node_name(node) for node in topology.link_src.tolist()],
        "dst": [topology.node_name(node) for node in topology.link_dst.tolist()],
        "bandwidth": topology.bandwidth.copy(),
        "latency_s": topology.latency_ps / units.PS_PER_S,
    }


def topology_card(topology: Topology) -> str:
    """Facts, sorts of links and a drawing, as a notebook shows them."""
    sorts, counts = np.unique(np.stack([topology.bandwidth, topology.latency_ps]), axis=1, return_counts=True)
    rows = [
        [f"{count:,}", units.human_bandwidth(speed), units.format_time(latency)]
        for (speed, latency), count in zip(sorts.T.tolist(), counts.tolist(), strict=True)
    ]
    facts = [("ranks", f"{topology.ranks:,}"), ("switches", f"{topology.switches:,}")]
    if len(topology.hosts) > 1:
        facts.append(("hosts", f"{len(topology.hosts):,}"))
    facts += [("routing", topology.routing.kind), ("digest", topology.digest[:16])]
    drawing = draw_svg(topology)
    return html_card(topology.name, facts, columns=_COLUMNS, rows=rows[::-1], drawing=drawing)
