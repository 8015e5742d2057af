"""The transport of one rank: its shared memory, sockets, heartbeats and executor, and how to close them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, get_args

from weft.errors import InputError
from weft.runtime.extension import _runtime
from weft.runtime.transport.arena_allocator import find_arena_bytes

if TYPE_CHECKING:
    from weft.runtime.bootstrap.shrink import ShrinkKit
    from weft.runtime.transport.link_connections import LinkConnections

TransportName = Literal["auto", "copy", "tcp"]
TRANSPORTS: Final[tuple[TransportName, ...]] = get_args(TransportName)
MAX_STREAMS: Final = 16
DEFAULT_STREAMS: Final = 1


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """How the ranks of a job are to be connected; the same on all ranks.

    Parameters
    ----------
    transport
        ``"auto"``: memory within a machine, sockets between machines. ``"copy"``: the same, but no rank reads
        the private memory of another. ``"tcp"``: sockets everywhere.
    streams
        Sockets between two ranks that are not reached through memory, unless the topology says more. Plans
        are made for one: several share a cable with others as several ranks would, and their segments, which
        take them in turn, arrive side by side instead of one after the other. More may help where one
        connection cannot fill the network, or where it hashes connections to several paths.
    checksums
        Whether data that goes through sockets is followed by its checksum; None as ``WEFT_CHECKSUMS`` says,
        and if that is not set, between machines only.
    arena_bytes
        Room for shared tensors, by default what `find_arena_bytes` says; only what is used takes memory.
    """

    transport: str = "auto"
    streams: int = DEFAULT_STREAMS
    checksums: bool | None = None
    arena_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings that no job can have.

        Raises
        ------
        InputError
            If the transport is unknown, or the number of streams is out of range.
        """
        if self.transport not in TRANSPORTS:
            raise InputError(f"transport {self.transport!r} is unknown, expected {', '.join(TRANSPORTS)}")
        if not isinstance(self.streams, int):
            kind = type(self.streams).__name__
            msg = f"streams {self.streams!r}: expected a whole number 1 to {MAX_STREAMS}, not {kind}"
            raise InputError(msg)
        if not 1 <= self.streams <= MAX_STREAMS:
            raise InputError(f"streams {self.streams}: expected 1 to {MAX_STREAMS}")

    def complete(self, local_ranks: int) -> TransportSettings:
        """The same settings, in which the environment has decided what the caller left open."""
        arena_bytes = find_arena_bytes(local_ranks) if self.arena_bytes is None else self.arena_bytes
        return TransportSettings(self.transport, self.streams, wants_checksums(self.checksums), arena_bytes)


def wants_checksums(said: bool | None) -> bool | None:
    """Return which sockets carry checksums, as the caller or ``WEFT_CHECKSUMS`` says.

    True: all of them. False: none. None, if nothing is said: those between machines, since what goes through
    sockets of one machine crosses no network.

    Raises
    ------
    InputError
        If the variable is neither 0 nor 1.
    """
    if said is not None:
        return said
    text = os.environ.get("WEFT_CHECKSUMS")
    if text is None:
        return None
    if text not in ("0", "1"):
        raise InputError(f"WEFT_CHECKSUMS: {text[:40]!r}: expected 0 or 1")
    return text == "1"


def carries_checksums(wanted: bool | None, local_number: int) -> bool:
    """Return whether data that goes through sockets to a rank carries checksums.

    Parameters
    ----------
    wanted
        As `wants_checksums` returns it.
    local_number
        The number of the rank on this machine, -1 if it is on another.
    """
    return local_number < 0 if wanted is None else wanted


@dataclass(slots=True, kw_only=True)
class Transport:
    """The connections of one rank to all others of a communicator.

    Parameters
    ----------
    rank
        This rank.
    identity
        Number of the communicator that all its ranks know and no other communicator has.
    host
        The memory that this rank shares with the ranks of its machine.
    channel
        Which of the channels of the shared memory this communicator uses.
    job
        Number in the job of each rank.
    local
        Number on this machine of each rank, -1 for those of other machines.
    can_read
        The ranks whose memory this process may read, and that may read its own.
    sockets
        The data connections to each rank that is reached through sockets.
    link_connections
        The connections that the topology prescribes.
    settings
        How the connections were asked for, with nothing left open.
    address
        Where this rank listens for further connections.
    channels
        The channels that are in use; all communicators of a process have the same set.
    heartbeats, watched
        The heartbeats between machines, if there are several, and their sockets.
    shrink_kit
        Where the ranks of the job can meet again if some are lost; None for a part of them, and for one rank.

    Attributes
    ----------
    executor
        Moves the data.
    """

    rank: int
    identity: int
    host: _runtime.Host
    channel: int
    job: list[int]
    local: list[int]
    can_read: frozenset[int]
    sockets: dict[int, list[socket.socket]]
    link_connections: LinkConnections
    settings: TransportSettings
    address: str
    channels: set[int]
    heartbeats: _runtime.Heartbeats | None = None
    watched: dict[int, socket.socket] = field(default_factory=dict)
    shrink_kit: ShrinkKit | None = None
    executor: _runtime.Executor = field(init=False)

    def __post_init__(self) -> None:
        """Start the executor on these connections."""
        ranks = range(len(self.job))
        self.executor = _runtime.Executor(
            self.host,
            self.channel,
            self.identity,
            self.rank,
            self.job,
            self.local,
            [[one.fileno() for one in self.sockets.get(rank, ())] for rank in ranks],
            [int(rank in self.can_read) for rank in ranks],
            [int(carries_checksums(self.settings.checksums, number)) for number in self.local],
        )

    def close(self) -> None:
        """Close all connections; the other ranks see that this rank left on purpose."""
        if self.heartbeats is not None:
            self.heartbeats.close()
        self._leave_channel()
        if not self.channels:
            self.host.close()  # before the sockets, so that a peer that sees these close learns why
        self._close_sockets()
        for connection in self.watched.values():
            connection.close()
        if self.shrink_kit is not None:
            self.shrink_kit.close()

    def close_data(self) -> None:
        """Close the data connections only; the shared memory and the heartbeats stay."""
        self._leave_channel()
        self._close_sockets()

    def _leave_channel(self) -> None:
        self.executor.close()
        self.channels.discard(self.channel)

    def _close_sockets(self) -> None:
        for connection in chain.from_iterable(self.sockets.values()):
            connection.close()
