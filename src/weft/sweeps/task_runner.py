"""Run the tasks of a sweep on an executor: some ahead, collected in order, ended together.

Whatever ends a sweep early (an error, Ctrl-C, a deadline) ends its tasks too: those that wait are cancelled,
or an executor with a method `abandon` is told to end those under way as well.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import _core
from weft.errors import InputError, RuntimeFailure, TimedOut, WeftError
from weft.sweeps.task_text import SweepTask, read_reply, run_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor

AHEAD: Final = 256
"""Tasks that are handed to an executor before the first of them is collected."""

_PATIENCE_S: Final = 0.2
"""How often it is asked whether to stop."""

_DIED: Final = "its process died, or that of a task beside it; run it by itself to see why"
_ERRORS: Final = {1: WeftError, 2: InputError, 3: RuntimeFailure}


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of a task.

    Parameters
    ----------
    task
        The task.
    text
        JSON of its function; None if it failed.
    problem, exit_code
        Why it failed, and the exit code for that; empty and 0 if it did not.
    """

    task: SweepTask
    text: str | None
    problem: str = ""
    exit_code: int = 0

    def require(self) -> str:
        """Give the text.

        Raises
        ------
        WeftError
            If the task failed; names the point. Bad input is an `InputError`, a worker that died a
            `RuntimeFailure`.
        """
        if self.text is None:
            raise _ERRORS.get(self.exit_code, WeftError)(f"{self.task.point}: {self.problem}")
        return self.text


def run_tasks(
    tasks: Sequence[SweepTask],
    executor: Executor | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    *,
    ahead: int = AHEAD,
    deadline_s: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Run all tasks and give their texts, in order; the first one that fails ends them all.

    Parameters
    ----------
    tasks, executor, progress, ahead, deadline_s, stopped
        As for `stream_tasks`.

    Raises
    ------
    WeftError
        If a task fails: as of `TaskOutcome.require`.
    TimedOut, KeyboardInterrupt
        As for `stream_tasks`.
    """
    stream = stream_tasks(
        tasks,
        executor,
        progress,
        ahead=ahead,
        deadline_s=deadline_s,
        stopped=stopped,
        all_or_none=True,
    )
    with closing(stream):
        return [outcome.require() for outcome in stream]


def stream_tasks(
    tasks: Sequence[SweepTask],
    executor: Executor | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    *,
    ahead: int = AHEAD,
    deadline_s: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    until: Callable[[], bool] = lambda: False,
    all_or_none: bool = False,
) -> Generator[TaskOutcome, None, None]:
    """Give the outcome of every task, in order, each as soon as those before it are there.

    Parameters
    ----------
    tasks
        What to run.
    executor
        Any of `concurrent.futures`; None runs them here, one after the other.
    progress
        Called as ``progress(text, done, total)``.
    ahead
        Tasks that are under way or done before the first of them is collected: a bound of the memory that
        they take.
    deadline_s
        Seconds of wall-clock time that all of them may take; None for no limit.
    stopped
        Asked several times a second whether to give up.
    until
        Asked as often whether to end without an error: no further outcomes are given then.
    all_or_none
        Whether a task that fails ends them all, also before those in front of it are done.

    Raises
    ------
    WeftError
        If a task fails and `all_or_none` is set: as of `TaskOutcome.require`.
    TimedOut
        If they are not done within `deadline_s`; says how many are.
    KeyboardInterrupt
        If `stopped` says so.
    """
    if deadline_s is not None and not deadline_s > 0:
        raise InputError(f"a deadline of {deadline_s} seconds: give more than 0, or None for none")
    run = _Run(tasks, progress, deadline_s, stopped, until)
    outcomes = run.here() if executor is None else run.on(executor, max(ahead, 1), all_or_none=all_or_none)
    yield from outcomes


class _Run:
    """One sweep: how far it is, and when it has to end."""

    def __init__(
        self,
        tasks: Sequence[SweepTask],
        progress: Callable[[str, int, int], None] | None,
        deadline_s: float | None,
        stopped: Callable[[], bool],
        until: Callable[[], bool],
    ) -> None:
        self.tasks, self.progress, self.deadline_s = tasks, progress, deadline_s
        self.stopped, self.until = stopped, until
        self.began = time.monotonic()

    def report(self, done: int) -> None:
        """Say how far it is, and end it if it has to."""
        total = len(self.tasks)
        if self.progress is not None:
            self.progress(f"{done:,} of {total:,} points", done, total)
        if self.stopped():
            raise KeyboardInterrupt
        if self.deadline_s is not None and done < total and time.monotonic() - self.began > self.deadline_s:
            hint = f"{done:,} of {total:,} points are done; give it more time, or more workers"
            raise TimedOut("sweep", self.deadline_s, hint=hint)

    def here(self) -> Iterator[TaskOutcome]:
        """Run them in this process."""
        for done, task in enumerate(self.tasks):
            self.report(done)
            if self.until():
                return
            yield _read(task, run_text(_core.version(), task.function, task.text))
        self.report(len(self.tasks))

    def on(self, executor: Executor, ahead: int, *, all_or_none: bool) -> Iterator[TaskOutcome]:
        """Run them on an executor."""
        waiting: deque[tuple[SweepTask, Future[str]]] = deque()
        following, collected = iter(self.tasks), 0
        has_failed = True
        try:
            self.report(0)
            while True:
                while len(waiting) < ahead and (task := next(following, None)) is not None:
                    waiting.append((task, _submit(executor, task)))
                if not waiting or self.until():
                    break
                wait([future for _, future in waiting if not future.done()], _PATIENCE_S, FIRST_COMPLETED)
                done = [(task, future) for task, future in waiting if future.done()]
                self.report(collected + len(done))
                if all_or_none:
                    for task, future in done:
                        _collect(task, future).require()
                while waiting and waiting[0][1].done():
                    collected += 1
                    yield _collect(*waiting.popleft())
            has_failed = False
        except GeneratorExit:
            has_failed = False
            raise
        finally:
            _end(executor, [future for _, future in waiting if not future.done()], has_failed=has_failed)


def _submit(executor: Executor, task: SweepTask) -> Future[str]:
    try:
        return executor.submit(run_text, _core.version(), task.function, task.text)
    except BrokenExecutor as error:
        broken: Future[str] = Future()
        broken.set_exception(error)
        return broken


def _collect(task: SweepTask, future: Future[str]) -> TaskOutcome:
    """Outcome of a future that is done."""
    code = RuntimeFailure.exit_code
    try:
        return _read(task, future.result())
    except RuntimeFailure as error:
        return TaskOutcome(task, None, str(error), code)
    except BrokenExecutor:
        return TaskOutcome(task, None, _DIED, code)
    except CancelledError:
        return TaskOutcome(task, None, "the executor cancelled it; its workers may be gone", code)
    except Exception as error:  # noqa: BLE001 - every executor has exceptions of its own for lost workers
        return TaskOutcome(task, None, f"{_DIED} ({type(error).__name__}: {error})", code)


def _read(task: SweepTask, text: object) -> TaskOutcome:
    reply = read_reply(text)
    return TaskOutcome(task, reply.result, reply.problem, reply.exit_code)


def _end(executor: Executor, futures: list[Future[str]], *, has_failed: bool) -> None:
    """End what is not done.

    An executor with a method `abandon` drops waiting tasks itself when it is closed; after a failure it is
    told to end those under way at once.
    """
    if not hasattr(executor, "abandon"):
        for future in futures:
            future.cancel()
    elif futures and has_failed:
        abandon(executor)


def abandon(executor: Executor) -> None:
    """End at once what an executor runs, if it can do that; it is of no further use then."""
    end = getattr(executor, "abandon", None)
    if end is not None:
        end()
