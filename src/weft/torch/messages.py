"""Messages of one rank to another, each given to the receive that asks for its tag.

A message is a header (tag, bytes, type) and the memory of a tensor. The receiver reads while a receive waits.
A message whose tag no receive has asked for yet is kept in memory until one does, up to a bound; messages of
one tag come in the order in which they were sent.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch

from weft import limits
from weft.errors import DesyncError, LimitError
from weft.runtime.work import Outcome, Work, Worker
from weft.torch.tensors import Staged, bytes_of, flat_of, given_dtype, spoil

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.runtime.communicator import Communicator
    from weft.torch.pairs import Connection

SENDER: Final = 0
RECEIVER: Final = 1
"""Ranks of the communicator between the two."""

_SHORTEST_WAIT_S: Final = 0.001


class Header(NamedTuple):
    """What the sender says about a message before it comes."""

    tag: int
    size_bytes: int
    type_code: int

    @staticmethod
    def of(tag: int, tensor: torch.Tensor) -> Header:
        """Header of a message with this tensor."""
        code = zlib.crc32(str(given_dtype(tensor)).encode())
        return Header(tag, tensor.numel() * tensor.element_size(), code)

    @property
    def kind(self) -> str:
        """For the fingerprint of the operation that moves the message: ranks whose types differ are told."""
        return f"message {self.type_code:08x}"


@dataclass(eq=False)
class _Receive:
    """A receive that was started."""

    tensor: torch.Tensor
    tag: int
    timeout: float
    future: Outcome = field(default_factory=Outcome)


class Box:
    """One end of a connection, with a thread of its own.

    Parameters
    ----------
    connection
        To the peer.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._worker = Worker()

    def end(self) -> None:
        """Close the connection after the last message that was started."""
        self._worker.end(self._connection.close)

    def join(self) -> None:
        """Return when that is done."""
        self._worker.close()


class Outbox(Box):
    """Sends tensors to one peer, one after the other."""

    def send(self, tensor: torch.Tensor, tag: int, timeout: float) -> Work:
        """Start to send a tensor; the work is over when the peer has read it."""

        def run() -> None:
            communicator = self._connection.open("send", timeout)
            header, data = Header.of(tag, tensor), bytes_of(flat_of(tensor))
            with self._connection.ranks_of_group():
                communicator.send(np.array(header, np.int64), RECEIVER, timeout=timeout, kind="header")
                communicator.send(data, RECEIVER, timeout=timeout, kind=header.kind)

        return self._worker.submit(run)


class Inbox(Box):
    """Receives tensors from one peer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()
        self._waiting: list[_Receive] = []
        self._kept: dict[int, deque[tuple[Header, NDArray[np.uint8]]]] = {}
        self._kept_messages = self._kept_bytes = 0
        self._next: Header | None = None

    def receive(self, tensor: torch.Tensor, tag: int, timeout: float) -> Work:
        """Start to receive into a tensor the first message with this tag that no other receive has got."""
        receive = _Receive(tensor, tag, timeout)
        with self._lock:
            kept = self._take(tag)
            if kept is None:
                self._waiting.append(receive)
        if kept is None:
            self._worker.submit(lambda: self._read_until(receive))
        else:
            self._give(receive, *kept)
        return Work(receive.future)

    @property
    def kept_tags(self) -> list[int]:
        """Tags of the messages that are kept."""
        with self._lock:
            return list(self._kept)

    def _read_until(self, receive: _Receive) -> None:
        """Read messages until this receive has got its own, perhaps while an earlier one waited."""
        deadline = time.monotonic() + receive.timeout
        try:
            while not receive.future.done():
                communicator = self._connection.open("recv", receive.timeout)
                with self._connection.ranks_of_group():
                    self._read(communicator, max(_SHORTEST_WAIT_S, deadline - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            with self._lock:
                self._waiting.remove(receive)
            _fail(receive, error)

    def _read(self, communicator: Communicator, wait: float) -> None:
        """Read one message: into the tensor of a receive that waits for its tag, or into memory."""
        if self._next is None:
            words = np.empty(len(Header._fields), np.int64)
            communicator.recv(words, SENDER, timeout=wait, kind="header")
            self._next = Header(*words.tolist())
        header = self._next
        with self._lock:
            receive = self._find(header.tag)
        if receive is not None:
            staged = Staged(receive.tensor)
            # As this rank expects it: where the size or the type of the message differ, both ranks are told.
            kind = Header.of(header.tag, receive.tensor).kind
            communicator.recv(bytes_of(staged.flat), SENDER, timeout=wait, kind=kind)
            staged.settle()
            self._next = None
            with self._lock:
                self._waiting.remove(receive)
            receive.future.set_result(None)
            return
        self._check_room(header)
        data = np.empty(header.size_bytes, np.uint8)
        communicator.recv(data, SENDER, timeout=wait, kind=header.kind)
        self._next = None
        with self._lock:
            receive = self._find(header.tag)  # that may have been started meanwhile
            if receive is None:
                self._keep(header, data)
            else:
                self._waiting.remove(receive)
        if receive is not None:
            self._give(receive, header, data)

    def _find(self, tag: int) -> _Receive | None:
        return next((receive for receive in self._waiting if receive.tag == tag), None)

    def _keep(self, header: Header, data: NDArray[np.uint8]) -> None:
        self._kept.setdefault(header.tag, deque()).append((header, data))
        self._kept_messages += 1
        self._kept_bytes += data.nbytes

    def _take(self, tag: int) -> tuple[Header, NDArray[np.uint8]] | None:
        if tag not in self._kept:
            return None
        header, data = self._kept[tag].popleft()
        if not self._kept[tag]:
            del self._kept[tag]
        self._kept_messages -= 1
        self._kept_bytes -= data.nbytes
        return header, data

    def _check_room(self, header: Header) -> None:
        many = self._kept_messages >= limits.MAX_UNEXPECTED_MESSAGES
        if many or self._kept_bytes + header.size_bytes > limits.MAX_UNEXPECTED_BYTES:
            comes = (
                f"rank {self._connection.peer} sends {header.size_bytes:,} bytes with tag {header.tag} next"
            )
            have = f"{self._kept_messages:,} messages of {self._kept_bytes:,} bytes with other tags are kept"
            bound = f"{limits.MAX_UNEXPECTED_MESSAGES:,} messages and {limits.MAX_UNEXPECTED_BYTES:,} bytes"
            msg = f"recv: {comes}, and {have} already; the bound is {bound}: receive that tag first"
            raise LimitError(msg)

    def _give(self, receive: _Receive, header: Header, data: NDArray[np.uint8]) -> None:
        """Complete a receive with a message that was kept."""
        if header != Header.of(receive.tag, receive.tensor):
            _fail(receive, DesyncError(self._connection.peer, "recv"))
            return
        staged = Staged(receive.tensor)
        bytes_of(staged.flat)[:] = data
        staged.settle()
        receive.future.set_result(None)


def _fail(receive: _Receive, error: BaseException) -> None:
    spoil(receive.tensor)
    receive.future.set_exception(error)
