"""A rank that is killed or frozen while its job starts: what the others say, and when."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "runtime" / "jobs" / "dying_start.py"
UNKNOWN = ("knock", "handshake")
"""Phases in which a rank is not admitted yet: if it ends there, only the deadline can tell."""

Start = Callable[[Path, str, tuple[str, ...], dict[str, str]], list[subprocess.Popen[str]]]
"""Starts a script in a folder with words and variables, standard input being a pipe."""


@dataclass(frozen=True)
class Death:
    """Who ends, in which phase of the start, and how."""

    victim: int
    phase: str
    sign: str
    transport: str
    join_s: float = 4.0
    connect_s: float = 3.0


@dataclass(frozen=True)
class Ending:
    """What became of one start.

    Parameters
    ----------
    died
        Whether the victim came to the phase in which it ends.
    wrong
        What survivors said that did not name the victim, and it alone.
    seconds
        From the victim's end until the last survivor had raised its error.
    """

    died: bool
    wrong: list[str]
    seconds: float


def die(start: Start, death: Death) -> Ending:
    """Start a job whose victim ends itself."""
    words = (death.transport, str(death.join_s), str(death.connect_s))
    variables = {"DIES": f"{death.victim} {death.phase} {death.sign}"}
    with tempfile.TemporaryDirectory() as place:
        ranks = start(Path(place), SCRIPT.read_text("utf-8"), words, variables)
        try:
            for rank in ranks:
                assert rank.stdout is not None
                line = rank.stdout.readline()
                assert '"ready"' in line, line + rank.stdout.read()
            for rank in ranks:
                assert rank.stdin is not None
                rank.stdin.write("\n")
                rank.stdin.flush()
            survivors = [rank for number, rank in enumerate(ranks) if number != death.victim]
            wait_by = time.monotonic() + death.join_s + death.connect_s + 20
            said = [rank.communicate(timeout=max(0.1, wait_by - time.monotonic()))[0] for rank in survivors]
        finally:
            for rank in ranks:
                rank.kill()
            ends = [rank.communicate()[0] or "" for rank in ranks]
    stamps = [_read(line) for line in ends[death.victim].splitlines()]
    died = next((one["at"] for one in stamps if "dies" in one), None)
    found = [_read(text) for text in said]
    pid = ranks[death.victim].pid
    wrong = [text for text, one in zip(said, found, strict=True) if not _names(one, death, pid)]
    seconds = max(one.get("at", float("inf")) for one in found) - (died or 0.0)
    return Ending(died is not None, wrong, seconds)


def _names(said: dict[str, Any], death: Death, pid: int) -> bool:
    if said.get("named") != [death.victim]:
        return False
    # Who was not admitted, or only stopped, is missing; everybody else is known to be lost, with its pid.
    can_be_missing = death.sign == "SIGSTOP" or death.phase in UNKNOWN or death.victim == 0
    if said["error"] == "TimedOut":
        return can_be_missing
    return said["error"] == "PeerLost" and said["pid"] == pid


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    assert isinstance(found, dict)
    return found
