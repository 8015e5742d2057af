"""Single ranks that deal with each other, and communicators of some of the ranks: on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PRELUDE, run_engine
from support.jobs import finish, run_ranks, start_ranks

WAYS = ["auto", "tcp", "mpi", "torch"]


def run_way(way: str, folder: Path, ranks: int, source: str) -> list[str]:
    """What the ranks said, over a transport of Weft's own or over another engine."""
    if way in ("mpi", "torch"):
        return run_engine(way, folder, ranks, source)
    own = source.replace("begin(", f"begin(transport={way!r}, ")
    ended = finish(start_ranks(folder, ranks, PRELUDE + own, "native", str(folder)))
    assert [code for code, _ in ended] == [0] * ranks, ended
    return [output.strip()[3:-2] for _, output in ended]


DEALINGS = """
comm = begin(timeout=20)
R, N = comm.rank, comm.size
after, before = (R + 1) % N, (R - 1) % N
for n in (0, 1, 7, 4097, 200_000):
    for dtype in ("float32", "int64", "float16"):
        if R == 0:
            for other in range(1, N):
                comm.send(np.full(n, other, dtype), other)
        else:
            room = np.empty(n, dtype)
            assert comm.recv(room, 0) is room and (room == R).all()
        # Everybody to its neighbour: with send and recv one of them would have to begin.
        room = comm.empty(n, dtype)
        comm.send_recv(np.full(n, R, dtype), after, room, before)
        assert (room == before).all()
        comm.send_recv(np.full(2 * n, R, dtype)[::2], R ^ 1, room, R ^ 1)
        assert (room == R ^ 1).all()
        assert (comm.all_reduce(np.full(n, R, dtype)) == sum(range(N))).all()
works = [comm.send(np.full(10, i, np.int32), 1, async_op=True) for i in range(20)] if R == 0 else []
if R == 1:
    for i in range(20):
        assert (comm.recv(np.empty(10, np.int32), 0) == i).all()
for work in works:
    work.wait(10)
assert (comm.last.algorithm == "point to point") == (R in (0, 1))
for call in (lambda: comm.send(np.ones(3), R), lambda: comm.recv(np.ones(3), N)):
    try:
        call()
    except weft.InputError as error:
        assert "has no peer" in str(error)
    else:
        raise AssertionError("a rank has no dealings with itself")
try:
    comm.send_recv(np.ones(3), after, np.ones(3, np.float32), before)
except TypeError as error:
    assert "one type" in str(error)
comm.barrier()
comm.close()
say("dealt")
"""


@pytest.mark.parametrize("way", WAYS)
def test_ranks_deal_with_each_other(tmp_path: Path, way: str) -> None:
    assert run_way(way, tmp_path, 4, DEALINGS) == ["dealt"] * 4


SIZES = """
comm = begin(timeout=20)
R = comm.rank
comm.barrier()
try:
    if R == 0:
        comm.send(np.ones(5, np.float32), 1)
    else:
        comm.recv(np.ones(6, np.float32), 0)
except weft.DesyncError as error:
    assert error.rank == 1 - R
    say("told")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_receiver_of_another_size_is_told(tmp_path: Path, way: str) -> None:
    assert run_way(way, tmp_path, 2, SIZES) == ["told"] * 2


PARTS = """
comm = begin(timeout=20)
R, N = comm.rank, comm.size
mine = [rank for rank in range(N) if rank % 2 == R % 2]
part = comm.split(R % 2)
assert (part.rank, part.size) == (mine.index(R), len(mine))
assert (part.all_reduce(np.full(100_000, R, np.float32)) == sum(mine)).all()
assert list(part.all_gather(np.array([R], np.int32))) == mine
shared = comm.empty(70_000)  # the parts know the memory of the whole
shared[:] = R
assert (part.all_reduce(shared) == sum(mine)).all()
inner = part.split(0 if part.rank else None)
assert (inner is None) == (part.rank == 0)
if inner is not None:
    assert (inner.all_reduce(np.ones(9)) == len(mine) - 1).all()
outer = comm.split(None if R == 0 else 7)
if R:
    work = outer.all_reduce(np.ones(50_000), async_op=True)
    assert (outer.size, outer.rank) == (N - 1, R - 1)
    assert (work.wait(10) == N - 1).all()
for _ in range(20):  # more than there is room for at a time
    with comm.split(0, algorithm="ring") as again:
        assert (again.all_reduce(np.ones(3)) == N).all() and again.last.algorithm == "ring"
assert (comm.all_reduce(np.ones(5)) == N).all()
comm.close()
try:
    part.barrier()
except weft.RuntimeFailure as error:
    assert "has closed" in str(error)
say("parted")
"""


@pytest.mark.parametrize("way", WAYS)
def test_some_of_the_ranks_make_a_communicator(tmp_path: Path, way: str) -> None:
    assert run_way(way, tmp_path, 5, PARTS) == ["parted"] * 5


ORDERED = """
comm = begin(timeout=20)
part = comm.split(3, -comm.rank)
assert list(part.all_gather(np.array([comm.rank], np.int64))) == [2, 1, 0]
R = comm.rank
say("ordered")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_key_orders_the_ranks_of_a_part(tmp_path: Path, way: str) -> None:
    assert run_way(way, tmp_path, 3, ORDERED) == ["ordered"] * 3


FULL = """
comm = begin(timeout=20)
R = comm.rank
kept = []
try:
    for _ in range(40):
        kept.append(comm.split(0))
except weft.LimitError as error:
    assert "close some" in str(error)
kept.pop().close()
comm.split(0).barrier()
say(len(kept))
"""


def test_there_is_room_for_so_many_communicators(tmp_path: Path) -> None:
    assert run_way("auto", tmp_path, 2, FULL) == ["14"] * 2


MISUSED = """
import pytest
from weft.planning import plan, save_plan

comm = begin(timeout=20)
R, N = comm.rank, comm.size
path = f"{FOLDER}/plan{R}.weft"
save_plan(plan("ring:2", "1MiB", algorithms="ring"), path)
other = plan("ring:3", "1MiB", algorithms="ring")
unfit = ({"algorithm": "nonsense"}, {"topology": "ring:3"}, {"plan": other}, {"plan": "nowhere.weft"})
for _ in range(20):  # more than there is room for at a time
    for wrong in unfit:
        with pytest.raises(weft.WeftError):
            comm.split(0, **wrong)
    with pytest.raises(weft.InputError, match="timeout"):
        comm.duplicate(timeout=-1)
part = comm.split(0, plan=path)
assert part.plan is not None and (part.all_reduce(np.ones(9)) == N).all()
assert (comm.all_reduce(np.ones(9)) == N).all()
comm.close()
say("whole")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_split_that_is_refused_keeps_no_room(tmp_path: Path, way: str) -> None:
    assert run_way(way, tmp_path, 2, MISUSED) == ["whole"] * 2


LOST = """
import logging, signal
logging.getLogger("weft").setLevel(logging.ERROR)
comm = begin(timeout=20)
R = comm.rank
part = comm.split(0 if R in (0, 3) else 1)
comm.barrier()
if R == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if R in (0, 3):  # nothing has happened to these two
    for _ in range(20):
        assert (part.all_reduce(np.ones(1000)) == 2).all()
        time.sleep(0.02)
    say("unharmed")
else:
    try:
        part.barrier()
    except weft.PeerLost as error:
        say("lost", error.rank, error.pid > 0)
"""


@pytest.mark.parametrize("way", ["auto", "tcp"])
def test_a_part_without_the_dead_goes_on(tmp_path: Path, way: str) -> None:
    source = PRELUDE + LOST.replace("begin(", f"begin(transport={way!r}, ")
    ended = finish(start_ranks(tmp_path, 4, source, "native", str(tmp_path)))
    assert [output.strip() for _, output in ended] == [
        "<0 unharmed >",
        "",
        "<2 lost 0 True >",
        "<3 unharmed >",
    ]


CYCLES = """
import os
import sys
from pathlib import Path
import numpy as np
import weft

def used():
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0]) << 10, len(os.listdir("/proc/self/fd")), int(rows["Threads"])

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
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_parts_that_were_closed_leave_nothing(tmp_path: Path, transport: str) -> None:
    run_ranks(tmp_path, 3, CYCLES, transport)


def test_a_rank_that_dies_while_a_part_connects_is_named_at_once(tmp_path: Path) -> None:
    source = Path(__file__).with_name("jobs").joinpath("dying_split.py").read_text("utf-8")
    said = [output.strip() for _, output in finish(start_ranks(tmp_path, 4, source))]
    assert said == ["2 True True", "2 True True", "", "2 True True"]


def test_a_rank_that_leaves_because_another_died_is_not_taken_for_that_one(tmp_path: Path) -> None:
    source = Path(__file__).with_name("jobs").joinpath("leaving_after_a_loss.py").read_text("utf-8")
    for _ in range(5):  # each job has a chance of a third or more to show it
        job = start_ranks(tmp_path, 3, source, variables={"WEFT_FLIGHT_DIR": ""})
        said = [output.strip() for _, output in finish(job)]
        assert said == ["2", "1", ""]  # rank 2 of all is rank 1 of the part
