"""How much work it is to carry out tables packet by packet, before any of it is done.

In operations as `weft.limits.MAX_WORK` counts them, right within a factor of a few; measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from weft.packets.table import Tables

_RANK: Final = 10_000.0
_RANK_LINK: Final = 0.6
"""Each rank looks for its own among all links."""

_SEND: Final = 10_000.0
_PAIR: Final = 20_000.0
_PAIR_LINK: Final = 20.0
"""Each pair of ranks searches the network for its way."""

_ROUTE_LINK: Final = 300.0
_UNIT: Final = 250.0
"""A packet that passes one channel."""


def estimate_preparation(tables: Tables) -> float:
    """Operations of laying out the channels and the ways of messages."""
    topology = tables.topology
    sends = [
        (rank, send) for rank, entries in enumerate(tables.ranks) for entry in entries for send in entry.sends
    ]
    pairs = {(rank, send.dst) for rank, send in sends if send.route is None}
    links = sum(len(send.route) for _, send in sends if send.route is not None)
    search = _PAIR + _PAIR_LINK * (topology.nodes + topology.links)
    layout = topology.ranks * (_RANK + _RANK_LINK * topology.links)
    return layout + _SEND * len(sends) + search * len(pairs) + _ROUTE_LINK * links


def estimate_run(columns: Mapping[str, NDArray[Any]], payload_bytes: int, pieces: int) -> float:
    """Operations of moving all packets through their channels.

    Parameters
    ----------
    columns
        Of `weft.packets.engine_input.Program`: those of tables and those of paths.
    payload_bytes
        Of a packet.
    pieces
        Most units of a message; 0 for one each packet.
    """
    packets = np.maximum(1.0, np.ceil(columns["send_bytes"] / payload_bytes))
    if pieces:
        packets = np.minimum(packets, pieces)
    # Ports at both ends are channels as well.
    channels = np.diff(columns["path_offsets"])[columns["send_path"]] + 2.0
    return _UNIT * float(packets @ channels)
