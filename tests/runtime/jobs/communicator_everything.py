"""Every algorithm computes exactly what it should.

Run by tests/runtime/test_communicator.py.
"""

import sys

import numpy as np
from support.fitting_specs import fitting_specs

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

transport, amount = sys.argv[1:3]
comm = weft.init(transport=transport, streams=2)  # several connections, where there are sockets
R, N = comm.rank, comm.size
FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
BITS = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def part(rank, n, dtype):
    return ((np.arange(n) * 7 + 3 * rank) % 5 - 1).astype(dtype)


def check(found, expected, *what):
    same = found.dtype == expected.dtype and np.array_equal(found, expected)
    assert same, (R, *what, found[:8], expected[:8])


def reduce_some_elsewhere(mine, op):
    """All-reduce out of place on odd ranks, whose input must stay as it is, and in place on the others."""
    if R % 2 == 0:
        return comm.all_reduce(mine.copy(), op)
    given, out = mine.copy(), np.empty_like(mine)
    given.flags.writeable = False
    assert comm.all_reduce(given, op, out=out) is out
    assert np.array_equal(given, mine)
    return out


def collectives(line, cases):
    for n, dtype, op in cases:
        what = (line.name, n, dtype, op)
        parts = [part(r, n, dtype) for r in range(N)]
        total = parts[0].copy()
        for other in parts[1:]:
            total = (FOLD | BITS)[op](total, other)
        mine = parts[R]
        if "all_reduce" in line.collectives:
            check(comm.all_reduce(mine.copy(), op), total, "all_reduce", *what)
            check(reduce_some_elsewhere(mine, op), total, "all_reduce elsewhere", *what)
        if "reduce_scatter" in line.collectives:
            mine.flags.writeable = False
            size, more = divmod(n, N)
            first = R * size + min(R, more)
            share = total[first : first + size + (more > R)]
            check(comm.reduce_scatter(mine, op), share, "reduce_scatter", *what)
        if "all_gather" in line.collectives:
            check(comm.all_gather(mine), np.concatenate(parts), "all_gather", *what)
        if "broadcast" in line.collectives:
            check(comm.broadcast(mine.copy(), root=N - 1), parts[N - 1], "broadcast", *what)
        if "reduce" in line.collectives:
            found = comm.reduce(mine.copy(), 0, op)
            check(found, total if R == 0 else mine, "reduce", *what)
        if "all_to_all" in line.collectives:
            sent = [part(r, n * N, dtype) for r in range(N)]
            expected = np.concatenate([sent[r][R * n : (R + 1) * n] for r in range(N)])
            check(comm.all_to_all(sent[R]), expected, "all_to_all", *what)


few = [(0, "float32", "sum"), (1, "int64", "max"), (7, "float64", "prod"), (4097, "float16", "sum")]
few.append((70_001, "int32", "sum"))
types = ("float16", "float32", "float64", "int32", "int64", "int16", "int8", "uint8")
every = [(n, d, o) for n in (0, 1, 7, 4097) for d in types for o in FOLD]
every += [(n, d, o) for n in (1, 4097) for d in types[3:] for o in BITS]
ran = set()
for line in ALGORITHMS.values():
    for spec in fitting_specs(line.name, N):
        try:
            chooser = ScheduleSelector(N, load_inputs(topology=spec, algorithm=line.name))
            for collective in line.collectives:
                chooser.choose(collective, 1, 0)
        except weft.UnsupportedError:
            continue
        comm.use(chooser)
        collectives(line, every if line.name in ("direct", "ring") and amount == "every" else few)
        ran.add(line.name)
if R == 0:
    print("ran", *sorted(ran))
comm.close()
