"""Names of namespaces, by which those of this process are told from others', and leftovers are found.

``weftlab-PID-START-NUMBER-SPACE``: the process that made it, when that was started, so that another one with
the same number is not mistaken for it, and which of its networks it belongs to.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from weft.errors import RuntimeFailure
from weft.lab.kernel import ip

_NAME: Final = re.compile(r"weftlab-([0-9]{1,10})-([0-9]{1,20})-[0-9]{1,6}-[hs][0-9]{1,6}")
_NUMBER: Final = count()
_START_FIELD: Final = 19
"""In ``/proc/PID/stat``, counted from behind the name."""

_PATIENCE_S: Final = 2.0


def new_prefix() -> str:
    """Start of the names of one network."""
    return f"weftlab-{os.getpid()}-{_start_of(os.getpid())}-{next(_NUMBER)}"


def _start_of(pid: int) -> str | None:
    """Clock ticks from the machine's start to the process's; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[_START_FIELD]


def find_leftovers() -> list[str]:
    """Namespaces of labs whose makers are gone."""
    found = []
    for name in _names():
        match = _NAME.fullmatch(name)
        if match is not None and _start_of(int(match[1])) != match[2]:
            found.append(name)
    return found


def remove(spaces: list[str]) -> None:
    """End what runs in namespaces of a lab, and remove them; another lab may be about to do the same."""
    inside = [pid for space in spaces for pid in _processes(space)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in inside:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + _PATIENCE_S
        while inside and time.monotonic() < deadline:
            time.sleep(0.02)
            inside = [pid for pid in inside if _start_of(pid) is not None and not _is_zombie(pid)]
    for space in spaces:
        try:
            ip("netns", "del", space)
        except RuntimeFailure:
            if space in _names():
                raise


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
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "Z"
    return True
