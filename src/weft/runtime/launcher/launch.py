"""Start the ranks of a job on this machine, carry their output, and leave nothing behind.

Each rank is a process group of its own. The launcher waits for output, ends and signals in one loop, without
threads. When a rank fails, or the launcher is told to stop, the others are asked to end (SIGTERM, or the
signal that came) and killed when they have not within `GRACE_S`. If the rank that failed names another one,
the others have a moment to report what they know, and `weft.runtime.launcher.first_failure` judges. A
launcher that is killed itself cannot do any of that: `weft.runtime.launcher.watchdog` sees to it then.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final, NoReturn, Self

from weft import limits
from weft.errors import InputError, RuntimeFailure
from weft.runtime.bootstrap.environment import LOOPBACK, SECRET_BYTES
from weft.runtime.bootstrap.meeting_point import reserve_port
from weft.runtime.extension import require_runtime
from weft.runtime.launcher import failure_reports
from weft.runtime.launcher.failure_reports import ReportPipe
from weft.runtime.launcher.first_failure import RankResult, find_first_failure, is_settled
from weft.runtime.launcher.rank_output import RankOutput
from weft.runtime.launcher.tracebacks import TracebackCount, TracebackFilter
from weft.runtime.launcher.watchdog import Watchdog, before_exec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from weft.runtime.launcher.first_failure import FirstFailure

GRACE_S: Final = 4.0
"""From the first failure, or from being told to stop, to killing: together, five seconds at most."""

REPORT_S: Final = 1.0
"""How long other ranks may still report why they fail, where that says which rank failed first."""

SETTLE_S: Final = 0.3
"""How long ranks that lose another one have to notice that and to write their flight records."""

_READ_BYTES: Final = 64 << 10
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNAL_BASE: Final = 128
"""Exit codes above this stand for a signal."""


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Parameters
    ----------
    results
        How each rank ended.
    failure
        Why it failed, if it did before it was told to stop.
    signal
        The signal that told it to stop.
    """

    results: tuple[RankResult, ...]
    failure: FirstFailure | None
    signal: int | None

    @property
    def first_failure(self) -> int | None:
        """The rank that failed first; None if none failed, or if nobody can tell which one did."""
        ranks = () if self.failure is None else self.failure.ranks
        return ranks[0] if len(ranks) == 1 else None

    @property
    def exit_code(self) -> int:
        """0, or that of the first failure, or that of the signal."""
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if self.signal is None else SIGNAL_BASE + self.signal


@dataclass(frozen=True)
class Seat:
    """Where one rank is started, if not just here.

    Parameters
    ----------
    prefix
        Stands before its command.
    variables
        Environment on top of what all ranks have.
    host
        A name, the same for ranks that are started in the same place.
    """

    prefix: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    host: str = ""


def launch(
    command: Sequence[str],
    ranks: int,
    *,
    out: IO[bytes],
    err: IO[bytes],
    seats: Sequence[Seat] | None = None,
    marked: bool = True,
    attempt: int = 0,
    keep_going: bool = False,
) -> JobResult:
    """Run `command` once per rank, and return when all of it has ended.

    Parameters
    ----------
    command
        Program and words; found as a shell would find it.
    ranks
        How many.
    out, err
        Where the ranks' standard output and error go, each line with its rank in front.
    seats
        One for each rank; by default all are started here.
    marked
        Whether lines have the rank in front, and tracebacks that follow from or repeat another's are cut.
    attempt
        How often this job was started before.
    keep_going
        Whether the others go on when a rank fails, as they can after `weft.Communicator.shrink`. The job has
        then failed only if no rank ended well.

    Raises
    ------
    InputError
        The command cannot be started, or `weft._runtime` is not there.
    """
    require_runtime()
    if ranks < 1:
        raise InputError(f"{ranks} ranks: a job has at least one")
    limits.check("ranks on one machine", ranks, limits.MAX_LOCAL_RANKS)
    holder, port = reserve_port(LOOPBACK)
    with holder:
        other_holder, torch_port = reserve_port(LOOPBACK)
        with other_holder, _Job(ranks, out, err, marked=marked, keep_going=keep_going) as job:
            variables = job_variables(ranks, port, attempt) | _torch_variables(ranks, torch_port)
            job.start(command, variables, seats or [Seat()] * ranks)
            return job.run()


def job_variables(ranks: int, port: int, attempt: int = 0) -> dict[str, str]:
    """Environment that the ranks share: this process's own, with a job and a secret made for this run."""
    variables = dict(os.environ)
    for name in ("WEFT_SECRET_FILE", failure_reports.VARIABLE):
        variables.pop(name, None)
    variables.setdefault("PYTHONUNBUFFERED", "1")  # the output of a rank that is killed is not lost
    return variables | {
        "WEFT_LAUNCHER": "weft",
        "WEFT_SIZE": str(ranks),
        "WEFT_LOCAL_SIZE": str(ranks),
        "WEFT_ADDRESS": LOOPBACK,
        "WEFT_PORT": str(port),
        "WEFT_ATTEMPT": str(attempt),
        "WEFT_JOB": secrets.token_hex(8),
        "WEFT_SECRET": secrets.token_hex(SECRET_BYTES),
    }


def _torch_variables(ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells its ranks, for scripts that read it, as ``env://`` of torch.distributed does.

    The port is for torch's store. Weft reads its own variables before these, so its ranks meet with their
    secret.
    """
    size = str(ranks)
    return {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
    }


class _Rank:
    """One rank under way."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.process = process
        self.pidfd: int | None = None
        self.started = time.monotonic()
        self.result = RankResult(rank, process.pid)

    def close(self) -> None:
        """Close what tells of its end."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def signal_group(self, number: int) -> None:
        """Signal the rank and its children; its own number cannot have been reused before it is reaped."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Job:
    """All ranks of a job; whatever happens, none of them is left when it is over."""

    def __init__(self, ranks: int, out: IO[bytes], err: IO[bytes], *, marked: bool, keep_going: bool) -> None:
        self._keep_going = keep_going
        self._marked = marked
        self._tracebacks = TracebackCount()
        self._size = ranks
        self._out = out
        self._err = err
        self._ranks: list[_Rank] = []
        self._running: set[int] = set()
        self._ends: list[RankResult] = []
        self._failure: FirstFailure | None = None
        self._signal: int | None = None
        self._stopped = False
        self._settle_at: float | None = None
        self._judge_at: float | None = None
        self._kill_at: float | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        self._selector = self._resources.enter_context(selectors.DefaultSelector())
        self._keeper = self._resources.enter_context(Watchdog())
        self._reports = ReportPipe()
        self._resources.callback(self._reports.close)
        self._selector.register(self._reports, selectors.EVENT_READ)
        self._resources.callback(self._end_everything)
        self._wake_on_signals()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _wake_on_signals(self) -> None:
        """Signals end the selector's wait through a pipe, so that none is lost between two waits."""
        reader, writer = os.pipe()
        self._resources.callback(os.close, reader)
        self._resources.callback(os.close, writer)
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._resources.callback(signal.set_wakeup_fd, before)
        # Where it is ignored, as some daemons leave it, nobody could ask how a rank ended.
        self._resources.callback(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_DFL))
        for number in _STOPPING:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # under nohup, say
            self._resources.callback(signal.signal, number, signal.signal(number, self._hear_signal))
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            # For the ranks, which write their flight records; a signal by name also reaches this process.
            ignored = signal.signal(signal.SIGUSR2, lambda *_: None)
            self._resources.callback(signal.signal, signal.SIGUSR2, ignored)
        self._selector.register(reader, selectors.EVENT_READ, None)

    def _hear_signal(self, number: int, _frame: FrameType | None) -> None:
        # Here and not in the loop, which may be blocked because the output is not read.
        if self._signal is not None:
            self._signal_running(signal.SIGKILL)
            raise KeyboardInterrupt
        self._signal = number
        self._stop(number)

    def start(self, command: Sequence[str], variables: Mapping[str, str], seats: Sequence[Seat]) -> None:
        """Start every rank."""
        prepare = before_exec()
        for rank, seat in enumerate(seats):
            own = {name: str(rank) for name in ("WEFT_RANK", "WEFT_LOCAL_RANK", "RANK", "LOCAL_RANK")}
            own |= seat.variables
            own[failure_reports.VARIABLE] = self._reports.address
            try:
                process = subprocess.Popen(
                    [*seat.prefix, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**variables, **own},
                    pass_fds=(self._reports.writer,),
                    start_new_session=True,
                    preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._refuse(command[0], error)
            self._add(rank, process)
            if self._signal is not None:
                self._signal_running(self._signal)  # this rank was not there yet when it came
                break
        self._reports.close_writer()

    def _refuse(self, program: str, error: Exception) -> NoReturn:
        if isinstance(error, BlockingIOError):
            msg = f"rank {len(self._ranks)} cannot be started: {error.strerror}; try fewer ranks"
            raise RuntimeFailure(msg) from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{program}: cannot be started: {reason}") from error

    def _add(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        started = _Rank(rank, process)
        self._ranks.append(started)
        self._running.add(rank)
        self._keeper.add(process.pid)
        started.pidfd = os.pidfd_open(process.pid)
        self._selector.register(started.pidfd, selectors.EVENT_READ, started)
        assert process.stdout is not None
        assert process.stderr is not None
        shown, tracebacks = (rank, TracebackFilter(self._tracebacks, rank)) if self._marked else (None, None)
        for output in (
            RankOutput(process.stdout, self._out, shown),
            RankOutput(process.stderr, self._err, shown, tracebacks),
        ):
            self._selector.register(output, selectors.EVENT_READ)

    def run(self) -> JobResult:
        """Carry output until every rank has ended; one signal ends them all, and as a rule one failure."""
        while self._running:
            self._serve(self._time_left())
            now = time.monotonic()
            if not self._stopped and not self._keep_going:
                self._judge(now)
            if self._kill_at is not None and now >= self._kill_at:
                self._signal_running(signal.SIGKILL)
                self._kill_at = None
        for rank in self._ranks:
            rank.signal_group(signal.SIGKILL)  # children that it has not ended
        self._drain()
        results = tuple(rank.result for rank in self._ranks)
        # All have ended by themselves, of those that were not to go on perhaps before one was judged.
        if not self._stopped and (not self._keep_going or all(one.exit_code for one in results)):
            self._failure = find_first_failure(self._ends, self._reports.latest)
        return JobResult(results, self._failure, self._signal)

    def _time_left(self) -> float | None:
        times = (self._settle_at, self._judge_at, self._kill_at)
        alarms = [alarm for alarm in times if alarm is not None]
        return max(0.0, min(alarms) - time.monotonic()) if alarms else None

    def _serve(self, wait_s: float | None) -> None:
        ended: list[_Rank] = []
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.fileobj, RankOutput):
                self._carry(key.fileobj)
            elif isinstance(key.data, _Rank):
                ended.append(key.data)
            elif key.fileobj is self._reports:
                self._take_reports()
            else:
                with suppress(BlockingIOError):
                    os.read(key.fd, _READ_BYTES)
        for rank in ended:
            self._note_end(rank)
        if ended and not self._stopped:
            self._take_reports()  # what they said before they ended
            self._ends += sorted((rank.result for rank in ended), key=lambda end: end.rank)

    def _take_reports(self) -> None:
        if not self._reports.read() and self._reports in self._selector.get_map():
            self._selector.unregister(self._reports)

    def _carry(self, lines: RankOutput) -> None:
        if not lines.carry():
            self._selector.unregister(lines)
            lines.source.close()

    def _note_end(self, rank: _Rank) -> None:
        """Write down how a rank ended, but leave it unreaped: that keeps its number from being reused."""
        found = os.waitid(os.P_PID, rank.process.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        by_signal = found.si_code != os.CLD_EXITED
        rank.result.signal = found.si_status if by_signal else None
        rank.result.exit_code = found.si_status + (SIGNAL_BASE if by_signal else 0)
        rank.result.wall_seconds = time.monotonic() - rank.started
        rank.result.stopped = self._stopped
        self._running.discard(rank.rank)
        assert rank.pidfd is not None
        self._selector.unregister(rank.pidfd)
        rank.close()

    def _judge(self, now: float) -> None:
        """Stop the job once a rank has failed, and it is known or cannot be known which one was first."""
        found = find_first_failure(self._ends, self._reports.latest)
        if found is None:
            return
        if self._judge_at is None:
            self._settle_at, self._judge_at, self._kill_at = now + SETTLE_S, now + REPORT_S, now + GRACE_S
        if self._settle_at is not None and now >= self._settle_at:
            self._settle_at = None
        reports = self._reports.latest
        heard = self._settle_at is None and (not reports or self._running <= reports.keys())
        if now >= self._judge_at or (heard and is_settled(found, self._running, reports)):
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        """Ask all ranks to end; what they do and report from here on is a consequence of that."""
        if not self._stopped:
            self._stopped, self._settle_at, self._judge_at = True, None, None
            self._failure = find_first_failure(self._ends, self._reports.latest)
        self._signal_running(number)
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S

    def _signal_running(self, number: int) -> None:
        for rank in self._ranks:
            if rank.rank in self._running:
                rank.signal_group(number)

    def _drain(self) -> None:
        """Carry what the ended ranks had still written."""
        for key in self._selector.get_map().values():
            if isinstance(key.fileobj, RankOutput):
                key.fileobj.finish()

    def _end_everything(self) -> None:
        """Whatever happened: kill, reap and close."""
        for rank in self._ranks:
            rank.signal_group(signal.SIGKILL)
            rank.process.wait()
            self._keeper.remove(rank.process.pid)
            rank.close()
            for source in (rank.process.stdout, rank.process.stderr):
                assert source is not None
                source.close()
