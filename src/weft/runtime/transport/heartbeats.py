"""Heartbeats: after how long a silence a rank is suspected, and after how long it is declared lost.

Ranks of one machine count their beats in shared memory (`cpp/runtime/local_watch.cpp`). Between machines
every rank exchanges them with rank 0, over a connection that is used for nothing else
(`cpp/runtime/heartbeats.hpp`, where the interval is). Threads of their own beat and listen, so that neither
Python nor a long sum delays them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.runtime.extension import _runtime

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

SUSPECT_AFTER_MS: Final = 1000
"""A rank that has been silent for so long is named to the ranks that wait for it."""

FROZEN_AFTER_MS: Final = 5000
"""A rank that has been silent for so long is declared lost."""


def start_heartbeats(
    host: _runtime.Host, neighbours: Sequence[int], ranks: int, watched: Mapping[int, socket.socket]
) -> _runtime.Heartbeats | None:
    """Watch the ranks of this machine, and exchange heartbeats with other machines if there are any.

    Parameters
    ----------
    host
        The memory that the ranks of this machine share.
    neighbours
        These ranks.
    ranks
        The number of ranks of the job.
    watched
        The connections for heartbeats, by rank; none where all ranks are on this machine.
    """
    host.start_watch(SUSPECT_AFTER_MS, FROZEN_AFTER_MS, list(neighbours), ranks)
    if not watched:
        return None
    descriptors = [watched[rank].fileno() if rank in watched else -1 for rank in range(ranks)]
    return _runtime.Heartbeats(host, descriptors, SUSPECT_AFTER_MS, FROZEN_AFTER_MS)
