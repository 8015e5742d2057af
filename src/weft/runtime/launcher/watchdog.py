"""The watchdog: processes end with the one that started them, however that one ends.

A process that is killed cannot clean up. So the kernel is asked to kill each child when its parent dies, and
a second process, `weft.runtime.launcher.watchdog_process`, kills whatever these had started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from weft.runtime.launcher import watchdog_process

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG: Final = 1


class Watchdog:
    """The guard process, told which process groups to kill should this process be gone."""

    def __enter__(self) -> Self:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(watchdog_process.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._guard.stdin is not None
        self._guard.kill()
        self._guard.stdin.close()
        self._guard.wait()

    def add(self, group: int) -> None:
        """Kill this group, should this process be gone."""
        self._tell(f"+{group}")

    def remove(self, group: int) -> None:
        """Forget a group that has ended."""
        self._tell(f"-{group}")

    def add_folder(self, path: str) -> None:
        """Remove this directory, should this process be gone; an absolute path without line breaks."""
        assert path.startswith("/")
        self._tell(path)

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # it was killed: the kernel still kills the children
            self._guard.stdin.write(os.fsencode(f"{line}\n"))


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def before_exec() -> Callable[[], None]:
    """What a child does before it becomes its program: ask the kernel to kill it when this process dies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded here: a child that was just forked must not
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)

    return ask
