"""The flight recorder: what a rank was doing before its job failed.

The engine of every communicator keeps the latest operations in a ring of fixed size, `Engine.operations`.
When an operation fails, on `Communicator.flight` and on SIGUSR2, the records of all communicators of the
process are written to one file, ``flight-JOB-rN.json`` in the folder that ``WEFT_FLIGHT_DIR`` names, by
default the working directory; if the variable is set but empty, nothing is written. ``weft explain`` merges
the files of all ranks (`weft.runtime.diagnosis`).
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import signal
import socket
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure
from weft.runtime.engines import KEPT_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.runtime.engines import AwaitedPeer, Engine

FORMAT: Final = "weft-flight-1"
_MOST: Final = 64
"""Communicators in a file."""

_LONGEST_JOB: Final = 40
"""Characters of a job's name in the name of a file."""

_MOST_FAILED: Final = 8
"""Failed communicators that are remembered when the program has let go of them."""

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
        How many operations the communicator had begun, this one and those before `shrink` and `repair`
        included; the same number as in errors.
    collective, algorithm, size_bytes
        What ran.
    fingerprint
        Equal on two ranks that were in the same operation.
    began_s, ended_s
        Seconds since the epoch; no end while it was under way.
    details
        What else the fingerprint is made of, in words, separated by commas.
    """

    number: _Number
    collective: _Text
    algorithm: _Text
    size_bytes: _Number
    fingerprint: _Text
    began_s: float
    ended_s: float | None = None
    details: _Text = ""


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
    identity
        Equal on the ranks of one communicator, and no other has it; empty if the engine knows none.
    pids
        Process of each rank.
    failure_kind, reason
        The class of the failure, and why the blamed rank gave up, if that is known.
    ended
        Whether the program has closed it, or has gone on without lost ranks by `shrink`.
    """

    ranks: Annotated[tuple[_Rank, ...], msgspec.Meta(max_length=limits.MAX_JOB_RANKS)]
    operations: Annotated[tuple[RecordedOperation, ...], msgspec.Meta(max_length=KEPT_OPERATIONS)]
    waiting: PeerWait | None = None
    failure: _Text | None = None
    blamed: _Rank | None = None
    identity: _Text = ""
    pids: Annotated[tuple[_Number, ...], msgspec.Meta(max_length=limits.MAX_JOB_RANKS)] = ()
    failure_kind: _Text | None = None
    reason: _Text | None = None
    ended: Literal["closed", "shrunk"] | None = None


class FlightRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one process writes down; `starting` says what it did if it was within `weft.init`."""

    format: str
    job: _Text
    rank: _Rank
    host: _Text
    pid: _Number
    written_s: float
    reason: _Text
    flights: Annotated[tuple[CommunicatorRecord, ...], msgspec.Meta(max_length=_MOST)]
    starting: _Text | None = None


class FlightRecorder:
    """The ring of one communicator.

    Parameters
    ----------
    engine
        What runs its operations.
    """

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine
        self._failure: BaseException | None = None
        self._waiting: AwaitedPeer | None = None
        self._ended: Literal["closed", "shrunk"] | None = None
        self.order = next(_orders)
        """Which of the communicators of this process it is; later ones have larger numbers."""
        _recorders.add(self)

    def fail(self, failure: BaseException) -> None:
        """It has failed; only the first failure counts."""
        if self._failure is None:
            self._failure, self._waiting = failure, self._engine.waiting
            self._remember()

    def leave(self, how: Literal["closed", "shrunk"]) -> None:
        """The program is done with the communicator."""
        self._ended = self._ended or how
        if self._failure is not None:
            self._remember()

    def resume(self) -> None:
        """The communicator was repaired: it repeats what not all ranks have completed."""
        self._engine.operations.resume(self._engine.done_before)
        self._failure = self._waiting = None
        _failed.pop(self.order, None)

    def _remember(self) -> None:
        """Keep what is known of the failure: the program may let go of the communicator."""
        _failed[self.order] = self.take()
        while len(_failed) > _MOST_FAILED:
            del _failed[min(_failed)]

    def take(self) -> CommunicatorRecord:
        """The record as it is now."""
        past = time.time() - time.monotonic()
        operations = []
        for number, prepared, began, ended in self._engine.operations.entries:
            over = None if ended is None else round(ended + past, 6)
            record = prepared.record
            what = record.name, record.algorithm, record.size_bytes, f"{prepared.fingerprint:016x}"
            details = prepared.details[:1000]
            operations.append(RecordedOperation(number, *what, round(began + past, 6), over, details))
        waiting = self._waiting
        if self._failure is None and self._ended is None:
            waiting = self._engine.waiting
        blamed, reason = getattr(self._failure, "rank", None), getattr(self._failure, "reason", None)
        return CommunicatorRecord(
            tuple(self._engine.job_ranks),
            tuple(operations),
            None if waiting is None else self._wait(waiting),
            None if self._failure is None else str(self._failure)[:1000],
            None if blamed is None else self._in_job(blamed),
            self._engine.identity,
            tuple(self._engine.pids),
            None if self._failure is None else type(self._failure).__name__,
            None if reason is None else str(reason)[:1000],
            self._ended,
        )

    def _wait(self, waiting: AwaitedPeer) -> PeerWait:
        rank = self._in_job(waiting.member.rank)
        return PeerWait(rank, round(waiting.seconds, 3), round(waiting.silent_s, 3), waiting.step)

    def _in_job(self, rank: int) -> int:
        ranks = self._engine.job_ranks
        return ranks[rank] if 0 <= rank < len(ranks) else -1


_recorders: weakref.WeakSet[FlightRecorder] = weakref.WeakSet()
"""Of this process: one file has them all, whichever of them fails."""

_orders: Final = itertools.count()
_failed: Final[dict[int, CommunicatorRecord]] = {}
"""By their order; of communicators that the program may have let go of."""

_writing: Final = threading.Lock()


class _Moment:
    """What this process is in the middle of: a phase of its start, and the handler of SIGUSR2."""

    starting: str | None = None
    hears_signal = False


@contextmanager
def in_phase(phase: str) -> Iterator[None]:
    """Say in records that are written meanwhile that this process starts, and what it does."""
    before, _Moment.starting = _Moment.starting, phase
    try:
        yield
    finally:
        _Moment.starting = before


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
    with _writing:
        return _write_flight(reason)


def _write_flight(reason: str) -> Path | None:
    """Write the record; the caller holds the lock."""
    folder = os.environ.get("WEFT_FLIGHT_DIR", ".")
    if not folder:
        return None
    job, rank = _identity()
    taken = _failed | {recorder.order: recorder.take() for recorder in tuple(_recorders)}
    flights = tuple(taken[order] for order in sorted(taken)[-_MOST:])
    who = job, rank, socket.gethostname()[:64], os.getpid()
    record = FlightRecord(FORMAT, *who, time.time(), reason[:1000], flights, _Moment.starting)
    path = Path(folder, f"flight-{job}-r{rank}.json")
    try:
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
    """Write the record, unless one is being written at this moment: it says the same.

    The signal may have interrupted the very thread that writes, which must not wait for itself; and signals
    that come faster than records are written must not pile up.
    """
    if _Moment.hears_signal:
        return
    _Moment.hears_signal = True
    try:
        if _writing.acquire(blocking=False):
            _write_flight_on_signal()
    finally:
        _Moment.hears_signal = False


def _write_flight_on_signal() -> None:
    """Write the record and log its place; the lock is held, and let go of."""
    try:
        path = _write_flight("SIGUSR2")
    except RuntimeFailure as error:
        _log.warning("%s", error)
    else:
        _log.warning("flight record: %s", path or "none is wanted, WEFT_FLIGHT_DIR is empty")
    finally:
        _writing.release()


def _identity() -> tuple[str, int]:
    """Name of the job, fit for a file name, and the rank of this process in it."""
    from weft.runtime.bootstrap.environment import find_place

    try:
        place = find_place()
    except InputError:
        return "none", 0
    return _shorten(_NOT_A_NAME.sub("-", place.job)) or "none", place.rank


def _shorten(job: str) -> str:
    """A name of a job that is not too long: of a longer one both ends, and what no other has between them.

    The end tells which attempt of a job it is, where the launcher starts it again.
    """
    if len(job) <= _LONGEST_JOB:
        return job
    middle = f"-{hashlib.sha256(job.encode()).hexdigest()[:8]}-"
    end = (_LONGEST_JOB - len(middle)) // 2
    return job[: _LONGEST_JOB - len(middle) - end] + middle + job[-end:]


def _encode(record: FlightRecord) -> bytes:
    """The record as JSON of bounded size: the oldest operations are left out where it is too long."""
    data = msgspec.json.encode(record)
    keep = KEPT_OPERATIONS
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
    import tempfile  # not at the top: few ranks ever write a record

    handle, name = tempfile.mkstemp(prefix=".flight-", dir=path.parent)  # mode 600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
