"""Names of namespaces, by which those of this process are told from others', and leftovers are found.

``weftlab-PID-START-NUMBER-SPACE``: the process that made it, when that was started, so that another one with
the same number is not mistaken for it, and which of its networks it belongs to.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from weft.errors import RuntimeFailure
from weft.lab.iproute import ip

_NAME: Final = re.compile(r"weftlab-([0-9]{1,10})-([0-9]{1,20})-[0-9]{1,6}-[hsf][0-9]{1,6}")
_NUMBER: Final = count()
_START_FIELD: Final = 19
"""In ``/proc/PID/stat``, counted from behind the name."""

_PATIENCE_S: Final = 2.0
_QUIET_LOOKS: Final = 3
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def new_prefix() -> str:
    """Start of the names of one network."""
    return f"weftlab-{os.getpid()}-{_start_of(os.getpid())}-{next(_NUMBER)}"


def _status(pid: int) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from behind the name; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _start_of(pid: int) -> str | None:
    """Clock ticks from the machine's start to the process's; None if there is no such process."""
    status = _status(pid)
    return None if status is None else status[_START_FIELD]


def find_leftovers() -> list[str]:
    """Namespaces of labs whose makers are gone."""
    return [name for name in _names() if _is_left(name)]


def _is_left(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and _start_of(int(match[1])) != match[2]


def make_folder(prefix: str) -> Path:
    """A folder for one network's files; those that killed labs left are removed."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob("weftlab-*-f0"):
        if _is_left(old.name) and not old.is_symlink() and old.stat().st_uid == os.geteuid():
            shutil.rmtree(old, ignore_errors=True)
    folder = parent / f"{prefix}-f0"
    folder.mkdir(mode=0o755)
    return folder


def remove(spaces: list[str]) -> None:
    """End what runs in namespaces of a lab, and remove them; another lab may be about to do the same.

    Nothing can interrupt this: who presses Ctrl-C twice wants it gone, not left.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        _end_processes(spaces)
        for space in spaces:
            try:
                ip("netns", "del", space)
            except RuntimeFailure:
                if space in _names():
                    raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_processes(spaces: list[str]) -> None:
    """Ask them to end, then kill them; looks again each time, for they may start others meanwhile.

    One look may miss a process that has just started another and ended, so several must find nothing.
    """
    deadline = time.monotonic() + _PATIENCE_S
    number = signal.SIGTERM
    quiet = 0
    while quiet < _QUIET_LOOKS:
        inside = [pid for space in spaces for pid in _processes(space) if not _is_zombie(pid)]
        quiet = 0 if inside else quiet + 1
        for pid in inside:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline + _PATIENCE_S:
            raise RuntimeFailure(f"processes {inside[:8]} in the lab's namespaces cannot be killed")
        if inside:
            time.sleep(0.02)
        if time.monotonic() > deadline:
            number = signal.SIGKILL


def _names() -> list[str]:
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line.split()]


def _processes(space: str) -> list[int]:
    try:
        return [int(word) for word in ip("netns", "pids", space).split()]
    except RuntimeFailure:
        if space in _names():
            raise
        return []


def _is_zombie(pid: int) -> bool:
    status = _status(pid)
    return status is None or status[0] == "Z"
