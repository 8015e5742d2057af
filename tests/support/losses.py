"""A rank that is killed or frozen in the middle of its work: what the others say, when, and what is left."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.jobs import end

Start = Callable[[Path, str, dict[str, str]], list[subprocess.Popen[str]]]
"""Starts a script in a folder, with more variables."""

WORKING = """
import json, sys, time
import numpy as np
import weft

transport, algorithm, elements = sys.argv[1], sys.argv[2], int(sys.argv[3])
comm = weft.init(transport=transport, algorithm=algorithm, timeout=40)
array = np.zeros(elements, np.float32)
comm.all_reduce(array)
print("ready", flush=True)
began = time.monotonic()
try:
    while time.monotonic() < began + 60:
        comm.all_reduce(array)
except weft.PeerLost as error:
    print(json.dumps({"at": time.monotonic(), "rank": error.rank, "pid": error.pid}), flush=True)
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    Parameters
    ----------
    wrong
        What the survivors said that was not the victim's rank and pid; empty as it should be.
    seconds
        From the signal until the last survivor had raised its error.
    left
        What remained after all processes had ended; empty as it should be.
    """

    wrong: list[str]
    seconds: float
    left: list[str]


def lose(start: Start, victim: int, sign: signal.Signals, chance: random.Random) -> Outcome:
    """Run a job and lose one of its ranks at some moment of an operation."""
    mark = f"loss-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory() as place:
        folder, scratch = Path(place), Path(place, "scratch")
        scratch.mkdir(mode=0o700)
        variables = {"WEFT_JOB": mark, "TMPDIR": str(scratch), "XDG_RUNTIME_DIR": str(scratch)}
        processes = start(folder, WORKING, variables)
        try:
            for process in processes:
                assert process.stdout is not None
                if (line := process.stdout.readline()) != "ready\n":
                    raise AssertionError(line + process.stdout.read())
            shared = {path for process in processes for path in _shared_files(process.pid)}
            time.sleep(chance.uniform(0.0, 0.3))
            began = time.monotonic()
            processes[victim].send_signal(sign)
            survivors = [process for rank, process in enumerate(processes) if rank != victim]
            said = [process.communicate(timeout=30)[0] for process in survivors]
        finally:
            for process in processes:
                end(process)
        left = [*_processes(mark), *filter(os.path.exists, shared), *map(str, scratch.iterdir())]
    found = [_read(text) for text in said]
    expected = {"rank": victim, "pid": processes[victim].pid}
    wrong = [text for text, one in zip(said, found, strict=True) if expected.items() - one.items()]
    seconds = max((one.get("at", float("inf")) - began for one in found), default=0.0)
    return Outcome(wrong, seconds, left)


def _read(text: str) -> dict[str, float]:
    with suppress(json.JSONDecodeError):
        found = json.loads(text)
        assert isinstance(found, dict)
        return found
    return {}


def _processes(mark: str) -> list[str]:
    """Processes with the mark of a job in their environment; memory and sockets live as long as they do."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(f"process {folder.name}")
    return found


def _shared_files(pid: int) -> list[str]:
    """Files in /dev/shm that a process uses."""
    lines = Path("/proc", str(pid), "maps").read_text("utf-8").splitlines()
    return ["/dev/shm/" + line.partition(" /dev/shm/")[2] for line in lines if " /dev/shm/" in line]
