"""Collectives over MPI, for clusters where that is what reaches the network.

MPI makes progress only while it is called, and its waits have no end; so requests are tested in a loop, with
a deadline, first eagerly and then with longer and longer naps.

MPI may write to the memory of a receive until the receive is over, long after the operation that started it
has failed: what is still open then is cancelled, or its memory is never freed.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from weft.errors import InputError, MissingPackageError, TimedOut
from weft.runtime.bootstrap.members import Member
from weft.runtime.buffers import Flat, flatten
from weft.runtime.engines.messaging import FAREWELL_S, FailureKind, MessagingEngine, OperationFailure, heard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from weft.runtime.engines.interpreter import MessageChannel, Move

    Bytes = NDArray[np.uint8]

LARGEST: Final = 1 << 30
"""Bytes of one MPI message: counts of the older interface are 32 bits wide."""

_DATA, _FAREWELL, _PARTING = 1, 2, 3
_EAGER_TESTS: Final = 50
_MEMBER_BYTES: Final = 2048
_LONGEST_NAP_S: Final = 1e-3
_INIT_HINT: Final = "not all ranks called weft.init, or split"


def load_mpi() -> Any:
    """The MPI module, which starts MPI.

    Raises
    ------
    InputError
        If it is not installed, or permits one thread only.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingPackageError("engine 'mpi'", "mpi4py", error) from error
    except RuntimeError as error:  # mpi4py is there, and finds no MPI library
        raise InputError(f"engine 'mpi' needs an MPI library ({error}); install Open MPI or MPICH") from error
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise InputError("MPI was started for one thread only; start it with MPI.THREAD_SERIALIZED or more")
    return MPI


class MpiEngine(MessagingEngine[Flat]):
    """Runs schedules over a duplicate of an MPI communicator; arrays are in ordinary memory.

    Parameters
    ----------
    mpi
        What `load_mpi` gave.
    comm
        Its ranks are the ranks of the job.
    timeout
        Seconds for meeting the others.
    """

    def __init__(self, mpi: Any, comm: Any, *, timeout: float) -> None:
        own, duplicated = comm.Idup()
        deadline = time.monotonic() + timeout
        records = np.empty(_MEMBER_BYTES * comm.size, np.uint8)
        if not _test_until(duplicated.Test, deadline):
            raise TimedOut("init", timeout, hint=_INIT_HINT)
        gathered = own.Iallgather(_encode_member(comm.rank), records)
        if not _test_until(gathered.Test, deadline):
            _keep_for_good([gathered])
            raise TimedOut("init", timeout, hint=_INIT_HINT)
        members = [_decode_member(record.tobytes()) for record in records.reshape(comm.size, -1)]
        super().__init__(members, comm.rank, MpiChannel(mpi, own))
        self._mpi, self._comm = mpi, own

    def split(
        self, members: Sequence[int], exchange: Callable[[bytes], list[bytes]], timeout: float
    ) -> MpiEngine | None:
        """Engine of some of the ranks, over an MPI communicator of theirs."""
        del exchange
        if not members:
            return None
        group = self._comm.Get_group().Incl(list(members))
        return MpiEngine(self._mpi, self._comm.Create_group(group, _PARTING), timeout=timeout)

    def flatten(self, array: Any, *, writable: bool) -> Flat:
        """Take an array, or anything with DLPack or the buffer protocol."""
        return flatten(array, writable=writable)

    def channel(self, flat: Flat) -> MessageChannel:
        """What carries such values."""
        del flat
        return self.messenger


class MpiChannel:
    """Messages of one MPI communicator.

    Parameters
    ----------
    mpi
        The MPI module.
    comm
        Used by nobody else.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi, self._comm = mpi, comm
        self._left: set[int] = set()
        # MPI may write to a receive's memory, or read a send's, for as long as that is not over: so it stays.
        self._sends: dict[int, tuple[int, list[Any]]] = {}
        self._receives: dict[int, tuple[int, list[Any]]] = {}

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, list[Any]]]:
        """Start sends and receives; for each its peer and requests."""
        started: list[tuple[int, list[Any]]] = []
        for peer, values, sends in moves:
            begin = self._comm.Isend if sends else self._comm.Irecv
            data = values.view(np.uint8)
            parts = range(0, data.nbytes, LARGEST)
            requests = [begin([data[at : at + LARGEST], self._mpi.BYTE], peer, _DATA) for at in parts]
            started.append((peer, requests))
            (self._sends if sends else self._receives)[id(started[-1])] = started[-1]
        return started

    def wait(self, handle: tuple[int, list[Any]], deadline: float) -> None:
        """Test until it is over, or until a rank reports a failure."""
        peer, requests = handle

        def over() -> bool:
            if self._mpi.Request.Testall(requests):
                return True
            self._listen()
            if peer in self._left and not self._mpi.Request.Testall(requests):
                raise OperationFailure(FailureKind.LOST, peer)
            return False

        if not _test_until(over, deadline):
            raise OperationFailure(FailureKind.LATE, peer)
        if self._sends.pop(id(handle), None) is None:
            del self._receives[id(handle)]

    def write(self, words: tuple[int, int]) -> Bytes:
        """Two numbers as bytes."""
        return np.array(words, np.uint64).view(np.uint8)

    def read(self, values: Bytes) -> tuple[int, int]:
        """The two numbers that came."""
        first, second = values.view(np.uint64).tolist()
        return first, second

    def tell(self, failure: OperationFailure) -> None:
        """Let the others know, as far as they can be reached within a moment."""
        words = self.write((failure.kind, failure.rank))
        others = [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        requests = [self._comm.Isend([words, self._mpi.BYTE], rank, _FAREWELL) for rank in others]
        self._sends[id(requests)] = (self._comm.rank, requests)
        _test_until(lambda: self._mpi.Request.Testall(requests), time.monotonic() + FAREWELL_S)
        self._abandon()

    def _abandon(self) -> None:
        """Cancel what is to be received, and keep the memory of what cannot be ended.

        A receive whose message has begun to come cannot be cancelled, nor can a send, since MPI 4.0.
        """
        received = [request for _, requests in self._receives.values() for request in requests]
        for request in received:
            request.Cancel()
        sent = [request for _, requests in self._sends.values() for request in requests]
        _keep_for_good([request for request in received + sent if not request.Test()])
        self._sends.clear()
        self._receives.clear()

    def _listen(self) -> None:
        """Hear from a rank that has given up or left."""
        status = self._mpi.Status()
        if not self._comm.Iprobe(self._mpi.ANY_SOURCE, _FAREWELL, status):
            return
        words, teller = self.write((0, 0)), status.Get_source()
        self._comm.Recv([words, self._mpi.BYTE], teller, _FAREWELL)
        kind, rank = self.read(words)
        if kind == FailureKind.LOST and rank == teller:
            self._left.add(teller)  # but what it has sent before may still be on its way
        else:
            raise heard((kind, rank), teller, self._comm.rank)


def _keep_for_good(requests: Sequence[Any]) -> None:
    """Keep requests, and with them the memory that they read or write, until the process has ended.

    MPI is finalized when Python has freed all that modules hold, and makes progress then: a list of a module
    would not keep them long enough.
    """
    for request in requests:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(request))


def _test_until(over: Callable[[], bool], deadline: float) -> bool:
    """Whether it is over before the deadline."""
    tests, nap = 0, 1e-5
    while not over():
        if time.monotonic() > deadline:
            return False
        tests += 1
        if tests < _EAGER_TESTS:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(nap * 1.5, _LONGEST_NAP_S)
    return True


def _encode_member(rank: int) -> NDArray[np.uint8]:
    """Encode the member that this process is, in as many bytes on every rank."""
    record = msgspec.msgpack.encode(Member.here(rank))
    return np.frombuffer(len(record).to_bytes(2) + record.ljust(_MEMBER_BYTES - 2, b"\0"), np.uint8).copy()


def _decode_member(record: bytes) -> Member:
    """Decode the member that another process is."""
    return msgspec.msgpack.decode(record[2 : 2 + int.from_bytes(record[:2])], type=Member)
