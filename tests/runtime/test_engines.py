"""The same collectives over mpirun and over gloo, with real processes: same results, same errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine

ENGINES = ["mpi", "torch"]

EXACT = """
FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
comm = begin()
R, N = comm.rank, comm.size

def part(rank, n, dtype):
    return ((np.arange(n) * 7 + 3 * rank) % 5 - 1).astype(dtype)

def check(found, expected, *what):
    same = type(found) is np.ndarray and found.dtype == expected.dtype and np.array_equal(found, expected)
    assert same, (R, *what, found[:8], expected[:8])

for n in (0, 1, 7, 4097):
    for dtype in ("float16", "float32", "float64", "int32", "int64"):
        for op in FOLD:
            what = (n, dtype, op)
            parts = [part(r, n, dtype) for r in range(N)]
            total = parts[0].copy()
            for other in parts[1:]:
                total = FOLD[op](total, other)
            check(comm.all_reduce(parts[R].copy(), op), total, "all_reduce", *what)
            size, more = divmod(n, N)
            first = R * size + min(R, more)
            share = total[first : first + size + (R < more)]
            check(comm.reduce_scatter(parts[R], op), share, "reduce_scatter", *what)
            check(comm.reduce(parts[R].copy(), 1, op), total if R == 1 else parts[R], "reduce", *what)
        check(comm.all_gather(parts[R]), np.concatenate(parts), "all_gather", *what)
        check(comm.broadcast(parts[R].copy(), root=N - 1), parts[N - 1], "broadcast", *what)
        sent = [part(r, n * N, dtype) for r in range(N)]
        expected = np.concatenate([sent[r][R * n : (R + 1) * n] for r in range(N)])
        check(comm.all_to_all(sent[R]), expected, "all_to_all", *what)
        if dtype.startswith("float"):
            total = comm.all_reduce(parts[R].copy())
            check(comm.all_reduce(parts[R].copy(), "avg"), total / np.dtype(dtype).type(N))
works = [comm.all_reduce(np.full(1000, R + i, np.float64), async_op=True) for i in range(20)]
assert (comm.all_reduce(np.full(10, R, np.int32)) == sum(range(N))).all()
for i, work in enumerate(works):
    assert work.is_completed() and (work.wait(10) == sum(range(N)) + N * i).all()
strided = np.full((100, 6), R, np.float32)[:, ::3]
comm.all_reduce(strided)
assert (strided == sum(range(N))).all()
frozen = np.ones(9, np.float32)
frozen.flags.writeable = False
assert (comm.reduce_scatter(frozen) == N).all()
room = comm.empty((3, 2))
room[:] = 1
assert comm.all_reduce(room) is room and (room == N).all()
comm.barrier()
assert comm.last.algorithm == "direct" and len(comm.last.digest) == 64
comm.close()
comm.close()
say("exact")
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_every_collective_type_and_op_is_exact(tmp_path: Path, engine: str) -> None:
    assert run_engine(engine, tmp_path, 4, EXACT) == ["exact"] * 4


SAME_BITS = """
from weft.algorithms.registry import ALGORITHMS
from weft.runtime.chooser import Chooser

native, comm = weft.init(), begin()
R, N = comm.rank, comm.size
ran = set()
for line in ALGORITHMS.values():
    for spec in (f"fullmesh:{N}", "hosts:3,1", "torus:2x2", "ring:4"):
        try:
            chooser = Chooser(N, topology=spec, algorithm=line.name)
            chooser.choose("all_reduce", 1, 0)
        except weft.UnsupportedError:
            continue
        native.use(chooser)
        comm.use(chooser)
        for n, dtype in ((7, "float64"), (4097, "float32"), (4097, "float16")):
            data = np.random.default_rng(1000 * R + n).standard_normal(n).astype(dtype)
            ours, theirs = native.all_reduce(data.copy()), comm.all_reduce(data.copy())
            assert ours.tobytes() == theirs.tobytes(), (line.name, spec, n, dtype)
            assert native.last == comm.last
        ran.add(line.name)
comm.close()
native.close()
say(len(ran))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_have_the_bits_of_the_native_runtime_for_every_algorithm(tmp_path: Path, engine: str) -> None:
    counts = run_engine(engine, tmp_path, 4, SAME_BITS)
    assert len(counts) == 4
    assert len(set(counts)) == 1
    assert int(counts[0]) >= 12, counts
