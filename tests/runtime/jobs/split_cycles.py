"""Parts that were closed leave nothing.

Run by tests/runtime/test_split.py.
"""

import sys
from pathlib import Path

import numpy as np

import weft


def used():
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0]) << 10, len([*Path("/proc/self/fd").iterdir()]), int(rows["Threads"])


comm = weft.init(timeout=30, transport=sys.argv[1])
array = np.ones(1000, np.float32)
for cycle in range(300):
    if cycle == 50:
        memory, files, threads = used()
    part = comm.split(cycle % 2 if comm.rank else 0)
    part.all_reduce(array)
    part.close()
after = used()
assert after[0] - memory < 5 << 20, (memory, after)
assert after[1:] == (files, threads), (files, threads, after)
