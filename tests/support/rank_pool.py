"""Starts ranks quickly: a process that has imported what they need, torch if wanted, forks one for each.

Importing torch takes seconds of processor time, and the tests need thousands of ranks. Each rank is a process
of its own nevertheless, with its own output, variables, limits and, if wanted, network namespace.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

_TESTS = Path(__file__).resolve().parents[1]
_STARTING_S = 120.0
_MODULES = ("numpy", "scipy.optimize", "pytest", "weft.runtime.start", "weft.planning")
_TORCH_MODULES = ("weft.torch", "torch._dynamo")  # every optimizer of torch imports the latter, for a second


class PooledRank:
    """A rank that a pool has started; it is used like a `subprocess.Popen` in text mode."""

    def __init__(self, args: list[str], stdin: IO[str] | None, stdout: IO[str] | None) -> None:
        self.args = args
        self.pid = 0
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self.started, self._ended = threading.Event(), threading.Event()
        self._output = b""

    def end(self, code: int) -> None:
        """Take note of its end."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def ends_within(self, seconds: float) -> bool:
        """Return whether it ends within so many seconds."""
        return self._ended.wait(seconds)

    def send_signal(self, sign: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, words: str | None = None, timeout: float | None = None) -> tuple[str, None]:
        """Write to its standard input, read its output to the end, and wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError):
                self.stdin.write(words or "")
                self.stdin.close()
        if self.stdout is not None and not self.stdout.closed:
            self._read_all(deadline, timeout)
            self.stdout.close()
        self.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))
        return self._output.decode(errors="replace"), None

    def _read_all(self, deadline: float | None, timeout: float | None) -> None:
        assert self.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if not selector.select(left):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0, self._output)
                data = os.read(self.stdout.fileno(), 1 << 16)
                if not data:
                    return
                self._output += data


class RankPool:
    """Starts ranks; those that are still there at the end are killed.

    Parameters
    ----------
    torch
        Whether ranks need torch.
    """

    def __init__(self, *, torch: bool = False) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        modules = [*_MODULES, *(_TORCH_MODULES if torch else ())]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.rank_server", str(theirs.fileno()), *modules],
                env=os.environ
                | {"PYTHONPATH": str(_TESTS), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock, self._ranks = threading.Lock(), dict[int, PooledRank]()
        self._orders = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        program: Path | str,
        words: Sequence[str] = (),
        *,
        folder: Path | None = None,
        variables: dict[str, str] | None = None,
        stdin: int | None = None,
        output: int | None = subprocess.PIPE,
        network: str = "",
        limits: dict[str, int] | None = None,
        finalise: bool = False,
    ) -> PooledRank:
        """Start a rank.

        Parameters
        ----------
        program
            A script, or the name of a module.
        words
            Its arguments.
        folder
            Where it runs.
        variables
            The whole of its environment; that of this process if not given.
        stdin
            `subprocess.PIPE`, or nothing can be read from it.
        output
            A file, or a pipe, for both its standard output and its errors.
        network
            Name of a network namespace.
        limits
            Of `resource`, by name, such as ``{"RLIMIT_NOFILE": 30}``.
        finalise
            Whether the interpreter is taken apart at the end, as that of a program is.
        """
        reading, writing = os.pipe() if output == subprocess.PIPE else (-1, os.dup(output or 2))
        hearing, saying = os.pipe() if stdin == subprocess.PIPE else (os.open(os.devnull, os.O_RDONLY), -1)
        rank = PooledRank(
            [str(program), *words],
            os.fdopen(saying, "w") if saying >= 0 else None,
            os.fdopen(reading, encoding="utf-8", errors="replace") if reading >= 0 else None,
        )
        with self._lock:
            self._orders += 1
            self._ranks[self._orders] = rank
            order: dict[str, Any] = {
                "number": self._orders,
                "program": str(program),
                "words": list(words),
                "folder": str(folder or Path.cwd()),
                "variables": dict(os.environ if variables is None else variables),
                "network": network,
                "limits": limits or {},
                "finalise": finalise,
            }
            socket.send_fds(self._control, [json.dumps(order).encode()], [hearing, writing, writing])
        os.close(hearing)
        os.close(writing)
        if not rank.started.wait(_STARTING_S):
            msg = f"the pool of ranks does not answer; its exit code is {self._process.poll()}"
            raise AssertionError(msg)
        return rank

    def close(self) -> None:
        """End the pool, and with it every rank that is left."""
        self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        self._control.close()

    def _read(self) -> None:
        while data := self._receive():
            facts = json.loads(data)
            with self._lock:
                if "started" in facts:
                    rank = self._ranks[facts["number"]]
                    rank.pid = facts["started"]
                    rank.started.set()
                else:
                    self._ranks.pop(facts["number"]).end(facts["ended"])

    def _receive(self) -> bytes:
        try:
            return self._control.recv(1 << 16)
        except ConnectionResetError:  # the process behind the pool has ended; `start` says so
            return b""


@functools.cache
def pool(*, torch: bool) -> RankPool:
    """Return the pool of this process, which is started when it is first needed."""
    found = RankPool(torch=torch)
    atexit.register(found.close)
    return found
