"""Messages of one rank to another, each given to the receive that waits for its tag.

A message is a header (tag, bytes, type) and the memory of a tensor. The receiver reads while a receive waits.
A message whose tag no receive waits for yet is kept in memory, up to a bound; messages of one tag are
received in the order in which they were sent.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from weft import limits
from weft.errors import DesyncError, LimitError, PeerLost, TimedOut
from weft.runtime.handles import Handle, Worker
from weft.torch.tensors import Staged, bytes_of, flat_of, given_dtype, invalidate, write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from weft.runtime.communicator import Communicator
    from weft.torch.peer_connections import Connection

SENDER: Final = 0
RECEIVER: Final = 1
"""Ranks of the communicator between the two."""

_SHORTEST_WAIT_S: Final = 0.001

_LISTENING_S: Final = 1e6
"""How long a connection is listened to because any peer may send: the longest time that the runtime takes."""


class MessageHeader(NamedTuple):
    """The header that is sent before a message."""

    tag: int
    size_bytes: int
    type_code: int

    @staticmethod
    def of(tag: int, tensor: torch.Tensor) -> MessageHeader:
        """Return the header of a message with this tensor."""
        code = zlib.crc32(str(given_dtype(tensor)).encode())
        return MessageHeader(tag, tensor.numel() * tensor.element_size(), code)

    @property
    def kind(self) -> str:
        """The part of the operation's fingerprint that makes ranks with different types fail."""
        return f"message {self.type_code:08x}"


class Receive:
    """A receive that was started, from one peer or from the first that sends.

    Parameters
    ----------
    tensor
        The tensor for the message.
    tag
        The tag of the message.
    timeout
        Seconds.
    senders
        The ranks that may send it.
    """

    def __init__(self, tensor: torch.Tensor, tag: int, timeout: float, senders: Iterable[int]) -> None:
        self.tensor, self.tag, self.timeout = tensor, tag, timeout
        self._senders = set(senders)
        self.deadline = time.monotonic() + timeout
        self.handle: Handle[Any] = Handle("recv")
        self._source: int | None = None
        self._lock = threading.Lock()

    def claim(self, source: int) -> bool:
        """Return whether a message of this rank may complete it: that of the first caller may."""
        with self._lock:
            mine = self._source is None
            self._source = source if mine else self._source
            return mine

    def can_do_without(self, sender: int) -> bool:
        """Return whether other ranks may send it, after this one no longer will."""
        with self._lock:
            self._senders.discard(sender)
            return bool(self._senders)

    @property
    def is_open(self) -> bool:
        """Whether it waits for a message."""
        return self._source is None

    def find_source(self) -> int:
        """Return the rank that has sent the message; -1 as long as there is none."""
        return -1 if self._source is None else self._source

    def fail(self, error: BaseException) -> None:
        """Fail the receive: there will be no message."""
        invalidate(self.tensor)
        self.handle.complete(error=error)


class Expiry:
    """Fails receives at their deadlines where their connections are read without a deadline.

    One thread serves them all; it starts with the first.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Receive, list[int]]] = []
        self._number = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, receive: Receive, senders: list[int]) -> None:
        """Fail a receive at its deadline, unless it has its message by then."""
        with self._changed:
            heapq.heappush(self._due, (receive.deadline, next(self._number), receive, senders))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="weft-expiry", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _work(self) -> None:
        while (expired := self._next()) is not None:
            receive, senders = expired
            if receive.claim(-1):
                hint = "no message with this tag was sent"
                receive.fail(TimedOut("recv", receive.timeout, senders, hint))

    def _next(self) -> tuple[Receive, list[int]] | None:
        """Return the next receive whose deadline has passed; None once this is closed."""
        with self._changed:
            while not self._closed:
                while self._due and not self._due[0][2].is_open:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    _, _, receive, senders = heapq.heappop(self._due)
                    return receive, senders
                self._changed.wait(wait)
            return None


class MessageThread:
    """One end of a connection, with a thread of its own.

    Parameters
    ----------
    connection
        The connection to the peer.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._worker = Worker()

    def end(self) -> None:
        """Close the connection after the last message that was started."""
        self._worker.end(self._connection.close)

    def join(self) -> None:
        """Return when the connection is closed."""
        self._worker.close()


class Outbox(MessageThread):
    """Sends tensors to one peer, one after the other."""

    def send(self, tensor: torch.Tensor, tag: int, timeout: float) -> Handle[Any]:
        """Start to send a tensor; the operation is over when the peer has read it."""

        def run() -> None:
            communicator = self._connection.open("send", timeout)
            header, data = MessageHeader.of(tag, tensor), bytes_of(flat_of(tensor))
            with self._connection.ranks_of_group():
                communicator.send(np.array(header, np.int64), RECEIVER, timeout=timeout, kind="header")
                communicator.send(data, RECEIVER, timeout=timeout, kind=header.kind)

        return self._worker.submit(run, "send")


class Inbox(MessageThread):
    """Receives tensors from one peer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()
        self._waiting: list[Receive] = []
        self._kept: dict[int, deque[tuple[MessageHeader, NDArray[np.uint8]]]] = {}
        self._kept_messages = self._kept_bytes = 0
        self._ended: PeerLost | None = None
        self.listens = False
        """Whether this reads without a deadline; `Expiry` then fails receives in time."""
        self._next: MessageHeader | None = None

    def offer(self, receive: Receive, *, only: bool) -> None:
        """Give a receive the first message with its tag that no other receive has taken.

        Parameters
        ----------
        only
            Whether no other peer can complete it. If another peer can, the connection is read without a
            deadline, because a deadline that passes ends the connection.
        """
        self.listens = self.listens or not only
        with self._lock:
            kept = self._take(receive) if receive.tag in self._kept else None
            if kept is None and receive.is_open:
                self._waiting.append(receive)
        if kept is not None:
            self._give(receive, *kept)
        elif receive.is_open:
            self._worker.submit(lambda: self._read_until(receive, only), "recv")

    def end(self) -> None:
        """Close the connection after the last message that was started, or now if no receive waits."""
        super().end()
        with self._lock:
            listens = not any(receive.is_open for receive in self._waiting)
        if listens:
            self._connection.stop_listening()

    @property
    def kept_tags(self) -> list[int]:
        """The tags of the messages that are kept."""
        with self._lock:
            return list(self._kept)

    def _read_until(self, receive: Receive, only: bool) -> None:
        """Read messages until this receive has its own, perhaps while an earlier one waits."""
        try:
            while receive.is_open:
                if self._ended is not None:
                    raise self._ended  # noqa: TRY301 - as if the connection had said it again
                left = receive.deadline - time.monotonic() if only else _LISTENING_S
                communicator = self._connection.open("recv", left, lambda: receive.is_open)
                with self._connection.ranks_of_group():
                    self._read(communicator, max(_SHORTEST_WAIT_S, left))
        except BaseException as error:  # noqa: BLE001 - the receive raises it
            peer = self._connection.peer
            if isinstance(error, PeerLost) and error.reason is not None:  # it has left the group properly
                self._ended = error
            alone = self._ended is None or not receive.can_do_without(peer)
            if alone and receive.claim(peer):
                receive.fail(error)
        finally:
            with self._lock:
                self._waiting = [other for other in self._waiting if other is not receive]

    def _read(self, communicator: Communicator, wait: float) -> None:
        """Read one message: into the tensor of a receive that waits for its tag, or into memory."""
        if self._next is None:
            words = np.empty(len(MessageHeader._fields), np.int64)
            communicator.recv(words, SENDER, timeout=wait, kind="header")
            self._next = MessageHeader(*words.tolist())
        header = self._next
        with self._lock:
            receive = self._find(header.tag)
        if receive is not None:
            try:
                self._read_into(receive, header, communicator, wait)
            except BaseException as error:
                receive.fail(error)
                raise
            return
        self._check_room(header)
        data = np.empty(header.size_bytes, np.uint8)
        communicator.recv(data, SENDER, timeout=wait, kind=header.kind)
        self._next = None
        with self._lock:
            receive = self._find(header.tag)  # that may have been started meanwhile
            if receive is None:
                self._keep(header, data)
        if receive is not None:
            self._give(receive, header, data)

    def _read_into(
        self, receive: Receive, header: MessageHeader, communicator: Communicator, wait: float
    ) -> None:
        """Read a message into the tensor of the receive that it is for."""
        staged = Staged(receive.tensor)
        # As this rank expects it: where the size or the type of the message differ, both ranks fail.
        kind = MessageHeader.of(header.tag, receive.tensor).kind
        communicator.recv(bytes_of(staged.flat), SENDER, timeout=wait, kind=kind)
        staged.write_back()
        self._next = None
        receive.handle.complete()

    def _find(self, tag: int) -> Receive | None:
        """Return the first receive that waits for this tag and was not completed by another peer."""
        peer = self._connection.peer
        return next((one for one in self._waiting if one.tag == tag and one.claim(peer)), None)

    def _keep(self, header: MessageHeader, data: NDArray[np.uint8]) -> None:
        self._kept.setdefault(header.tag, deque()).append((header, data))
        self._kept_messages += 1
        self._kept_bytes += data.nbytes

    def _take(self, receive: Receive) -> tuple[MessageHeader, NDArray[np.uint8]] | None:
        if not receive.claim(self._connection.peer):
            return None
        tag = receive.tag
        header, data = self._kept[tag].popleft()
        if not self._kept[tag]:
            del self._kept[tag]
        self._kept_messages -= 1
        self._kept_bytes -= data.nbytes
        return header, data

    def _check_room(self, header: MessageHeader) -> None:
        many = self._kept_messages >= limits.MAX_UNEXPECTED_MESSAGES
        if many or self._kept_bytes + header.size_bytes > limits.MAX_UNEXPECTED_BYTES:
            peer = self._connection.peer
            comes = f"rank {peer} sends {header.size_bytes:,} bytes with tag {header.tag} next"
            have = f"{self._kept_messages:,} messages of {self._kept_bytes:,} bytes with other tags are kept"
            bound = f"{limits.MAX_UNEXPECTED_MESSAGES:,} messages and {limits.MAX_UNEXPECTED_BYTES:,} bytes"
            msg = f"recv: {comes}, and {have} already; the bound is {bound}: receive that tag first"
            raise LimitError(msg)

    def _give(self, receive: Receive, header: MessageHeader, data: NDArray[np.uint8]) -> None:
        """Complete a receive with a message that was kept."""
        if header != MessageHeader.of(receive.tag, receive.tensor):
            receive.fail(DesyncError(self._connection.peer, "recv"))
            return
        write_bytes(receive.tensor, data)
        receive.handle.complete()
