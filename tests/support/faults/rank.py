"""The program of one rank: it goes through the phases of a job, has its fault, and reports what it sees.

Reports are lines of JSON in a file, written at once, so that they survive the process.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from support.faults.case import ROUNDS, Case, Fault
from support.faults.workloads import Workload, make_workload
from weft.errors import PeerLost, RuntimeFailure, TimedOut, WeftError

STRIKING_ROUND = 2
"""Of the phases that come again and again; by then it is known how long they take."""

LAST_ROUND = 4
LONGEST_S = 45.0
LATE_ARRIVAL_S = 0.3
"""How much later than the fault the last rank comes, where one is to be lost among those that wait for it."""

LONGEST_WAIT_S = 20.0
"""For that fault, after which the last rank comes all the same."""

SETTLING_S = 15.0
GLOO_S = 15.0
"""gloo connects in a call that nothing interrupts; it ends by its own deadline, 10 s by default."""

PATTERN = 0x5A
_GUESSES_S = {"join": 0.002, "admitted": 0.2, "connect": 0.03, "lines": 0.01, "learn": 0.02, "close": 0.002}
_SIGNS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "pause": signal.SIGSTOP}
_NAMES = {"arrive": "join"}
STRIKES_WITHIN_S = 10.0
"""From the first occasion, after which the fault happens in whatever phase it finds. On a busy machine the
thread that strikes can miss one phase after another, and others would end at LONGEST_S, each by itself."""

_PAUSES_S = {"between": 0.03, "idle": 0.2}


class Report:
    """Where a rank writes down what it sees."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, **facts: Any) -> None:
        os.write(self._file, (json.dumps(facts) + "\n").encode())


class Phases:
    """Which phase this rank is in; strikes where the fault says.

    Parameters
    ----------
    fault
        None on ranks that it is not for.
    moment
        When within the phase, from 0 to 1.
    """

    def __init__(self, fault: Fault | None, moment: float, report: Report) -> None:
        self._fault, self._moment, self._report = fault, moment, report
        self.current, self.entered = "", time.monotonic()
        self._seconds: dict[str, float] = {}
        self._entries: dict[str, int] = {}
        self._due = threading.Event()
        self._lock, self._has_struck = threading.Lock(), False
        if fault is not None and fault.action in _SIGNS:
            threading.Thread(target=self._strike, args=(fault,), daemon=True).start()

    def enter(self, phase: str) -> None:
        """Say that a phase begins, and with it that the one before is over."""
        if phase == "admitted" and (self._fault is None or self._fault.phase != phase):
            return  # a part of joining to all but the rank that is to be lost in it
        now = time.monotonic()
        self._seconds[self.current] = now - self.entered
        self.current, self.entered = phase, now
        self._entries[phase] = self._entries.get(phase, 0) + 1
        if self._fault is None or not self._is_due(phase):
            return
        if self._fault.action in _SIGNS:
            self._due.set()
            # Where nobody is lost the job ends: what was missed until then happens at the last occasion.
            if not self._fault.is_fatal and self._entries[phase] == LAST_ROUND:
                self._signal(self._fault)
            return
        self._report.write(struck=time.monotonic(), phase=phase)
        if self._fault.action == "starve":
            starve(self._fault.count)
        else:
            time.sleep(self._fault.seconds)

    def _is_due(self, phase: str) -> bool:
        assert self._fault is not None
        first = self._entries[phase] == (STRIKING_ROUND if phase in ROUNDS else 1)
        again = self._entries[phase] > STRIKING_ROUND and self._fault.action in _SIGNS
        return phase == _NAMES.get(self._fault.phase, self._fault.phase) and (first or again)

    def _strike(self, fault: Fault) -> None:
        """Strike within the phase; one that was over too soon comes again."""
        latest: float | None = None
        while True:
            self._due.wait()
            self._due.clear()
            latest = latest or time.monotonic() + STRIKES_WITHIN_S
            phase = _NAMES.get(fault.phase, fault.phase)  # the current one may be later already
            time.sleep(self._delay(fault, phase))
            if self.current == phase or phase not in ROUNDS or time.monotonic() > latest:
                break
        self._signal(fault)

    def _signal(self, fault: Fault) -> None:
        with self._lock:
            if self._has_struck:
                return
            self._has_struck = True
            self._report.write(struck=time.monotonic(), phase=self.current)
            os.kill(os.getpid(), _SIGNS[fault.action])

    def _delay(self, fault: Fault, phase: str) -> float:
        return self._moment * self._seconds.get(phase, _GUESSES_S.get(phase, 0.0))


def starve(count: int) -> None:
    """Let this process open only so many more descriptors."""
    free = os.dup(0)
    os.close(free)  # the lowest that is free; none above it is used
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, free + count))


def work(case: Case, folder: Path, workload: Workload, phases: Phases) -> None:
    """Go through all phases; a fatal fault ends it with an error."""
    if case.fault.phase == "admitted" and _is_late(case):
        _await_strike(folder / f"rank-{case.fault.rank}.jsonl")
        time.sleep(LATE_ARRIVAL_S)
    workload.start(phases.enter)
    phases.enter("learn")
    workload.learn()
    endless = case.fault.is_fatal and case.fault.phase != "close"
    began, number = time.monotonic(), 0
    while number < LAST_ROUND or (endless and time.monotonic() < began + LONGEST_S):
        phases.enter("reduce")
        workload.reduce()
        phases.enter("between")
        _rest(case.fault, "between")
        phases.enter("gather")
        workload.gather()
        phases.enter("idle")
        _rest(case.fault, "idle")
        number += 1


def _is_late(case: Case) -> bool:
    """Whether this rank comes last: the highest that the fault is not for."""
    highest = case.setting.ranks - 1
    return int(os.environ["WEFT_RANK"]) == (highest - 1 if case.fault.rank == highest else highest)


def _await_strike(path: Path) -> None:
    """Wait until another rank's report says that the fault has happened to it."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < deadline:
        if path.exists() and '"struck"' in path.read_text("utf-8"):
            return
        time.sleep(0.02)


def _rest(fault: Fault, phase: str) -> None:
    if fault.phase == phase:
        time.sleep(_PAUSES_S[phase])


def main(folder: Path, rank: int) -> int:
    """Run one rank; 0 if it went as a user could have expected, whatever happened to the job."""
    case = Case.load(folder)
    report = Report(folder / f"rank-{rank}.jsonl")
    mine = case.fault if case.fault.rank == rank else None
    phases = Phases(mine, case.setting.moment, report)
    report.write(pid=os.getpid(), started=time.monotonic())
    workload = make_workload(case.setting)
    workload.prepare()
    # ThreadSanitizer starts a thread of its own with the first one of the program.
    first = threading.Thread(target=lambda: None)
    first.start()
    first.join()
    before = belongings()
    error: BaseException | None = None
    try:
        work(case, folder, workload, phases)
    except Exception as raised:  # noqa: BLE001 - whatever it is, it is reported
        error = raised
        report.write(
            raised=time.monotonic(), entered=phases.entered, phase=phases.current, **describe(raised)
        )
        if not isinstance(raised, RuntimeFailure):
            traceback.print_exc()
    else:
        report.write(done=time.monotonic())
    _leave(case, workload, phases, report, error is not None)
    del workload, error
    gc.collect()
    report.write(left=find_left(before, GLOO_S if case.setting.way == "torch" else SETTLING_S))
    return 0


def _leave(case: Case, workload: Workload, phases: Phases, report: Report, failed: bool) -> None:
    """Close, and if a rank thaws meanwhile, see that it leaves this rank's memory alone."""
    watched = failed and case.fault.thaws and case.fault.rank != int(os.environ["WEFT_RANK"])
    arrays = workload.arrays() if watched else []
    for array in arrays:
        array.view(np.uint8)[:] = PATTERN
    if watched and not case.setting.closes_first:
        _await_thaw(arrays, report)
    phases.enter("close")
    began = time.monotonic()
    try:
        workload.close()
    except Exception as raised:  # noqa: BLE001 - whatever it is, it is reported
        report.write(close_raised=time.monotonic(), **describe(raised))
        traceback.print_exc()
    report.write(closed=time.monotonic(), seconds=time.monotonic() - began)
    if watched and case.setting.closes_first:
        _await_thaw(arrays, report)


def _await_thaw(arrays: list[Any], report: Report) -> None:
    report.write(waits=time.monotonic())
    deadline = time.monotonic() + LONGEST_S
    while not Path("thawed").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    changed = sum(int((array.view(np.uint8) != PATTERN).sum()) for array in arrays)
    report.write(changed=changed, bytes=sum(array.nbytes for array in arrays))


def describe(error: BaseException) -> dict[str, Any]:
    """What an error says, and whom it names."""
    facts: dict[str, Any] = {"kind": type(error).__name__, "text": str(error)[:500]}
    facts["expected"] = isinstance(error, RuntimeFailure)
    facts["ours"] = isinstance(error, WeftError)
    if isinstance(error, PeerLost):
        facts |= {"names": [error.rank], "named_pid": error.pid, "step": error.step}
    elif isinstance(error, TimedOut):
        facts |= {"names": list(error.missing)}
    return facts


def find_left(before: list[str], seconds: float) -> list[str]:
    """What this process has that it had not before; connections that others have to close get so long."""
    deadline = time.monotonic() + seconds
    while (left := sorted(set(belongings()) - set(before))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def belongings() -> list[str]:
    """Descriptors, threads and mappings of Weft's that this process has."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        kind, numbered, _ = target.partition(":[")  # as in socket:[4711]
        found.append(f"descriptor {entry.name}: {kind if numbered else target}")
    found += [f"thread {number}" for number in range(len(list(Path("/proc/self/task").iterdir())))]
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    found += [f"mapping {line.split()[0]} {line.split()[-2]}" for line in maps if "memfd:weft" in line]
    return found


if __name__ == "__main__":
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        os.environ["WEFT_RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    sys.exit(main(Path(sys.argv[1]), int(os.environ["WEFT_RANK"])))
