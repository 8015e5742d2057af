"""Collectives among real processes: every algorithm, both transports, all types; exact, or a clear error."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.jobs import end, finish, run_ranks, start_ranks

from weft.algorithms.registry import ALGORITHMS

EVERYTHING = """
import sys
import numpy as np
import weft
from weft.algorithms.registry import ALGORITHMS
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

transport, amount = sys.argv[1:3]
comm = weft.init(transport=transport)
R, N = comm.rank, comm.size
FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
BITS = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}

def part(rank, n, dtype):
    return ((np.arange(n) * 7 + 3 * rank) % 5 - 1).astype(dtype)

def check(found, expected, *what):
    same = found.dtype == expected.dtype and np.array_equal(found, expected)
    assert same, (R, *what, found[:8], expected[:8])

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
        if "reduce_scatter" in line.collectives:
            size, more = divmod(n, N)
            first = R * size + min(R, more)
            share = total[first : first + size + (R < more)]
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

def topologies(name):
    yield f"fullmesh:{N}"
    if name in ("hierarchical", "blueconnect"):
        yield f"hosts:{N - N // 2},{N // 2}"
    if name in ("bucket", "four_phase", "ring2d", "swing") and N % 2 == 0:
        yield f"torus:2x{N // 2}"
    if name == "hdrm" and N == 8:
        yield "bigraph:2,4"
    if name in ("multitree", "forest", "flexreduce"):
        yield f"ring:{N}"

few = [(0, "float32", "sum"), (1, "int64", "max"), (7, "float64", "prod"), (4097, "float16", "sum")]
few.append((70_001, "int32", "sum"))
types = ("float16", "float32", "float64", "int32", "int64", "int16", "int8", "uint8")
every = [(n, d, o) for n in (0, 1, 7, 4097) for d in types for o in FOLD]
every += [(n, d, o) for n in (1, 4097) for d in types[3:] for o in BITS]
ran = set()
for line in ALGORITHMS.values():
    for spec in topologies(line.name):
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
"""


@pytest.mark.parametrize(
    ("ranks", "transport", "amount"),
    [
        (2, "tcp", "every"),
        (3, "auto", "every"),
        (8, "auto", "few"),
        (8, "tcp", "few"),
        pytest.param(2, "auto", "every", marks=pytest.mark.slow),
        pytest.param(3, "tcp", "every", marks=pytest.mark.slow),
        pytest.param(8, "auto", "every", marks=pytest.mark.slow),
        pytest.param(8, "tcp", "every", marks=pytest.mark.slow),
        pytest.param(16, "auto", "few", marks=pytest.mark.slow),
        pytest.param(16, "tcp", "few", marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_computes_exactly_what_it_should(
    tmp_path: Path, ranks: int, transport: str, amount: str
) -> None:
    said = run_ranks(tmp_path, ranks, EVERYTHING, transport, amount)
    ran = set(said[0].partition("ran ")[2].split())
    serves_any = {"ring", "direct", "recursive_doubling", "halving_doubling", "multitree", "forest"}
    assert ran == set(ALGORITHMS) if ranks == 8 else ran >= serves_any, said


SHARED = """
import numpy as np
import weft

comm = weft.init()
R, N = comm.rank, comm.size
for elements in (0, 1, 100_000, 1_000_003):
    array = comm.empty(elements)
    array[:] = np.arange(elements) % 7 + R
    comm.all_reduce(array)
    assert np.array_equal(array, N * (np.arange(elements) % 7) + sum(range(N))), elements
    private = np.full(elements, R, np.float32)  # in the same job some ranks share and some do not
    mixed = comm.empty(elements) if R % 2 else private
    mixed[:] = R
    comm.all_reduce(mixed)
    assert (mixed == sum(range(N))).all()
works = [comm.all_reduce(np.full(1000, R + i, np.float64), async_op=True) for i in range(50)]
blocking = comm.all_reduce(np.full(10, R, np.int32))
assert (blocking == sum(range(N))).all()
for i, work in enumerate(works):
    assert work.is_completed() and (work.wait(10) == sum(range(N)) + N * i).all()
strided = np.full((100, 6), R, np.float32)[:, ::3]
comm.all_reduce(strided)
assert (strided == sum(range(N))).all()
average = comm.all_reduce(np.full(5, R, np.float32), "avg")
assert (average == np.float32(sum(range(N))) / N).all()
for sign in (1, -1):  # of integers it is rounded towards zero
    average = comm.all_reduce(np.full(5, sign * (R + 1), np.int16), "avg")
    assert (average == sign * (N * (N + 1) // 2 // N)).all(), average
comm.barrier()
if N > 1:
    assert comm.last.algorithm == "recursive_doubling" and len(comm.last.digest) == 64
    comm.all_reduce(np.ones(100_000))
    assert comm.last.algorithm == "direct"
"""


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_shared_private_strided_and_asynchronous(tmp_path: Path, ranks: int) -> None:
    run_ranks(tmp_path, ranks, SHARED)


COPIED = """
import numpy as np
import weft

comm = weft.init(transport="copy")
R, N = comm.rank, comm.size
for elements in (20_000, 16_384 * N, 131_072 * N, 700_001):  # whole pieces of the ring, and others
    for _ in range(3):
        private = np.full(elements, R, np.float32)
        assert (comm.all_reduce(private) == sum(range(N))).all()
        shared = comm.empty(elements)
        shared[:] = R
        assert (comm.all_reduce(shared) == sum(range(N))).all()
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_where_no_rank_may_read_another_data_is_copied(tmp_path: Path, ranks: int) -> None:
    run_ranks(tmp_path, ranks, COPIED)


REPEATED = """
import numpy as np
import weft

comm = weft.init(algorithm="ring")
random = np.random.default_rng(comm.rank)
data = random.standard_normal(50_001).astype(np.float32)
first = comm.all_reduce(data.copy())
for _ in range(100):
    assert comm.all_reduce(data.copy()).tobytes() == first.tobytes()
"""


def test_the_same_sums_have_the_same_bits_every_time(tmp_path: Path) -> None:
    run_ranks(tmp_path, 4, REPEATED)


LOST = """
import os, signal, sys, threading, time
import numpy as np
import weft

transport, victim, how = sys.argv[1], int(sys.argv[2]), getattr(signal, sys.argv[3])
comm = weft.init(transport=transport, algorithm=sys.argv[4], timeout=30)
array = np.ones(300_000, np.float32)
comm.all_reduce(array)
if comm.rank == victim:
    # In the middle of an operation: it runs in another thread.
    threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), how)), daemon=True).start()
began = time.monotonic()
last = began
try:
    while last < began + 25:
        comm.all_reduce(array)
        last = time.monotonic()
except weft.PeerLost as error:
    print("lost", error.rank, error.pid, f"{time.monotonic() - last:.2f}", error, flush=True)
    try:
        comm.all_reduce(array)
    except weft.RuntimeFailure as again:
        assert str(again) == f"this communicator is of no further use: {error}"
        sys.exit(7)
"""


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_every_other(
    tmp_path: Path, transport: str, victim: int, algorithm: str
) -> None:
    ranks = start_ranks(tmp_path, 4, LOST, transport, str(victim), "SIGKILL", algorithm)
    for rank, (code, output) in enumerate(finish(ranks)):
        assert code == (-signal.SIGKILL if rank == victim else 7), (rank, code, output)
        if rank != victim:
            assert output.split()[:3] == ["lost", str(victim), str(ranks[victim].pid)], output


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_frozen_rank_is_named_by_every_other(tmp_path: Path, transport: str) -> None:
    ranks = start_ranks(tmp_path, 3, LOST, transport, "1", "SIGSTOP", "ring")
    try:
        suspected = 0
        for code, output in finish([ranks[0], ranks[2]]):
            assert code == 7, output
            before, _, after = f"\n{output}".partition("\nlost ")
            assert after.split()[0] == "1", output
            suspected += "rank 1 (host" in before
        # It is named before it is lost, after a second of silence, by a rank that waits for it. The other one
        # may wait for that rank, or may have been too busy to wait for long.
        assert suspected
    finally:
        end(ranks[1])


DIFFERENT = """
import sys
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], timeout=10)
array = np.ones(1000, np.float32)
comm.all_reduce(array)
odd = {"size": np.ones(1001, np.float32), "dtype": np.ones(1000, np.float64), "op": array}[sys.argv[2]]
try:
    if comm.rank == 1:
        comm.all_reduce(odd, "max" if sys.argv[2] == "op" else "sum")
    else:
        comm.all_reduce(array)
except weft.DesyncError as error:
    assert (error.rank == 1) == (comm.rank != 1), error
    sys.exit(9)
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("what", ["size", "dtype", "op"])
def test_a_rank_that_calls_something_else_is_named(tmp_path: Path, transport: str, what: str) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, DIFFERENT, transport, what)):
        assert code == 9, output


WRONG = """
import numpy as np
import pytest
import weft

comm = weft.init()
for array in (np.ones(3, np.complex64), np.ones(3, np.uint16), np.array(["a"]), np.ones(3, ">f4")):
    with pytest.raises(TypeError, match="only float16, bfloat16, float32, float64, int32, int64"):
        comm.all_reduce(array)
for op, message in (("xor", "only sum, avg, min, max, prod"), ("bxor", "bits of integers, not on float32")):
    with pytest.raises(TypeError, match=message):
        comm.all_reduce(np.ones(3, np.float32), op)
frozen = np.ones(3, np.float32)
frozen.flags.writeable = False
with pytest.raises(TypeError, match="read-only"):
    comm.all_reduce(frozen)
with pytest.raises(weft.InputError, match="root 2 is not a rank 0..1"):
    comm.broadcast(np.ones(3, np.float32), root=2)
with pytest.raises(weft.InputError, match="no multiple of 2 ranks"):
    comm.all_to_all(np.ones(3, np.float32))
assert (comm.all_reduce(np.ones(3, np.float32)) == 2).all()  # and it still works
comm.close()
with pytest.raises(weft.RuntimeFailure, match="has closed"):
    comm.all_reduce(np.ones(3, np.float32))
"""


def test_wrong_arguments_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    run_ranks(tmp_path, 2, WRONG)


AT_START = """
import sys
import numpy as np
import weft

comm = weft.init(topology=sys.argv[1], plan_time_limit=5)
ran = set()
for elements in (10, 100_000, 1_000_000):
    assert (comm.all_reduce(np.full(elements, comm.rank, np.float32)) == sum(range(comm.size))).all()
    ran.add(comm.last.algorithm)
assert (comm.broadcast(np.full(9, comm.rank)) == 0).all()
print("ran", *sorted(ran))
"""


def test_a_plan_is_made_at_the_start_from_the_topology(tmp_path: Path) -> None:
    said = run_ranks(tmp_path, 6, AT_START, "torus:2x3")
    told = {
        output.partition("ran ")[2] for output in said
    }  # on a busy machine ranks also say whom they await
    assert len(told) == 1, said
    assert len(told.pop().split()) >= 2, said
    for code, output in finish(start_ranks(tmp_path, 3, AT_START, "torus:2x3")):
        assert code == 1, output
        assert "the topology is for torus:2x3, 6 ranks; this job has 3" in output


OTHER = """
import sys
import weft

weft.init(plan=sys.argv[1], topology="ring:4@bw=1GB/s")
"""


PLANNED = """
import sys
import numpy as np
import weft

comm = weft.init(plan=sys.argv[1])
array = comm.all_reduce(np.full(300_000, comm.rank, np.float32))
assert (array == 6).all()
print("used", comm.last.algorithm)
"""


def test_a_plan_is_what_runs(tmp_path: Path) -> None:
    import weft

    plan = weft.plan("ring:4", "1MB", algorithms=["bidirectional_ring"])
    plan.save(tmp_path / "plan.weft")
    for output in run_ranks(tmp_path, 4, PLANNED, str(tmp_path / "plan.weft")):
        assert "used bidirectional_ring" in output
    for code, output in finish(start_ranks(tmp_path, 3, PLANNED, str(tmp_path / "plan.weft"))):
        assert code == 1, output
        assert "the plan is for ring:4, 4 ranks; this job has 3" in output
    for code, output in finish(start_ranks(tmp_path, 4, OTHER, str(tmp_path / "plan.weft"))):
        assert code == 1, output
        assert "the plan is for ring:4 (" in output
        assert "ring:4@bw=1GB/s" in output


TENSORS = """
import torch
import weft

comm = weft.init()
total = sum(range(comm.size))
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64):
    tensor = torch.full((300, 101), comm.rank, dtype=dtype)
    comm.all_reduce(tensor)
    assert tensor.dtype == dtype and (tensor == total).all(), dtype
halves = torch.full((7,), comm.rank + 1, dtype=torch.bfloat16)
comm.all_reduce(halves, "avg")
assert (halves == torch.tensor((total + comm.size) / comm.size, dtype=torch.bfloat16)).all()
"""


def test_torch_tensors_of_every_type_are_summed_in_place(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, TENSORS)


HURRIED = """
import numpy as np
import weft

comm = weft.init(algorithm="double_binary_tree", timeout=20)
for number in range(1500):
    root = number % comm.size
    found = comm.broadcast(np.full(3, comm.rank, np.int32), root)
    assert (found == root).all()
    total = comm.reduce(np.full(3, comm.rank, np.int32), (root + 2) % comm.size)
    assert comm.rank != (root + 2) % comm.size or (total == sum(range(comm.size))).all()
"""


def test_ranks_that_hurry_ahead_wait_for_those_that_have_not_begun(tmp_path: Path) -> None:
    run_ranks(tmp_path, 6, HURRIED)
