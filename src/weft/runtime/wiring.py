"""How a rank reaches the others: memory inside one machine, sockets between machines.

Everything that has to be agreed on goes through the roster, whose members have proved who they are, or, when
some of the ranks make a communicator of their own, through the one that they already have.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from weft import _core
from weft.errors import InputError, LimitError, RuntimeFailure
from weft.runtime.lines import HEARTBEATS, LOOPBACK, Door, Line, connect_lines, open_door

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.roster import Roster

FROZEN_AFTER_MS: Final = 5000
TRANSPORTS: Final = ("auto", "copy", "tcp")
MAX_STREAMS: Final = 16


class _Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank tells the others about itself."""

    pid: int
    descriptor: int
    arena_bytes: int
    probe: int
    word: int
    streams: int
    door: Door


@dataclass(slots=True)
class Wires:
    """What connects one rank to all others of a communicator.

    Parameters
    ----------
    host
        The memory it shares with the ranks of its machine.
    executor
        What moves data.
    job
        Each rank's number in the job.
    local
        Each rank's number on this machine, -1 for those of other machines.
    can_read
        The ranks whose memory this process may read, and that may read its own.
    sockets
        For each rank that is reached through some: one for each stream.
    streams
        How many each pair of ranks has.
    address
        Where this rank listens for further connections.
    channels
        Those of the host that are in use; all communicators of a process have the same set.
    heartbeats
        The watch over other machines, if there are any, and its sockets.
    """

    host: _core.Host
    executor: _core.Executor
    channel: int
    job: list[int]
    local: list[int]
    can_read: frozenset[int]
    sockets: dict[int, list[socket.socket]]
    streams: int
    address: str
    channels: set[int] = field(default_factory=set)
    heartbeats: _core.Heartbeats | None = None
    watched: dict[int, socket.socket] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of everything; the others see that this rank left on purpose."""
        if self.heartbeats is not None:
            self.heartbeats.close()
        self.executor.close()
        self.channels.discard(self.channel)
        if not self.channels:
            self.host.close()
        for connection in (*chain.from_iterable(self.sockets.values()), *self.watched.values()):
            connection.close()


def connect(roster: Roster, *, transport: str, streams: int, arena_bytes: int, timeout: float) -> Wires:
    """Connect this rank to all others; every rank calls this.

    Parameters
    ----------
    roster
        Who they are.
    transport
        ``"auto"``: memory within a machine, sockets between machines. ``"copy"``: the same, but no rank reads
        the private memory of another. ``"tcp"``: sockets everywhere.
    streams
        Sockets between two ranks that are not reached through memory.
    arena_bytes
        Room for shared tensors; only what is used takes memory.
    timeout
        Seconds for all of it.

    Raises
    ------
    InputError
        If the transport is unknown, or ranks want different numbers of streams.
    TimedOut, PeerLost, RuntimeFailure
        If somebody cannot be reached.
    """
    if transport not in TRANSPORTS:
        msg = f"transport {transport!r} is unknown, expected {', '.join(TRANSPORTS)}"
        raise InputError(msg)
    if not 1 <= streams <= MAX_STREAMS:
        msg = f"streams {streams}: expected 1 to {MAX_STREAMS}"
        raise InputError(msg)
    here = roster.members[roster.rank].boot_id
    neighbours = [member.rank for member in roster.members if member.boot_id == here]
    local = [neighbours.index(rank) if rank in neighbours else -1 for rank in range(roster.size)]
    host = _core.Host(local[roster.rank], len(neighbours), arena_bytes)
    word = np.frombuffer(secrets.token_bytes(8), np.uint64).copy()
    others = [rank for rank in range(roster.size) if rank != roster.rank]
    remote = [rank for rank in others if local[rank] < 0 or transport == "tcp"]
    alone = len(neighbours) == roster.size
    hub = [] if alone else others if roster.rank == 0 else [0]
    address = LOOPBACK if alone else roster.address
    listener, door = open_door(address, timeout)
    with listener:
        probe = int(word.__array_interface__["data"][0])
        mine = _Card(os.getpid(), host.descriptor, arena_bytes, probe, int(word[0]), streams, door)
        cards = [
            msgspec.msgpack.decode(card, type=_Card)
            for card in roster.exchange(msgspec.msgpack.encode(mine), timeout)
        ]
        for rank in others:
            if cards[rank].streams != streams:
                msg = f"rank {rank} wants {cards[rank].streams} streams, rank {roster.rank} {streams}"
                raise InputError(msg)
        for rank in neighbours:
            if rank != roster.rank:
                _attach(host, local[rank], rank, cards[rank])
        readable = {
            rank
            for rank in neighbours
            if rank != roster.rank
            and transport != "copy"
            and host.can_read(local[rank], cards[rank].probe, cards[rank].word)
        }
        wanted = {Line(rank, stream) for rank in remote for stream in range(streams)}
        beats = {Line(rank, HEARTBEATS) for rank in hub}
        doors = [card.door for card in cards]
        lines = connect_lines(roster.rank, listener, doors, wanted | beats, timeout)
    told = roster.exchange(msgspec.msgpack.encode(sorted(readable)), timeout)
    agreed = [set(msgspec.msgpack.decode(part, type=list[int])) for part in told]
    can_read = frozenset(rank for rank in readable if roster.rank in agreed[rank])
    sockets = {rank: [lines[Line(rank, stream)] for stream in range(streams)] for rank in remote}
    watched = {line.rank: lines[line] for line in beats}
    host.start_watch(FROZEN_AFTER_MS, neighbours, roster.size)
    heartbeats = None
    if not alone:
        descriptors = [watched[rank].fileno() if rank in watched else -1 for rank in range(roster.size)]
        heartbeats = _core.Heartbeats(host, descriptors, FROZEN_AFTER_MS)
    job = list(range(roster.size))
    executor = _make_executor(host, 0, roster.rank, job, local, sockets, can_read)
    roster.barrier(timeout)
    return Wires(
        host,
        executor,
        0,
        job,
        local,
        can_read,
        sockets,
        streams,
        address,
        {0},
        heartbeats,
        watched,
    )


def branch(
    trunk: Wires, me: int, members: Sequence[int], tell: Callable[[bytes], list[bytes]], timeout: float
) -> Wires | None:
    """Connect some ranks among themselves, over the memory that they already share; every rank calls this.

    Parameters
    ----------
    trunk
        What connects all of them.
    me
        This rank there.
    members
        The ranks that belong together, in their new order; none if this one stays outside.
    tell
        Gives everybody everybody's bytes.

    Raises
    ------
    LimitError
        If these ranks have no channel left that all of them could use.
    """
    used = [set(part) for part in tell(bytes(sorted(trunk.channels)))]
    free = [
        channel
        for channel in range(_core.CHANNELS)
        if members and all(channel not in used[rank] for rank in members)
    ]
    if free:
        trunk.host.reset(free[0])
    listener, door = open_door(trunk.address, timeout)
    with listener:
        told = tell(msgspec.msgpack.encode(door))
        doors = [msgspec.msgpack.decode(part, type=Door) for part in told]
        remote = [rank for rank in members if rank in trunk.sockets] if free else []
        wanted = {Line(rank, stream) for rank in remote for stream in range(trunk.streams)}
        lines = connect_lines(me, listener, doors, wanted, timeout)
    if not members:
        return None
    if not free:
        msg = (
            f"no room for one more communicator: at most {_core.CHANNELS} on a machine at a time; close some"
        )
        raise LimitError(msg)
    trunk.channels.add(free[0])
    number = {rank: new for new, rank in enumerate(members)}
    job, local = [trunk.job[rank] for rank in members], [trunk.local[rank] for rank in members]
    can_read = frozenset(number[rank] for rank in members if rank in trunk.can_read)
    sockets = {
        number[rank]: [lines[Line(rank, stream)] for stream in range(trunk.streams)] for rank in remote
    }
    executor = _make_executor(trunk.host, free[0], number[me], job, local, sockets, can_read)
    return Wires(
        trunk.host,
        executor,
        free[0],
        job,
        local,
        can_read,
        sockets,
        trunk.streams,
        trunk.address,
        trunk.channels,
    )


def _make_executor(
    host: _core.Host,
    channel: int,
    rank: int,
    job: list[int],
    local: list[int],
    sockets: dict[int, list[socket.socket]],
    can_read: frozenset[int],
) -> _core.Executor:
    ranks = range(len(job))
    descriptors = [[one.fileno() for one in sockets.get(rank, ())] for rank in ranks]
    return _core.Executor(host, channel, rank, job, local, descriptors, [int(r in can_read) for r in ranks])


def _attach(host: _core.Host, number: int, rank: int, card: _Card) -> None:
    try:
        host.attach(number, card.pid, card.descriptor)
    except (OSError, RuntimeError) as error:
        msg = f"the shared memory of rank {rank} (pid {card.pid}) cannot be used: {error}"
        raise RuntimeFailure(msg) from error
