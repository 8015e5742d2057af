"""The flight recorder: what a rank was doing before its job failed.

Every communicator keeps its latest operations in a ring of fixed size. When an operation fails, on
`Communicator.flight` and on SIGUSR2, the records of all communicators of the process are written to one file,
``flight-JOB-rN.json`` in the folder that ``WEFT_FLIGHT_DIR`` names, by default the working directory; if the
variable is set but empty, nothing is written. ``weft explain`` merges the files of all ranks
(`weft.runtime.diagnosis`).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure

if TYPE_CHECKING:
    from weft.runtime.engines import AwaitedPeer, Engine, Prepared

FORMAT: Final = "weft-flight-1"
_KEPT: Final = 1024
"""Operations in a ring."""

_MOST: Final = 64
"""Communicators in a file."""

_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_log: Final = logging.getLogger("weft.runtime")

_Text = Annotated[str, msgspec.Meta(max_length=1000)]
_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=limits.MAX_JOB_RANKS)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class RecordedOperation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One operation.

    Parameters
    ----------
    number
        How many operations the communicator had begun, this one included.
    collective, algorithm, size_bytes
        What ran.
    fingerprint
        Equal on two ranks that were in the same operation.
    began_s, ended_s
        Seconds since the epoch; no end while it was under way.
    """

    number: _Number
    collective: _Text
    algorithm: _Text
    size_bytes: _Number
    fingerprint: _Text
    began_s: float
    ended_s: float | None = None


class PeerWait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The peer that an operation waited for; its rank is that in the job."""

    rank: _Rank
    seconds: float
    silent_s: float = 0.0
    step: int | None = None


class CommunicatorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The record of one communicator.

    Parameters
    ----------
    ranks
        Its ranks, as they are numbered in the job.
    operations
        The latest, oldest first; the last one may be under way.
    waiting
        What the operation under way waited for.
    failure
        What ended the communicator.
    blamed
        The rank in the job that the failure names.
    """

    ranks: Annotated[tuple[_Rank, ...], msgspec.Meta(max_length=limits.MAX_JOB_RANKS)]
    operations: Annotated[tuple[RecordedOperation, ...], msgspec.Meta(max_length=_KEPT)]
    waiting: PeerWait | None = None
    failure: _Text | None = None
    blamed: _Rank | None = None


class FlightRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one process writes down."""

    format: str
    job: _Text
    rank: _Rank
    host: _Text
    pid: _Number
    written_s: float
    reason: _Text
    flights: Annotated[tuple[CommunicatorRecord, ...], msgspec.Meta(max_length=_MOST)]


class FlightRecorder:
    """The ring of one communicator.

    Parameters
    ----------
    engine
        What runs its operations.
    """

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine
        self._ring: list[list[Any] | None] = [None] * _KEPT
        self._latest: list[Any] = []
        self._count = 0
        self._failure: BaseException | None = None
        self._waiting: AwaitedPeer | None = None
        _recorders.add(self)

    def begin(self, prepared: Prepared) -> None:
        """Record that an operation begins."""
        self._count = count = self._count + 1
        self._latest = [prepared.record, prepared.fingerprint, time.monotonic(), None]
        self._ring[count % _KEPT] = self._latest

    def end(self, happened: bool = True) -> None:
        """It is over, or nothing has happened at all."""
        self._latest[3] = time.monotonic()
        self._count -= not happened

    def fail(self, failure: BaseException) -> None:
        """It has failed; only the first failure counts."""
        if self._failure is None:
            self._failure, self._waiting = failure, self._engine.waiting

    def take(self) -> CommunicatorRecord:
        """The record as it is now."""
        past = time.time() - time.monotonic()
        first = max(1, self._count - _KEPT + 1)
        operations = []
        for number in range(first, self._count + 1):
            slot = self._ring[number % _KEPT]
            assert slot is not None
            record, mark, began, ended = slot
            over = None if ended is None else round(ended + past, 6)
            what = record.name, record.algorithm, record.size_bytes, f"{mark:016x}"
            operations.append(RecordedOperation(number, *what, round(began + past, 6), over))
        waiting = self._engine.waiting if self._failure is None else self._waiting
        blamed = getattr(self._failure, "rank", None)
        return CommunicatorRecord(
            tuple(self._engine.job_ranks),
            tuple(operations),
            None if waiting is None else self._wait(waiting),
            None if self._failure is None else str(self._failure)[:1000],
            None if blamed is None else self._in_job(blamed),
        )

    def _wait(self, waiting: AwaitedPeer) -> PeerWait:
        rank = self._in_job(waiting.rank)
        return PeerWait(rank, round(waiting.seconds, 3), round(waiting.silent_s, 3), waiting.step)

    def _in_job(self, rank: int) -> int:
        ranks = self._engine.job_ranks
        return ranks[rank] if 0 <= rank < len(ranks) else -1


_recorders: weakref.WeakSet[FlightRecorder] = weakref.WeakSet()
"""Of this process: one file has them all, whichever of them fails."""

_writing: Final = threading.Lock()


def write_flight(reason: str) -> Path | None:
    """Write what this process knows; None if ``WEFT_FLIGHT_DIR`` says that nothing is to be written.

    Parameters
    ----------
    reason
        Why it is written.

    Raises
    ------
    RuntimeFailure
        If the file cannot be written, and why.
    """
    folder = os.environ.get("WEFT_FLIGHT_DIR", ".")
    if not folder:
        return None
    job, rank = _identity()
    flights = tuple(recorder.take() for recorder in tuple(_recorders))[:_MOST]
    who = job, rank, socket.gethostname()[:64], os.getpid()
    record = FlightRecord(FORMAT, *who, time.time(), reason[:1000], flights)
    path = Path(folder, f"flight-{job}-r{rank}.json")
    try:
        with _writing:
            _write(path, _encode(record))
    except OSError as error:
        msg = f"the flight record {path} cannot be written: {error.strerror or error}"
        raise RuntimeFailure(f"{msg}; set WEFT_FLIGHT_DIR to a folder with room") from error
    return path


def write_flight_of_failure(failure: BaseException) -> None:
    """Write the record of a failure and note its place in the error; what hinders that is only logged."""
    try:
        path = write_flight(f"{type(failure).__name__}: {failure}")
    except RuntimeFailure as error:
        _log.warning("%s", error)
    else:
        if path is not None:
            failure.add_note(f"flight record: {path}; 'weft explain' merges those of all ranks")


def write_on_signal() -> None:
    """Write the record on SIGUSR2, unless the program has a use of its own for that signal."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR2, _hear_signal)


def _hear_signal(_number: int, _frame: Any) -> None:
    try:
        path = write_flight("SIGUSR2")
    except RuntimeFailure as error:
        _log.warning("%s", error)
    else:
        _log.warning("flight record: %s", path)


def _identity() -> tuple[str, int]:
    """Name of the job, fit for a file name, and the rank of this process in it."""
    from weft.runtime.bootstrap.environment import find_place

    try:
        place = find_place()
    except InputError:
        return "none", 0
    return _NOT_A_NAME.sub("-", place.job)[:40] or "none", place.rank


def _encode(record: FlightRecord) -> bytes:
    """The record as JSON of bounded size: the oldest operations are left out where it is too long."""
    data = msgspec.json.encode(record)
    keep = _KEPT
    while len(data) > limits.MAX_FLIGHT_BYTES and keep:
        keep //= 2
        shorter = tuple(
            msgspec.structs.replace(flight, operations=flight.operations[-keep:] if keep else ())
            for flight in record.flights
        )
        data = msgspec.json.encode(msgspec.structs.replace(record, flights=shorter))
    return data


def _write(path: Path, data: bytes) -> None:
    """Replace the file at once, readable by its owner alone."""
    handle, name = tempfile.mkstemp(prefix=".flight-", dir=path.parent)  # mode 600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
