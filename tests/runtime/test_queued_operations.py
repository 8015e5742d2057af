"""Operations that are queued behind others: what they work on, why they are refused, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

PRELUDE = """
import os, sys, time
import numpy as np
import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
R, N = comm.rank, comm.size
"""

LATER = """
def strided():
    return np.ones(400_006, np.float32)[::2]

def plain():
    return np.ones(200_003, np.float32)

for make in (plain, strided):
    x = make()
    for handle in [comm.all_reduce(x, async_op=True) for _ in range(3)]:
        handle.wait()
    assert (x == N**3).all(), ("all_reduce", make.__name__, x[:2])

    x = make()
    handle = comm.all_reduce(x, async_op=True)
    comm.all_reduce(x)
    assert (x == N**2).all(), ("blocking all_reduce", make.__name__, x[:2])

    for name in ("reduce", "reduce_scatter", "all_gather", "gather", "broadcast"):
        x = make()
        handle = comm.all_reduce(x, async_op=True)
        got = getattr(comm, name)(x, async_op=True).wait()
        want = N**2 if "reduce" in name else N
        if got is not None and (R == 0 or name != "reduce"):
            assert (np.asarray(got) == want).all(), (name, make.__name__, np.unique(got))

    x, y = make(), np.zeros(200_003, np.float32)
    comm.all_reduce(x, async_op=True)
    comm.send_recv(x, (R + 1) % N, y, (R - 1) % N)
    assert (y == N).all(), ("send_recv", make.__name__, y[:2])

    x = make()
    halves = comm.halves(200_003)
    first, second = halves.reduce(x, async_op=True), halves.gather(x, async_op=True)
    first.wait(), second.wait()
    assert (x == N).all(), ("halves", make.__name__, np.unique(x))
comm.close()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_queued_operation_takes_arrays_as_they_are_when_its_turn_comes(
    tmp_path: Path, transport: str
) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, PRELUDE + LATER, transport)):
        assert code == 0, output


EMPTIED = """
x = np.ones(200_006, np.float32)[::2]
handle = comm.all_reduce(x, async_op=True)
idle = comm._worker.idle

def idle_after_it():
    handle.wait()
    return idle()

comm._worker.idle = idle_after_it
comm.all_reduce(x, kind="of another kind, so that nothing looks at the queue before the array is copied")
assert (x == N**2).all(), x[:2]
comm.close()
"""


def test_a_call_takes_an_array_as_the_queue_left_it_that_became_empty_meanwhile(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, PRELUDE + EMPTIED, "auto")):
        assert code == 0, output


REFUSED = """
a, b = np.full(4, 1.0), np.full(4, 100.0)
try:
    comm.all_reduce(a, async_op=True, timeout=-1 if R == 0 else 5)
except weft.InputError:
    assert R == 0
    comm.all_reduce(a, async_op=True)
comm.all_reduce(b, async_op=True).wait()
assert (a == N).all() and (b == 100 * N).all(), (a, b)
comm.close()
"""


def test_a_wrong_timeout_is_refused_by_the_call_and_nothing_is_queued(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, PRELUDE + REFUSED, "auto")):
        assert code == 0, output


FULL = """
import warnings
warnings.simplefilter("ignore")
held = []
if R == 1:
    for size in (1 << bits for bits in range(19, 5, -1)):
        try:
            while True:
                held.append(comm.empty(size, np.uint8))
        except weft.LimitError:
            pass
for step in (1, 100):
    x = np.full(500_000, float(step), np.float32)
    comm.all_reduce(x)
    assert (x == N * step).all(), x[:2]
comm.barrier()
comm.close()
"""


def test_a_rank_whose_arena_is_full_takes_part_all_the_same(tmp_path: Path) -> None:
    full = PRELUDE.replace("timeout=20", "timeout=20, algorithm='recursive_doubling'") + FULL
    ranks = start_ranks(tmp_path, 3, full, "auto", variables={"WEFT_ARENA": "4MiB"})
    for code, output in finish(ranks):
        assert code == 0, output


OUT_OF_MEMORY = """
class Exhausted:
    def __getattr__(self, name):
        return getattr(engine, name)

    def run(self, *args):
        raise MemoryError("no memory for this operation")

comm.all_reduce(np.ones(3))
engine = comm._engine
if R == 1:
    comm._engine = Exhausted()
    comm._known.clear()
try:
    comm.all_reduce(np.ones(3))
    print("done")
except weft.RuntimeFailure as failure:
    print(type(failure).__name__, getattr(failure, "ranks", None), failure)
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_rank_that_runs_out_of_memory_in_an_operation_is_named_by_all(
    tmp_path: Path, transport: str
) -> None:
    said = [output for _, output in finish(start_ranks(tmp_path, 3, PRELUDE + OUT_OF_MEMORY, transport))]
    assert "could not do its part" in said[1]
    assert "no memory for this operation" in said[1]
    for output in (said[0], said[2]):
        assert "PeerLost" in output, output
        assert "rank 1" in output, output


NESTED = """
def outer():
    comm.in_turn(lambda: comm.all_reduce(np.ones(3)))
    return comm.all_reduce(np.ones(3))

assert (comm.in_turn(outer, async_op=True).wait() == N).all()
assert (comm.in_turn(outer) == N).all()
comm.barrier()
comm.in_turn(comm.abort, async_op=True).wait()
try:
    comm.all_reduce(np.ones(3))
except weft.RuntimeFailure as failure:
    print("refused")
"""


def test_turns_may_be_nested_and_abort_may_be_called_within_an_operation(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, PRELUDE + NESTED, "auto")):
        assert code == 0, output
        assert "refused" in output


FORKED = """
if R == 0:
    future = comm.all_reduce(np.ones(3), async_op=True).future
    child = os.fork()
    if child == 0:
        refused = 0
        for ask in (future.result, future.exception):
            try:
                ask(20)
            except weft.RuntimeFailure as failure:
                refused += "forked" in str(failure)
        os._exit(0 if refused == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    comm.barrier()
else:
    time.sleep(0.5)
    comm.all_reduce(np.ones(3))
    comm.barrier()
comm.close()
"""


def test_a_future_is_not_waited_for_in_a_forked_child(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, PRELUDE + FORKED, "auto")):
        assert code == 0, output
