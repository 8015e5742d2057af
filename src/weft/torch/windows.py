"""Small gathers and scatters in flight: several of them in one message.

For every message two ranks wait for each other. A program that starts a thousand gathers and then waits for
them would do that a thousand times. Here the side that sends looks at what else is queued: the data of
gathers (or scatters) that follow each other directly, with the same root, type and size, goes into one
message of a fixed size. The side that receives keeps data that it needs later. Both sides know from the size
of the tensors alone how long a message is, so they need not agree on how much is in one.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import DesyncError
from weft.torch.tensors import bytes_of, flat_of, write, write_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.collectives import Job

    Bytes = NDArray[np.uint8]

_MESSAGE_BYTES: Final = 4096
_LARGEST_PART_BYTES: Final = 1024
"""Larger tensors gain little from sharing a message, and are sent by themselves."""

_COUNT_BYTES: Final = 8


class Window:
    """Gathers or scatters that follow each other, with one root, type and size.

    Parameters
    ----------
    comm
        The communicator.
    name, kind
        The name of the collective, and its part of the fingerprint.
    root
        The rank that receives in a gather, and sends in a scatter.
    part_bytes
        The size of the tensor that one rank sends or receives.
    before
        The window of the collectives just before.
    """

    def __init__(
        self, comm: Communicator, name: str, kind: str, root: int, part_bytes: int, before: Window | None
    ) -> None:
        self.comm, self.name, self.part_bytes = comm, name, part_bytes
        self.key = name, kind, root, part_bytes
        self._before = before
        self._kind = f"{kind} of {part_bytes} bytes"
        self._most = (_MESSAGE_BYTES - _COUNT_BYTES) // part_bytes
        self._message_bytes = _COUNT_BYTES + self._most * part_bytes
        at_root = comm.rank == root
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        self.sends = at_root is (name == "scatter")
        self._peers = others if at_root else [root]
        # Of this rank among those that the root of a scatter sends to.
        self._place = comm.rank - (comm.rank > root) if name == "scatter" and not at_root else 0
        self._queued: deque[WindowEntry] = deque()
        self._kept: dict[int, deque[Bytes]] = {peer: deque() for peer in self._peers}
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    def add(self, entry: WindowEntry) -> Job:
        """Queue one collective; return the function that carries it out when its turn comes."""
        with self._lock:
            self._queued.append(entry)
        return lambda timeout: self._run(entry, timeout)

    def check_empty(self) -> None:
        """Refuse another collective while peers have sent more of this window."""
        for peer, parts in self._kept.items():
            if parts:
                raise DesyncError(peer, self.name)

    def _run(self, entry: WindowEntry, timeout: float) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            if self._before is not None:
                self._before.check_empty()
                self._before = None
            if not self.sends:
                self._receive(entry, timeout)
            elif not entry.is_sent:
                self._send(timeout)
        except BaseException as error:
            self._failure = error
            raise

    def _send(self, timeout: float) -> None:
        """Send the data of the oldest entry, and of as many others as are queued."""
        with self._lock:
            entries = [self._queued.popleft() for _ in range(min(self._most, len(self._queued)))]
        messages = np.zeros((len(self._peers), self._message_bytes), np.uint8)
        messages[:, :_COUNT_BYTES].view(np.int64)[:] = len(entries)
        for place, entry in enumerate(entries):
            first = _COUNT_BYTES + place * self.part_bytes
            for row, peer in zip(messages, self._peers, strict=True):
                row[first : first + self.part_bytes] = bytes_of(flat_of(entry.given[peer]))
            entry.keep_own()  # in the order of the calls: what it overwrites may be what the next one sends
            entry.is_sent = True
        self.comm.send_parts(self._peers, messages.reshape(-1), timeout=timeout, kind=self._kind)

    def _receive(self, entry: WindowEntry, timeout: float) -> None:
        """Give an entry the data of its peers, from earlier messages or from new ones."""
        with self._lock:
            self._queued.popleft()
        entry.keep_own()
        lacking = [peer for peer in self._peers if not self._kept[peer]]
        if lacking:
            room = np.empty((len(lacking), self._message_bytes), np.uint8)
            into = room.reshape(-1)
            self.comm.recv_parts(lacking, into, place=self._place, timeout=timeout, kind=self._kind)
            for peer, message in zip(lacking, room, strict=True):
                count = int(message[:_COUNT_BYTES].view(np.int64)[0])
                parts = message[_COUNT_BYTES:].reshape(self._most, self.part_bytes)
                self._kept[peer].extend(parts[: max(1, min(count, self._most))])
        for peer in self._peers:
            write_bytes(entry.taken[peer], self._kept[peer].popleft())


class WindowEntry:
    """One gather or scatter of a window.

    Parameters
    ----------
    rank
        This rank.
    given
        The tensors that this rank sends, by receiver; a gather sends one to its root.
    taken
        The tensors that this rank receives, by sender.
    """

    def __init__(self, rank: int, given: dict[int, Tensor], taken: dict[int, Tensor]) -> None:
        self.given, self.taken, self._rank = given, taken, rank
        self.is_sent = False

    def keep_own(self) -> None:
        """Copy the tensor that this rank sends to itself, if it is the root."""
        if self._rank in self.given and self._rank in self.taken:
            source, output = self.given[self._rank], self.taken[self._rank]
            write(output, flat_of(source).view(output.shape))


class Windows:
    """The open window of a group's small gathers or scatters, one at a time.

    Parameters
    ----------
    comm
        The communicator.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._open: Window | None = None

    def find(self, name: str, kind: str, root: int, part_bytes: int) -> Window | None:
        """Return the window for a collective; None if it is better carried out by itself."""
        if not 0 < part_bytes <= _LARGEST_PART_BYTES or self._comm.size == 1:
            return None
        if self._open is None or self._open.key != (name, kind, root, part_bytes):
            self._open = Window(self._comm, name, kind, root, part_bytes, self._open)
        return self._open

    def close_before(self, job: Job) -> Job:
        """Close the window before another collective, whose job then first checks that nothing is left."""
        window, self._open = self._open, None
        if window is None:
            return job

        def run(timeout: float) -> None:
            window.check_empty()
            job(timeout)

        return run
