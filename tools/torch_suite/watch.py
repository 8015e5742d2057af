"""Runs tests in a process that is watched: what hangs or dies ends one test, and the rest go on.

What came of the tests is in the journal, whatever happens to this process: a run that was stopped can go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from torch_suite.outcomes import Entry, Outcome, outcomes_of, read_journal, write_entry
from torch_suite.worker import LIST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE_S: Final = 45.0
"""How long beyond its limit a test may take to end by itself, with the stacks of its ranks in the log."""

START_S: Final = 300.0
"""How long it may take to load torch and its tests: in the worker, and in the server that forks ranks."""

_LOOK_S: Final = 0.2


@dataclass(frozen=True)
class Setting:
    """What tests are run with."""

    backend: str
    ranks: int
    limit_s: int
    """How long a test may take."""
    journal: Path
    log: Path
    command: tuple[str, ...] = (sys.executable, "-m", "torch_suite.worker")

    def environment(self) -> dict[str, str]:
        """Environment of the worker; its ranks take it over."""
        own = {
            "BACKEND": self.backend,
            "WORLD_SIZE": str(self.ranks),
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(self.limit_s),
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "OMP_NUM_THREADS": "1",  # several ranks share the processors
            "WEFT_FLIGHT_DIR": str(self.journal.parent),  # some tests fail on purpose
        }
        return {**os.environ, **own}


def list_tests(setting: Setting) -> list[str]:
    """Names of all tests there are.

    Raises
    ------
    RuntimeError
        If they cannot be loaded.
    """
    done = subprocess.run(
        [*setting.command, LIST],
        env=setting.environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    if done.returncode:
        msg = f"torch's tests cannot be loaded with backend {setting.backend}:\n{done.stderr[-3000:]}"
        raise RuntimeError(msg)
    return done.stdout.split()


class Watch:
    """Runs tests until all are over or the time is up.

    Parameters
    ----------
    setting
        What they are run with.
    tests
        Which.
    tell
        Called with a line for each test that is over.
    """

    def __init__(self, setting: Setting, tests: Sequence[str], tell: Callable[[str], None]) -> None:
        self._setting, self._tests, self._tell = setting, list(tests), tell
        self._told: set[str] = set()

    def run(self, minutes: float, usual: Mapping[str, float]) -> dict[str, Outcome]:
        """Run what the journal does not have yet, for so many minutes at most.

        Parameters
        ----------
        minutes
            What is not over by then is not in the journal: it is run again when the run goes on.
        usual
            Seconds that tests take, as far as known, to say how long the rest will.
        """
        deadline = time.monotonic() + 60 * minutes
        self._told = set(self._outcomes())
        pace = Pace(usual)
        while (left := self._left()) and time.monotonic() < deadline:
            with self._setting.log.open("ab") as log:
                worker = self._start(left, log)
            try:
                self._follow(worker, deadline, pace)
            finally:
                _end(worker)
        return self._outcomes()

    def _outcomes(self) -> dict[str, Outcome]:
        wanted = set(self._tests)
        found = outcomes_of(read_journal(self._setting.journal))
        return {test: outcome for test, outcome in found.items() if test in wanted}

    def _left(self) -> list[str]:
        over = self._outcomes()
        return [test for test in self._tests if test not in over]

    def _start(self, tests: Sequence[str], log: BinaryIO) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [*self._setting.command, str(self._setting.journal)],
            env=self._setting.environment(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert worker.stdin is not None
        with suppress(BrokenPipeError):
            worker.stdin.write("\n".join(tests))
            worker.stdin.close()
        return worker

    def _follow(self, worker: subprocess.Popen[str], deadline: float, pace: Pace) -> None:
        """Follow the journal until the worker ends or must be ended."""
        limit = self._setting.limit_s + GRACE_S
        first, current, since = True, None, time.monotonic()
        while True:
            ended = worker.poll() is not None
            running = self._tell_news(pace)
            now = time.monotonic()
            if running != current:
                first, current, since = first and current is None, running, now
            allowed = limit + (START_S if first else 0.0)
            if ended or now - since > allowed:
                reason = (
                    f"the worker ended with {worker.poll()}" if ended else f"no end within {allowed:.0f} s"
                )
                if current is not None or not ended:
                    self._blame(current or self._left()[0], now - since, reason)
                    self._tell_news(pace)
                elif self._left() and worker.returncode:
                    msg = f"the worker cannot start, see {self._setting.log}"
                    raise RuntimeError(msg)
                return
            if now > deadline:
                return
            time.sleep(_LOOK_S)

    def _blame(self, test: str, seconds: float, reason: str) -> None:
        write_entry(self._setting.journal, Entry(test, Outcome("failed", round(seconds, 1), reason)))

    def _tell_news(self, pace: Pace) -> str | None:
        """Tell what is over; the test that runs now."""
        entries = read_journal(self._setting.journal)
        over = self._outcomes()
        for test, outcome in over.items():
            if test not in self._told:
                self._told.add(test)
                pace.add(test, outcome.seconds)
                left = pace.minutes([one for one in self._tests if one not in over])
                why = f": {outcome.reason}" if outcome.result == "failed" else ""
                place = f"[{len(self._told)}/{len(self._tests)}]"
                self._tell(
                    f"{place} {outcome.result} {test} {outcome.seconds:.1f} s{why}; {left:.0f} min to go"
                )
        last = entries[-1] if entries else None
        return last.test if last is not None and last.outcome is None else None


class Pace:
    """How long the rest will take, from what tests usually take and how these went.

    Examples
    --------
    >>> pace = Pace({"test_a": 10.0, "test_b": 30.0})
    >>> pace.add("test_a", 20.0)
    >>> pace.minutes(["test_b"])
    1.0
    """

    def __init__(self, usual: Mapping[str, float]) -> None:
        self._usual = usual
        self._mean = sum(usual.values()) / len(usual) if usual else 2.0
        self._taken = self._foreseen = 0.0

    def add(self, test: str, seconds: float) -> None:
        """Note what a test took."""
        self._taken += seconds
        self._foreseen += self._usual.get(test, self._mean)

    def minutes(self, tests: Sequence[str]) -> float:
        """Minutes that tests will take."""
        ratio = self._taken / self._foreseen if self._foreseen else 1.0
        return ratio * sum(self._usual.get(test, self._mean) for test in tests) / 60


def _end(worker: subprocess.Popen[str]) -> None:
    """End the worker and every process that it has started: they are a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
