"""Ranks tell each other where they listen, and what else a rank must know of the others to connect to them.

`weft.runtime.transport.connect` exchanges addresses before it opens the connections;
`weft.runtime.transport.tcp_connections.open_data_listener` chooses the address and listens there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from weft.errors import InputError
from weft.runtime.transport.rank_transport import TransportSettings
from weft.runtime.transport.tcp_connections import ListenAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.extension import _runtime
    from weft.runtime.transport.link_connections import LinkConnections

_CHECKED: Final = {True: "on all sockets", False: "on no socket", None: "between machines"}


class RankInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank tells the others so that they can connect to it."""

    pid: int
    descriptor: int
    settings: TransportSettings
    probe_address: int
    probe_value: int
    """A random number at that address: a rank that finds it there can read this process's memory."""
    topology: str
    """Digest of the topology, if it prescribes connections."""
    listens_at: ListenAddress


def describe_rank(
    host: _runtime.Host,
    settings: TransportSettings,
    links: LinkConnections,
    listens_at: ListenAddress,
    probe: np.ndarray[tuple[int], np.dtype[np.uint64]],
) -> RankInfo:
    """What this rank tells; `probe` must stay in memory until every other rank has tried to read it."""
    return RankInfo(
        pid=os.getpid(),
        descriptor=host.descriptor,
        settings=settings,
        probe_address=int(probe.__array_interface__["data"][0]),
        probe_value=int(probe[0]),
        topology=links.digest,
        listens_at=listens_at,
    )


def exchange_infos(control_plane: ControlPlane, mine: RankInfo, timeout: float) -> list[RankInfo]:
    """Tell all ranks of the job, and hear what each of them tells, by rank.

    Raises
    ------
    InputError
        If ranks have different settings, or different topologies of addresses.
    """
    told = control_plane.exchange(msgspec.msgpack.encode(mine), timeout)
    infos = [msgspec.msgpack.decode(part, type=RankInfo) for part in told]
    _check_infos(infos, control_plane.rank)
    return infos


def exchange_addresses(
    exchange: Callable[[bytes], list[bytes]], listens_at: ListenAddress
) -> list[ListenAddress]:
    """Where each rank listens, by rank; for ranks that know all else of each other already."""
    told = exchange(msgspec.msgpack.encode(listens_at))
    return [msgspec.msgpack.decode(part, type=ListenAddress) for part in told]


def _check_infos(infos: Sequence[RankInfo], rank: int) -> None:
    mine, topology = infos[rank].settings, infos[rank].topology
    for other, info in enumerate(infos):
        theirs = info.settings
        if theirs.transport != mine.transport:
            different = f"{theirs.transport!r}, rank {rank} {mine.transport!r}"
            raise InputError(f"rank {other} uses transport {different}; give all ranks the same")
        if theirs.streams != mine.streams:
            raise InputError(f"rank {other} wants {theirs.streams} streams, rank {rank} {mine.streams}")
        if theirs.checksums != mine.checksums:
            here, there = _CHECKED[mine.checksums], _CHECKED[theirs.checksums]
            msg = f"checksums are sent {here} by rank {rank} and {there} by rank {other}; set all ranks alike"
            raise InputError(msg)
        if info.topology != topology:
            mine_is, other_is = (f"{digest:.12}" or "none" for digest in (topology, info.topology))
            msg = (
                f"rank {other} has another topology of addresses than rank {rank}: {other_is} and {mine_is}; "
                f"give all ranks the same file"
            )
            raise InputError(msg)
