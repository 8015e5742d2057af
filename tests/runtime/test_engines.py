"""The same collectives over mpirun and over gloo, with real processes: same results, same errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import AS_ROOT, MPIRUN, TORCHRUN, run_engine, said, start_engine
from support.jobs import finish

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
        parts = [part(r, n, dtype) for r in range(N)]
        for op in FOLD if n > 1 else ["sum"]:
            what = (n, dtype, op)
            total = parts[0].copy()
            for other in parts[1:]:
                total = FOLD[op](total, other)
            check(comm.all_reduce(parts[R].copy(), op), total, "all_reduce", *what)
        size, more = divmod(n, N)
        first = R * size + min(R, more)
        check(comm.reduce_scatter(parts[R], op), total[first : first + size + (R < more)], "scatter", *what)
        check(comm.reduce(parts[R].copy(), 1, op), total if R == 1 else parts[R], "reduce", *what)
        check(comm.all_gather(parts[R]), np.concatenate(parts), "all_gather", *what)
        check(comm.broadcast(parts[R].copy(), root=N - 1), parts[N - 1], "broadcast", *what)
        sent = [part(r, n * N, dtype) for r in range(N)]
        expected = np.concatenate([sent[r][R * n : (R + 1) * n] for r in range(N)])
        check(comm.all_to_all(sent[R]), expected, "all_to_all", *what)
        if dtype.startswith("float"):
            total = comm.all_reduce(parts[R].copy())
            check(comm.all_reduce(parts[R].copy(), "avg"), total / np.dtype(dtype).type(N), "avg", *what)
if ENGINE == "mpi":
    from weft.runtime.engines import mpi_engine

    mpi_engine.LARGEST = 1000  # bytes, so that messages are several
    assert (comm.all_reduce(np.full(4097, R, np.float64)) == sum(range(N))).all()
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
assert comm.last.algorithm == "recursive_doubling" and len(comm.last.digest) == 64
comm.close()
comm.close()
say("exact")
"""


@pytest.mark.parametrize(("engine", "ranks"), [("mpi", 4), ("torch", 3)])
def test_every_collective_type_and_op_is_exact(tmp_path: Path, engine: str, ranks: int) -> None:
    assert run_engine(engine, tmp_path, ranks, EXACT) == ["exact"] * ranks


SAME_BITS = """
from weft.algorithms.registry import ALGORITHMS
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

native, comm = weft.init(), begin()
R, N = comm.rank, comm.size

def find(name):
    for spec in (f"fullmesh:{N}", "torus:2x2", "hosts:2,2"):
        try:
            chooser = ScheduleSelector(N, load_inputs(topology=spec, algorithm=name))
            chooser.choose("all_reduce", 1, 0)
        except weft.UnsupportedError:
            continue
        return chooser

ran = []
for line in ALGORITHMS.values():
    if (chooser := find(line.name)) is None:
        continue
    native.use(chooser)
    comm.use(chooser)
    for n, dtype in ((7, "float64"), (4097, "float32"), (4097, "float16")):
        data = np.random.default_rng(1000 * R + n).standard_normal(n).astype(dtype)
        ours, theirs = native.all_reduce(data.copy()), comm.all_reduce(data.copy())
        assert ours.tobytes() == theirs.tobytes(), (line.name, n, dtype)
        assert native.last == comm.last
    ran.append(line.name)
comm.close()
native.close()
say(*ran)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_have_the_bits_of_the_native_runtime_for_every_algorithm(tmp_path: Path, engine: str) -> None:
    ran = run_engine(engine, tmp_path, 4, SAME_BITS, timeout=100)
    assert len(ran) == 4
    serves_any = {"ring", "direct", "recursive_doubling", "halving_doubling", "multitree", "forest"}
    assert serves_any <= set(ran[0].split()), ran


ERRORS = """
import pytest

comm = begin(timeout=30)
R, N = comm.rank, comm.size
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
with pytest.raises(weft.InputError, match="root 3 is not a rank 0..2"):
    comm.broadcast(np.ones(3, np.float32), root=3)
with pytest.raises(weft.InputError, match="no multiple of 3 ranks"):
    comm.all_to_all(np.ones(4, np.float32))
with pytest.raises(weft.InputError, match="the topology is for ring:4, 4 ranks; this job has 3"):
    begin(topology="ring:4")
with pytest.raises(weft.InputError, match="transport 'tcp' is for the native engine"):
    begin(transport="tcp")
assert (comm.all_reduce(np.ones(3, np.float32)) == N).all()  # and it still works
comm.close()
with pytest.raises(weft.RuntimeFailure, match="has closed"):
    comm.all_reduce(np.ones(3, np.float32))

array = np.ones(1000, np.float32)
for what in ("size", "dtype", "op", "call"):
    comm = begin(timeout=10)
    comm.all_reduce(array.copy())
    odd = {"size": np.ones(1001, np.float32), "dtype": np.ones(1000)}.get(what, array.copy())
    with pytest.raises(weft.DesyncError) as found:
        if R != 1:
            comm.all_reduce(array.copy())
        elif what == "call":
            comm.all_gather(odd)
        else:
            comm.all_reduce(odd, "max" if what == "op" else "sum")
    assert (found.value.rank == 1) == (R != 1), (what, found.value)
    with pytest.raises(weft.RuntimeFailure, match="of no further use"):
        comm.all_reduce(array.copy())

comm = begin(timeout=30)
began = time.monotonic()
if R == 1:
    time.sleep(1.5)
with pytest.raises((weft.TimedOut, weft.PeerLost)) as found:
    comm.all_reduce(array.copy(), timeout=30 if R == 1 else 0.5)
assert time.monotonic() - began < 20
if R == 1:
    assert found.value.rank in (0, 2), found.value  # those that did not wait for it any longer
elif isinstance(found.value, weft.TimedOut):
    assert found.value.missing == (1,), found.value
    assert "rank 1 did not come within 0.5 s" in str(found.value)
else:
    assert found.value.rank == 1, found.value

comm = begin(timeout=30)
if R == 2:
    comm.close()
else:
    with pytest.raises(weft.PeerLost) as found:
        comm.all_reduce(array.copy())
    assert found.value.rank == 2, found.value
say("told")
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_errors_are_those_of_the_native_runtime(tmp_path: Path, engine: str) -> None:
    assert run_engine(engine, tmp_path, 3, ERRORS) == ["told"] * 3


PART = """
comm = begin(timeout=30)
R, N = comm.rank, comm.size
part = comm.split(0 if R < 2 else 1)
part.all_reduce(np.ones(10, np.float32))
if R == 3:
    os.kill(os.getpid(), 9)
try:
    while R >= 2:
        part.all_reduce(np.ones(10, np.float32))
except weft.PeerLost as error:
    say("lost", error.rank, error.op.split()[0])
else:
    time.sleep(1)
    part.all_reduce(np.ones(10, np.float32))
    say("goes on")
os._exit(0)  # the process group of torch would wait for the dead rank
"""


def test_a_rank_that_dies_concerns_only_the_part_it_is_in(tmp_path: Path) -> None:
    lines = said("".join(output for _, output in finish(start_engine("torch", tmp_path, 4, PART))))
    assert lines == ["goes on", "goes on", "lost 1 all_reduce"]


TENSORS = """
import pytest
import torch
import torch.distributed as dist
from weft.runtime.engines.messaging import OperationFailure
from weft.runtime.engines.torch_engine import GroupedChannel
from weft.runtime.engines.interpreter import Move

with pytest.raises(weft.InputError, match="init_process_group"):
    weft.init(engine="torch")
with pytest.raises(weft.InputError, match="engine 'ucx' is unknown, expected native, mpi, torch"):
    weft.init(engine="ucx")
with pytest.raises(weft.InputError, match="a process group is for engine 'torch', not 'native'"):
    weft.init(group=3)
comm = begin()
R, N = comm.rank, comm.size
total = sum(range(N))
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64):
    tensor = torch.full((300, 101), R, dtype=dtype)
    assert comm.all_reduce(tensor) is tensor
    assert tensor.dtype == dtype and (tensor == total).all(), dtype
    joined = comm.all_gather(torch.full((5,), R, dtype=dtype))
    assert joined.dtype == dtype and joined.tolist() == [r for r in range(N) for _ in range(5)]
    for op, expected in (("min", 0), ("max", N - 1), ("prod", 0)):
        assert (comm.all_reduce(torch.full((5,), R, dtype=dtype), op) == expected).all()
halves = torch.full((7,), R + 1, dtype=torch.bfloat16)
comm.all_reduce(halves, "avg")
assert (halves == torch.tensor((total + N) / N, dtype=torch.bfloat16)).all()
columns = torch.full((100, 6), R, dtype=torch.float32)[:, ::3]
comm.all_reduce(columns)
assert (columns == total).all()
weight = torch.full((4,), float(R), requires_grad=True)
comm.broadcast(weight, 1)
assert weight.requires_grad and (weight == 1).all()
with pytest.raises(TypeError, match="arrays of torch.uint16 are not supported, only float16"):
    comm.all_reduce(torch.ones(3, dtype=torch.uint16))
with pytest.raises(TypeError, match="does not move tensors on meta, only on cpu with gloo"):
    comm.all_reduce(torch.ones(3, device="meta"))

pair = dist.new_group([0, 2])
if R == 1:
    with pytest.raises(weft.InputError, match="this process is not in the group"):
        weft.init(engine="torch", group=pair)
else:
    two = weft.init(engine="torch", group=pair, timeout=20)
    assert (two.size, two.rank) == (2, R // 2)
    assert (two.all_reduce(torch.ones(3)) == 2).all()
    with pytest.raises(weft.DesyncError):
        two.all_reduce(torch.ones(3 + R))
    # What carries tensors on GPUs, as far as gloo can show it: ranks are those of the group, waits end.
    grouped, peer, room = GroupedChannel(pair, two._engine._watch), 1 - two.rank, torch.zeros(3)
    sent = torch.full((3,), float(R))
    _, (_, works) = grouped.start([Move(peer, sent, sends=True), Move(peer, room, sends=False)])
    for work in works:
        work.wait()
    assert (room == 2 - R).all()
    (late,) = grouped.start([Move(peer, room, sends=False)])
    with pytest.raises(OperationFailure, match=f"late: rank {peer}"):
        grouped.wait(late, time.monotonic() + 0.01)
mine = torch.full((3,), float(R))
dist.all_reduce(mine)  # the user's own group is as it was
assert (mine == total).all()
comm.barrier()
dist.destroy_process_group()
comm.close()
say("in place")
"""


def test_tensors_are_combined_where_they_are_beside_the_users_group(tmp_path: Path) -> None:
    assert run_engine("torch", tmp_path, 3, TENSORS) == ["in place"] * 3


PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("average.py", [MPIRUN, "--oversubscribe", "-n", "2", sys.executable, "-m", "mpi4py"]),
        ("tensors.py", [TORCHRUN, "--nproc-per-node", "2"]),
    ],
)
def test_the_programs_of_the_page_run(tmp_path: Path, name: str, command: list[str | Path]) -> None:
    program = PAGE.read_text("utf-8").partition(f"```python\n# {name}\n")[2].partition("```")[0]
    (tmp_path / name).write_text(program, "utf-8")
    done = subprocess.run(
        [*map(str, command), name],
        cwd=tmp_path,
        env={**os.environ, **AS_ROOT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [done.stdout.count(word) for word in ("0.5", "ring")] == [2, 2], done.stdout
