"""The native runtime adds in the same order to the bit.

Run by tests/runtime/test_interpreter.py.
"""

import numpy as np
from support.handmade import HANDMADE
from support.memory_channel import interpret

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.topology import load_topology


class Fixed:
    def __init__(self, schedule):
        self.schedule = schedule

    def choose(self, collective, size_bytes, root):
        assert collective == self.schedule.collective
        return self.schedule, 64  # pieces of pieces must not change a bit


comm = weft.init()
R, N = comm.rank, comm.size


def native(schedule, mine):
    comm.use(Fixed(schedule))
    call = getattr(comm, schedule.collective)
    if schedule.collective in ("broadcast", "reduce"):
        ends = schedule.source if schedule.collective == "broadcast" else schedule.target
        return call(mine.copy(), int(ends[0]))
    return call(mine.copy())


def oracle(schedule, parts):
    whole = schedule.collective == "all_gather"
    arrays = [np.tile(part, N) for part in parts] if whole else [part.copy() for part in parts]
    if schedule.collective != "all_to_all":
        interpret(schedule, arrays, arrays, "sum")
        found = arrays[R]
    else:
        outputs = [part.copy() for part in parts]
        interpret(schedule, arrays, outputs, "sum")
        found = outputs[R]
    if schedule.collective == "reduce_scatter":
        found = np.array_split(found, N)[R]
    return parts[R] if schedule.collective == "reduce" and int(schedule.target[0]) != R else found


schedules = [make(load_topology(f"fullmesh:{N}")) for make in HANDMADE]
for line in ALGORITHMS.values():
    for collective in line.collectives:
        try:
            schedules.append(line.build(load_topology(f"fullmesh:{N}"), collective, 1))
        except weft.UnsupportedError:
            continue
for schedule in schedules:
    for elements, dtype in ((4, "float64"), (1032, "float32"), (52, "float16")):
        random = np.random.default_rng(elements)
        parts = [random.standard_normal(elements).astype(dtype) for _ in range(N)]
        ours = oracle(schedule, parts)
        theirs = native(schedule, parts[R])
        assert theirs.tobytes() == ours.tobytes(), (R, schedule, elements, theirs, ours)
print("same", len(schedules))
