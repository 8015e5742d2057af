"""Starts ranks quickly: a process that has imported everything forks one for each.

Importing torch takes seconds of processor time, and a matrix of faults needs thousands of ranks. Each rank is
a process of its own nevertheless, with its own output, variables, limits and, if wanted, network namespace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_TESTS = Path(__file__).resolve().parents[2]


class Rank:
    """A rank that a nursery has started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = threading.Event()
        self.code: int | None = None

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        return self.ended.wait(seconds)


class Nursery:
    """Starts ranks; those that are still there at the end are killed.

    Parameters
    ----------
    torch
        Whether ranks need torch.
    """

    def __init__(self, *, torch: bool = False) -> None:
        variables = {"PYTHONPATH": str(_TESTS), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.faults.forks", *(["weft.torch"] if torch else [])],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock, self._ranks = threading.Lock(), dict[int, Rank]()
        self._started: dict[int, Rank] = {}
        self._orders = 0
        self._answered = threading.Condition(self._lock)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, folder: Path, rank: int, **options: Any) -> Rank:
        """Start the program of a rank in a folder.

        Parameters
        ----------
        variables
            Added to the environment.
        network
            Name of a network namespace.
        limits
            Of `resource`, by name, such as ``{"RLIMIT_NOFILE": 30}``.
        """
        assert self._process.stdin is not None
        with self._answered:
            self._orders += 1
            order = {"order": self._orders, "folder": str(folder), "rank": rank, **options}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            if not self._answered.wait_for(lambda: order["order"] in self._started, 60):
                msg = "the nursery does not answer"
                raise AssertionError(msg)
            return self._started.pop(order["order"])

    def close(self) -> None:
        """End the nursery, and with it every rank that is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._answered:
                if "started" in said:
                    self._ranks[said["started"]] = self._started[said["order"]] = Rank(said["started"])
                    self._answered.notify_all()
                else:
                    rank = self._ranks.pop(said["ended"])
                    rank.code = said["code"]
                    rank.ended.set()
