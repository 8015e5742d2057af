"""Results in an array of the caller's, without more copies than needed; several operations in one turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine
from support.jobs import run_ranks

OUT = """
def part(rank, elements, dtype):
    return ((np.arange(elements) * 3 + rank) % 7).astype(dtype)

for dtype in ("float32", "int64", "uint8", "int8"):
    for n in (0, 1, 5, 50_000):
        parts = [part(rank, n * N, dtype) for rank in range(N)]
        mine, total = slice(R * n, (R + 1) * n), sum(parts[1:], parts[0].copy())
        array, out = parts[R].copy(), np.zeros((n, 1), dtype)
        assert comm.reduce_scatter(array, out=out) is out
        assert (out[:, 0] == total[mine]).all() and (array == parts[R]).all(), (dtype, n)
        array.flags.writeable = False
        assert (comm.reduce_scatter(array) == total[mine]).all()
        array = parts[R].copy()
        comm.reduce_scatter(array, out=array[mine])
        assert (array[mine] == total[mine]).all()
        assert (np.delete(array, mine) == np.delete(parts[R], mine)).all()
        apart, there = np.repeat(parts[R], 2)[::2], np.zeros(2 * n, dtype)[::2]
        comm.reduce_scatter(apart, out=there)
        assert (there == total[mine]).all() and (apart == parts[R]).all()
        whole = np.zeros(n * N, dtype)
        whole[mine] = parts[R][:n]
        assert comm.all_gather(whole[mine], out=whole) is whole
        assert (whole == np.concatenate([other[:n] for other in parts])).all()
        whole[:] = 0
        comm.all_gather(parts[R][:n], out=whole)
        assert (whole == np.concatenate([other[:n] for other in parts])).all()
        if comm._chooser.inputs.algorithm != "ring":
            everything = np.concatenate([other[mine] for other in parts])
            assert (comm.all_to_all(parts[R], out=np.zeros(n * N, dtype)) == everything).all()
            array = parts[R].copy()
            assert (comm.all_to_all(array, out=array) == everything).all()
average = comm.reduce_scatter(np.full(2 * N, R + 1.0), "avg", out=np.zeros(2))
assert (average == (N + 1) / 2).all()
for wrong, kind in ((np.zeros(7), weft.InputError), (np.zeros(1, np.float32), TypeError)):
    for call in (comm.all_gather, comm.reduce_scatter):
        try:
            call(np.zeros(N if call == comm.reduce_scatter else 1), out=wrong)
        except kind as error:
            assert "out" in str(error)
        else:
            raise AssertionError(call)
"""

NATIVE = """
import sys
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], algorithm=sys.argv[2])
R, N = comm.rank, comm.size
"""

MEANWHILE = """
import time
array = np.full(3 * N, R + 1.0)
if R == 2:
    time.sleep(0.5)
work = comm.reduce_scatter(array, async_op=True)
end = time.monotonic() + 60
while not work.is_completed():
    assert (array == R + 1).all(), array  # the last rank comes late: the shares of the others are in by then
    assert time.monotonic() < end
assert (work.wait() == 6).all()
"""


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_the_input_of_a_reduce_scatter_may_be_read_meanwhile(
    tmp_path: Path, transport: str, algorithm: str
) -> None:
    run_ranks(tmp_path, 3, NATIVE + MEANWHILE, transport, algorithm)


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_results_go_where_the_caller_wants_them(tmp_path: Path, transport: str, algorithm: str) -> None:
    run_ranks(tmp_path, 3, NATIVE + OUT, transport, algorithm)


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_results_go_where_the_caller_wants_them_on_any_engine(tmp_path: Path, engine: str) -> None:
    run_engine(engine, tmp_path, 2, "comm = begin()\nR, N = comm.rank, comm.size\n" + OUT)


TURNS = """
import numpy as np
import weft

comm = weft.init()
N = comm.size

def three():
    return [comm.all_reduce(np.full(3, comm.rank + i))[0] for i in range(3)]

before = comm.all_reduce(np.ones(9), async_op=True)
turn = comm.in_turn(three, async_op=True)
after = comm.all_reduce(np.ones(4), async_op=True)
expected = [sum(range(N)) + N * i for i in range(3)]
assert turn.wait(30) == expected and before.wait(30)[0] == after.wait(30)[0] == N
assert comm.in_turn(three) == expected
"""


def test_several_operations_in_one_turn(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, TURNS)


UNEVEN = """
import numpy as np
import weft
from weft.algorithms import registry
from weft.schedule.passes import halves

tree = registry.find("double_binary_tree").build(weft.load_topology("fullmesh:3"), "all_reduce", 0)
comm = weft.init(schedule=halves(tree)[0])
share = comm.reduce_scatter(np.arange(12.0))
sizes = comm.all_gather(np.array([len(share)]))
assert sizes.sum() == 12 and sizes[2] == 0, sizes
first = int(sizes[: comm.rank].sum())
assert (share == comm.size * np.arange(first, first + len(share))).all(), share
"""


def test_a_rank_that_a_schedule_gives_nothing_has_an_empty_share(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, UNEVEN)


CLOSED = """
import numpy as np
import weft

comm = weft.init()
N = comm.size

def three():
    return [comm.all_reduce(np.full(100_000, comm.rank + i))[0] for i in range(3)]

works = [comm.in_turn(three, async_op=True) for _ in range(5)]
comm.close()
expected = [sum(range(N)) + N * i for i in range(3)]
assert [work.wait(30) for work in works] == [expected] * 5
try:
    comm.in_turn(three)
except weft.RuntimeFailure as error:
    assert "has closed" in str(error)
else:
    raise AssertionError
"""


def test_a_communicator_that_is_closed_finishes_the_turns_that_were_started(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, CLOSED)
