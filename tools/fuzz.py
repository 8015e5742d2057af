"""Feed Weft what nobody should write: ``.venv/bin/python tools/fuzz.py --minutes 10 --seed 1``.

Every reader of bytes from elsewhere (fuzzing/targets.py) gets inputs in turn, in a process of its own that
is watched. A finding is an exception that is not a `WeftError`, whose text is always one line, a
crash, one input that takes too long, or memory that grows beyond a bound. It is saved, printed with the
command that repeats it, and fails the run. The same seed makes the same inputs, and ``--inputs 10000`` ends
the turn of a target after so many of them. To find memory errors as well, run it with what ``make sanitize``
builds: ``tools/sanitize address build/address tools/fuzz.py --minutes 10``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import itertools
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from fuzzing.target import MOST_BYTES, Target
from fuzzing.targets import TARGETS

from weft.errors import WeftError

ROUND_S: Final = 300.0
"""A process serves all targets once, for so long together; then comes a fresh one."""

MOST_ALIKE: Final = 2
"""Inputs kept of findings that end in the same place."""

_LOOK_S: Final = 0.05
_NOW: Final = struct.Struct("=IQdI")  # target, number of the input, when it began, its bytes
_DONE: Final = struct.Struct("=QQd")  # inputs, those that were taken, seconds
_INPUT_AT: Final = _NOW.size + len(TARGETS) * _DONE.size


class Board:
    """What the process that reads inputs shows to the one that watches it, whatever becomes of it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def create(path: Path) -> Board:
        """A new one."""
        path.write_bytes(bytes(_INPUT_AT + 4 * MOST_BYTES))
        return Board(path)

    def begin(self, target: int, number: int, data: bytes) -> None:
        """Say what is read now."""
        self._memory[_INPUT_AT : _INPUT_AT + len(data)] = data
        _NOW.pack_into(self._memory, 0, target, number, time.monotonic(), len(data))

    def rest(self) -> None:
        """Say that nothing is."""
        _NOW.pack_into(self._memory, 0, 0, 0, 0.0, 0)

    def current(self) -> tuple[str, int, float, bytes] | None:
        """What is read now: target, number, since when, and the input."""
        target, number, began, length = _NOW.unpack_from(self._memory)
        if not began:
            return None
        return list(TARGETS)[target], number, began, self._memory[_INPUT_AT : _INPUT_AT + length]

    def count(self, target: int, inputs: int, taken: int, seconds: float) -> None:
        """Add to what was done."""
        at = _NOW.size + target * _DONE.size
        before = _DONE.unpack_from(self._memory, at)
        _DONE.pack_into(self._memory, at, before[0] + inputs, before[1] + taken, before[2] + seconds)

    def done(self, target: int) -> tuple[int, int, float]:
        """Inputs of a target, those that were taken, and seconds."""
        inputs, taken, seconds = _DONE.unpack_from(self._memory, _NOW.size + target * _DONE.size)
        return inputs, taken, seconds


def draw(target: str, seed: int, number: int) -> bytes:
    """Input of a number."""
    return TARGETS[target].make(random.Random(f"{seed}/{target}/{number}"))


def save(folder: Path, target: str, seed: int, number: int, data: bytes, problem: str) -> None:
    """Keep a finding, and say how to repeat it."""
    path = folder / f"{target}-{seed}-{number}-{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(problem, "utf-8")
    print(f"\nFINDING in {target}: {problem.rstrip()}", flush=True)
    print(f"repeat: {sys.executable} {sys.argv[0]} --targets {target} --repeat {path}\n", flush=True)


# the process that reads


def serve(folder: Path, names: list[str], seed: int, first: int, seconds: float, most: int) -> None:
    """Read inputs of each target in turn until the time is over, or `most` inputs of it were read."""
    board, alike = Board(folder / "board"), Counter[str]()
    order = list(TARGETS)
    for name in names:  # what has to be made once is no part of anything's time
        draw(name, seed, first)
    for name in names:
        index, until = order.index(name), time.monotonic() + seconds / len(names)
        # Not from where the last round has ended, which depends on the machine.
        for number in itertools.count(first):
            data = draw(name, seed, number)
            began = time.monotonic()
            board.begin(index, number, data)
            taken, problem = attempt(TARGETS[name], data)
            board.count(index, 1, taken, time.monotonic() - began)
            board.rest()
            if problem:
                place = "".join(problem.splitlines(keepends=True)[-4:])
                alike[name + place] += 1
                if alike[name + place] <= MOST_ALIKE:
                    save(folder, name, seed, number, data, problem)
            if time.monotonic() > until or board.done(index)[0] >= most:
                break


def attempt(target: Target, data: bytes) -> tuple[bool, str]:
    """Read an input; whether it was taken, and what is wrong with that."""
    try:
        return target.read(data), ""
    except WeftError:
        return False, ""
    except Exception:  # noqa: BLE001 - this is what is looked for
        return False, traceback.format_exc(limit=-12)


# the process that watches


@dataclass
class Watch:
    """Starts readers, and looks after them.

    Parameters
    ----------
    patience
        Seconds of processor time that one input may take, and six times as many on the clock.
    growth
        MiB that the reader may grow by.
    most
        Inputs after which the turn of a target ends.
    """

    folder: Path
    names: list[str]
    seed: int
    patience: float
    growth: int
    most: int
    board: Board = field(init=False)

    def __post_init__(self) -> None:
        self.board = Board.create(self.folder / "board")

    def run(self, seconds: float) -> None:
        """One round after the other."""
        until = time.monotonic() + seconds
        for first in itertools.count(0, 1_000_000_000):
            self._round(first, min(ROUND_S, until - time.monotonic()))
            if until - time.monotonic() < 1 or self._enough():
                return
            print(self.table(), flush=True)

    def _enough(self) -> bool:
        """Whether every target has had its inputs."""
        return all(self.board.done(list(TARGETS).index(name))[0] >= self.most for name in self.names)

    def _round(self, first: int, seconds: float) -> None:
        """Let a reader serve all targets; another one goes on where one is lost."""
        names, until = self.names, time.monotonic() + seconds
        while names:
            left = max(0.1, until - time.monotonic())
            lost = self._watch(names, first, left)
            if lost is None:
                return
            name, number = lost
            names = names[names.index(name) :] if until - time.monotonic() > 1 else []
            first = number + 1

    def _watch(self, names: list[str], first: int, seconds: float) -> tuple[str, int] | None:
        self.board.rest()
        words = ["--serve", "--targets", ",".join(names), "--seed", str(self.seed), "--first", str(first)]
        words += ["--folder", str(self.folder), "--minutes", str(seconds / 60)]
        words += ["--inputs", str(self.most)]
        with subprocess.Popen([sys.executable, __file__, *words]) as reader:
            try:
                problem = self._look_after(reader)
            finally:
                reader.kill()
        if not problem and reader.returncode == 0:
            return None
        problem = problem or f"the process ended with {describe(reader.returncode)}"
        now = self.board.current()
        if now is None:
            msg = f"fuzz: between inputs: {problem}"
            raise SystemExit(msg)
        name, number, began, data = now
        self.board.count(list(TARGETS).index(name), 1, 0, time.monotonic() - began)
        save(self.folder, name, self.seed, number, data, problem)
        return name, number

    def _look_after(self, reader: subprocess.Popen[bytes]) -> str:
        """Wait until the reader ends, or has to be ended; why it has to be."""
        least, seen = 0, (0.0, 0.0)
        while reader.poll() is None:
            time.sleep(_LOOK_S)
            now = self.board.current()
            if now is None:
                continue
            try:
                memory, used = resident_bytes(reader.pid), processor_seconds(reader.pid)
            except (OSError, IndexError):  # it has just ended
                continue
            least = least or memory
            if memory > least + (self.growth << 20):
                return f"memory has grown by more than {self.growth} MiB"
            if now[2] != seen[0]:
                seen = now[2], used
            waited = time.monotonic() - now[2]
            if used - seen[1] > self.patience or waited > 6 * self.patience:
                reader.send_signal(signal.SIGABRT)  # it then shows where it is
                with contextlib.suppress(subprocess.TimeoutExpired):
                    reader.wait(5)
                return f"takes longer than {self.patience:g} s"
        return ""

    def table(self) -> str:
        """Inputs so far."""
        lines = [f"{'target':16}{'inputs':>12}{'taken':>12}{'a second':>12}"]
        for name in self.names:
            inputs, taken, seconds = self.board.done(list(TARGETS).index(name))
            lines.append(f"{name:16}{inputs:12,}{taken:12,}{inputs / max(seconds, 1e-9):12,.0f}")
        total = [sum(some) for some in zip(*map(self.board.done, range(len(TARGETS))), strict=True)]
        lines.append(f"{'all':16}{total[0]:12,}{total[1]:12,}{total[0] / max(total[2], 1e-9):12,.0f}")
        return "\n".join(lines)

    def findings(self) -> Iterator[Path]:
        """What was saved."""
        return self.folder.glob("*.txt")


def describe(code: int) -> str:
    """How a process ended."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def resident_bytes(pid: int) -> int:
    """Memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Fuzz, or repeat a finding; 1 if there was any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, default=1 << 62, help="Of each target, where time allows.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default=",".join(TARGETS), help="Some of: %(default)s.")
    parser.add_argument("--patience", type=float, default=10.0, help="Seconds that an input may take.")
    parser.add_argument("--growth", type=int, default=1024, help="MiB that all inputs together may keep.")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/fuzz"), help="For inputs that are findings."
    )
    parser.add_argument("--repeat", type=Path, metavar="INPUT", help="Read one input, here and now.")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    names = words.targets.split(",")
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    faulthandler.enable()
    if words.repeat is not None:
        taken, problem = attempt(TARGETS[names[0]], words.repeat.read_bytes())
        print(problem or ("taken" if taken else "refused"))
        return int(bool(problem))
    if words.serve:
        serve(words.folder, names, words.seed, words.first, words.minutes * 60, words.inputs)
        return 0
    words.folder.mkdir(parents=True, exist_ok=True)
    watch = Watch(words.folder, names, words.seed, words.patience, words.growth, words.inputs)
    before = set(watch.findings())
    watch.run(words.minutes * 60)
    found = len(set(watch.findings()) - before)
    print(f"{watch.table()}\n{found} findings" + (f" in {words.folder}" if found else ""))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
