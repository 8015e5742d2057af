"""Connections between two ranks of a process group, beside those of its collectives.

torch lets a rank start a send and a receive and wait for both: neither may wait for the other, nor for a
collective. So the messages from one rank to another have connections of their own, which the two ranks make
when both of them have started a message on that route.

Each rank leaves three kinds of notes in the store of the group: that it wants a connection, how to connect,
and that it has left the group. A rank that waits for a peer which has left gives up at once.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import DesyncError, LinkLost, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.group_store import AnsweringStore
from weft.runtime.bootstrap.members import peer_lost
from weft.runtime.byte_exchange import CommunicatorWords, broadcast_bytes
from weft.torch.messages import RECEIVER, SENDER, Expiry, Inbox, MessageThread, Outbox, Receive
from weft.torch.monitored_barrier import MonitoredBarrier
from weft.torch.store_bootstrap import Options, meet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.runtime.handles import Handle

_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05
_LISTENING_PAUSE_S: Final = 0.25

_CONNECT_WITHIN_S: Final = 60.0
"""How long two ranks that both want a connection may take to make it."""


class PeerRoute(NamedTuple):
    """The route of messages from one rank to another."""

    sender: int
    receiver: int


class PeerConnections:
    """The connections of one rank for messages to and from single other ranks.

    Parameters
    ----------
    store
        The store of the group.
    session
        The name of this group in the store; another group of the same ranks may use the same store later.
    communicator
        The communicator of the group.
    options
        How to connect.
    check
        Raises once the group has failed.
    """

    def __init__(
        self,
        store: Any,
        session: str,
        communicator: Communicator,
        options: Options,
        check: Callable[[], None],
    ) -> None:
        self.notes, self.members = StoreNotes(store, session), communicator._engine.members
        self.rank, self.options, self.check = communicator.rank, options, check
        self._ranks = range(communicator.size)
        self.barrier = MonitoredBarrier(self.notes, self.rank, self._ranks, check)
        self._expiry = Expiry()
        self._lock = threading.Lock()
        self._outboxes: dict[int, Outbox] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._connections: list[Connection] = []

    def send(self, tensor: Tensor, receiver: int, tag: int, timeout: float) -> Handle[Any]:
        """Start to send a tensor."""
        with self._lock:
            if receiver not in self._outboxes:
                self._outboxes[receiver] = Outbox(self._connect(PeerRoute(self.rank, receiver)))
        return self._outboxes[receiver].send(tensor, tag, timeout)

    def receive(self, tensor: Tensor, sender: int | None, tag: int, timeout: float) -> Receive:
        """Start to receive into a tensor, from one rank or, without a sender, from the first that sends."""
        senders = [sender] if sender is not None else [rank for rank in self._ranks if rank != self.rank]
        receive = Receive(tensor, tag, timeout, senders)
        with self._lock:
            for rank in senders:
                if rank not in self._inboxes:
                    self._inboxes[rank] = Inbox(self._connect(PeerRoute(rank, self.rank)))
        for rank in senders:
            self._inboxes[rank].offer(receive, only=sender is not None)
        if any(self._inboxes[rank].listens for rank in senders):
            self._expiry.add(receive, senders)
        return receive

    def leave(self) -> None:
        """Note that no message follows, and close each connection after its last message."""
        self.notes.leave(self.rank)
        for box in self._boxes():
            box.end()

    def close(self) -> None:
        """Return when all connections are closed."""
        for box in self._boxes():
            box.join()
        self._expiry.close()

    def unreceived(self) -> dict[int, list[int]]:
        """Return the tags of messages that were sent to this rank and never received, by sender."""
        return {sender: tags for sender, box in self._inboxes.items() if (tags := box.kept_tags)}

    def abort(self) -> None:
        """Cancel the messages that are being sent and received."""
        for connection in self._connections:
            connection.abort()
        self._expiry.close()

    def _boxes(self) -> list[MessageThread]:
        return [*self._outboxes.values(), *self._inboxes.values()]

    def _connect(self, route: PeerRoute) -> Connection:
        connection = Connection(self, route)
        self._connections.append(connection)
        return connection


def open_peer_connections(
    store: Any, communicator: Communicator, options: Options, check: Callable[[], None], timeout: float
) -> PeerConnections:
    """Make the peer connections of a group that runs on a communicator; every rank calls this.

    Parameters
    ----------
    options
        The options of the group.
    timeout
        Seconds for all ranks to call this.
    """
    mine, control_plane = secrets.token_bytes(8), communicator._control_plane
    if control_plane is not None:
        session = control_plane.exchange(mine, timeout)[0]
    else:  # a part of a communicator has no control plane
        session = broadcast_bytes(CommunicatorWords(communicator, "process group"), mine)
    plain = Options(transport=options.transport, connect_timeout=options.connect_timeout)
    return PeerConnections(store, session.hex(), communicator, plain, check)


class Connection:
    """The connection of one route, which this rank wants from now on; made when both ranks of it do.

    Parameters
    ----------
    group
        The connections of this rank, of which this is one.
    route
        The route of the messages.
    """

    def __init__(self, group: PeerConnections, route: PeerRoute) -> None:
        self._group, self._notes, self._route = group, group.notes, route
        self._place = SENDER if route.sender == group.rank else RECEIVER
        self.peer = route[1 - self._place]
        """The rank of the peer in the group."""
        self._made: Communicator | None = None
        self._left = threading.Event()
        self._key = f"{route.sender}-{route.receiver}"
        self._wanted_here, self._wanted_there = f"{self._key}/{self._place}", f"{self._key}/{1 - self._place}"
        self._notes.put(self._wanted_here, "wanted")

    def open(self, op: str, timeout: float, wanted: Callable[[], bool] = lambda: True) -> Communicator:
        """Return the communicator of the two ranks.

        Parameters
        ----------
        op
            The name of the operation that needs it.
        timeout
            Seconds for the peer to want it too.
        wanted
            Returns whether an operation waits for it; if not, the store is polled rarely.

        Raises
        ------
        PeerLost
            If the peer has left the group without a message on this route.
        TimedOut
            If the peer does not want it in time.
        """
        if self._made is None:
            deadline = time.monotonic() + timeout
            self._await_peer(op, timeout, deadline, wanted)
            left = min(_CONNECT_WITHIN_S, max(_SHORTEST_PAUSE_S, deadline - time.monotonic()))
            key = self._notes.full_key(self._key)
            with self.ranks_of_group():
                options = self._group.options
                self._made = meet(self._notes.store, self._place, 2, options, timeout=left, key=key)
            # At the end of the process the group ends, and its messages with it.
            atexit.unregister(self._made.close)
        if self._left.is_set():
            self._made.abort()
        return self._made

    @contextmanager
    def ranks_of_group(self) -> Iterator[None]:
        """Raise failures of the two ranks with their ranks in the group."""
        route = self._route
        try:
            yield
        except PeerLost as gone:
            where = route[gone.rank], gone.host, gone.pid
            raise PeerLost(*where, gone.op, gone.step, gone.reason) from gone
        except DesyncError as desync:
            raise DesyncError(route[desync.rank], desync.op, desync.fingerprint) from desync
        except LinkLost as cut:
            raise type(cut)((route.sender, route.receiver), cut.op) from cut
        except TimedOut as late:
            missing = [route[rank] for rank in late.missing]
            raise TimedOut(late.op, late.seconds, missing, late.hint) from late
        except RuntimeFailure as failure:
            ranks = f"from rank {route.sender}, here called 0, to rank {route.receiver}, here called 1"
            raise RuntimeFailure(f"{ranks}: {failure}") from failure

    def close(self) -> None:
        """Close the connection."""
        self._left.set()
        if self._made is not None:
            self._made.close()

    def abort(self) -> None:
        """Cancel the message that is being sent or received, from any thread."""
        self._left.set()
        if self._made is not None:
            self._made.abort()

    def stop_listening(self) -> None:
        """Close a connection that no operation waits for: a peer that wants it later fails at once."""
        if self._made is None:
            self._notes.remove(self._wanted_here)
        self.abort()

    def _await_peer(self, op: str, timeout: float, deadline: float, wanted: Callable[[], bool]) -> None:
        """Wait for the peer's note; not inside the store, which serves one thread at a time."""
        pause = _SHORTEST_PAUSE_S
        while not self._notes.has(self._wanted_there):
            # A rank that leaves has left its other notes before: look once more.
            if self._notes.has_left(self.peer) and not self._notes.has(self._wanted_there):
                raise peer_lost(self._group.members[self.peer], op, "it has left the process group")
            self._group.check()
            if time.monotonic() > deadline:
                raise TimedOut(op, timeout, [self.peer], "it has not called the other half")
            if self._left.wait(pause if wanted() else _LISTENING_PAUSE_S):
                raise RuntimeFailure(f"{op}: this rank has aborted or destroyed the process group")
            pause = min(2 * pause, _LONGEST_PAUSE_S)


class StoreNotes:
    """Short notes of the ranks of a group in its store.

    Parameters
    ----------
    store
        The store of the group.
    session
        The name of the group in the store.
    """

    def __init__(self, store: Any, session: str) -> None:
        self.store = store
        self._answering = AnsweringStore(store)
        self._session = f"weft/{session}"

    def full_key(self, key: str) -> str:
        """Return the key in the store of a note of this group."""
        return f"{self._session}/{key}"

    def put(self, key: str, text: str) -> None:
        """Leave a note."""
        with _reaching_store():
            self._answering.set(self.full_key(key), text)

    def has(self, key: str) -> bool:
        """Return whether a note was left."""
        with _reaching_store():
            return self._answering.check([self.full_key(key)])

    def get(self, key: str) -> str | None:
        """Return a note, if it was left."""
        if not self.has(key):
            return None
        with _reaching_store():
            return self._answering.get(self.full_key(key)).decode(errors="replace")

    def remove(self, key: str) -> None:
        """Delete a note."""
        with suppress(RuntimeError):  # a store that is gone, or one that deletes nothing
            self._answering.delete_key(self.full_key(key))

    def leave(self, rank: int) -> None:
        """Note that a rank starts no further messages."""
        with suppress(RuntimeFailure):  # the store is gone, and ranks that look for the note see that
            self.put(f"left/{rank}", "left")

    def has_left(self, rank: int) -> bool:
        """Return whether a rank starts no further messages."""
        return self.has(f"left/{rank}")


@contextmanager
def _reaching_store() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        msg = f"the store of the process group cannot be reached: {reason}"
        raise RuntimeFailure(f"{msg}; the rank that keeps it may have ended") from error
