"""Survivors that lose a rank again and again: a new job after each loss, in the same processes.

The last rank of each job is a new process, which kills itself in the middle of an operation.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import weft
from support.faults.case import Case
from support.faults.frames import settled_belongings
from support.faults.rank import SETTLING_S, Report, describe, find_left

WARM_UP = 20
"""Losses before a process has all that it keeps."""


def main(folder: Path, rank: int) -> int:
    """Lose as many ranks as the case says; or be one."""
    case = Case.load(folder)
    report = Report(folder / f"rank-{rank}.jsonl")
    if rank == case.fault.rank:
        _work(case, dies=True)
    before: list[str] = []
    for number in range(case.fault.count):
        try:
            _work(case, dies=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            report.write(number=number, **describe(error))
        if number == WARM_UP:
            before = settled_belongings()
            report.write(warm_kib=resident_kib())
    gc.collect()
    report.write(left=find_left(before, SETTLING_S), kib=resident_kib())
    return 0


def _work(case: Case, *, dies: bool) -> None:
    setting = case.setting
    with weft.init(transport=setting.transport, algorithm=setting.algorithm, timeout=setting.timeout) as comm:
        array = (comm.empty if setting.shared else np.empty)(setting.elements, np.float32)
        comm.all_reduce(array)
        if dies:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
        began = time.monotonic()
        while time.monotonic() < began + setting.timeout:
            comm.all_reduce(array)


def resident_kib() -> int:
    """Memory that this process uses."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
