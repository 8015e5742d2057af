"""An all-reduce in two parts, on every engine and over planned, halved and default schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PRELUDE, run_engine
from support.jobs import finish, start_ranks

import weft
from weft.algorithms import recursive_doubling
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

PARTS = """
comm = begin(timeout=20, BEGIN)
R, N = comm.rank, comm.size
PLAN
for dtype in ("float32", "int64", "float16"):
    for n in (0, 1, N, 4097, 100_000):
        halves = comm.halves(n, dtype)
        spans = sorted(span for span in halves.owned if span[0] < span[1])
        assert not n or (spans[0][0], spans[-1][1]) == (0, n)
        assert all(a[1] == b[0] for a, b in zip(spans, spans[1:]))
        array = (np.arange(n) % 10 + R).astype(dtype)
        whole = sum((np.arange(n) % 10 + r).astype(dtype) for r in range(N))
        work = halves.reduce(array, async_op=True)
        assert work.wait(20) is array
        assert (array[halves.mine] == whole[halves.mine]).all(), (dtype, n)
        array[halves.mine] *= 2
        halves.gather(array)
        assert (array == 2 * whole).all(), (dtype, n)
        assert N == 1 or "second half" in comm.last.collective
try:
    halves.reduce(np.ones(3, np.float32))
except weft.InputError as error:
    assert "expected 100000 x float16" in str(error)
else:
    raise AssertionError("another size was taken")
say(comm.last.algorithm if N > 1 else "")
"""


def run(folder: Path, ranks: int, begin: str = "", plan: str = "", way: str = "native") -> list[str]:
    source = PARTS.replace("BEGIN", begin).replace("PLAN", plan)
    if way != "native":
        return run_engine(way, folder, ranks, source)
    ended = finish(start_ranks(folder, ranks, PRELUDE + source, "native", str(folder)))
    assert [code for code, _ in ended] == [0] * ranks, ended
    return [output.strip()[3:-2] for _, output in ended]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_halves_make_an_all_reduce(tmp_path: Path, ranks: int) -> None:
    run(tmp_path, ranks)


@pytest.mark.parametrize("way", ["mpi", "torch"])
def test_the_halves_run_on_other_engines(tmp_path: Path, way: str) -> None:
    run(tmp_path, 3, way=way)


def test_the_halves_run_over_sockets(tmp_path: Path) -> None:
    run(tmp_path, 4, "transport='tcp'")


@pytest.mark.parametrize("algorithm", ["forest", "ring", "recursive_doubling", "double_binary_tree"])
def test_the_halves_of_an_algorithm_are_its_own_where_it_has_some(tmp_path: Path, algorithm: str) -> None:
    said = run(tmp_path, 4, f"topology='torus:2x2', algorithm={algorithm!r}")
    assert all((algorithm in one) != (algorithm == "recursive_doubling") for one in said)


def test_halves_that_were_planned_are_used(tmp_path: Path) -> None:
    options = "topology='torus:2x2@bw=12.5MB/s,lat=20us', plan_time_limit=2"
    run(tmp_path, 4, options, "comm.plan_halves(time_limit=4)")


def test_whichever_halves_are_predicted_faster_are_chosen() -> None:
    # On a mesh forest's all-reduce fills every link with both of its halves at once.
    network = weft.load_topology("mesh:3x3@bw=12.5MB/s,lat=20us")
    planned = [weft.plan(network, "4MB", collective=name) for name in ("reduce_scatter", "all_gather")]
    whole = weft.plan(network, "4MB", algorithms="forest")
    first, second = ScheduleSelector(9, load_inputs(plan=whole), further=planned).choose_halves(4_000_000)
    assert first[0].digest == planned[0].choose(4_000_000).schedule.digest
    assert second[0].digest == planned[1].choose(4_000_000).schedule.digest
    first, _ = ScheduleSelector(9, load_inputs(plan=whole)).choose_halves(4_000_000)
    assert first[0].algorithm == "forest"


def test_what_has_no_halves_is_replaced() -> None:
    whole = recursive_doubling.all_reduce(weft.load_topology("fullmesh:4"))
    first, second = ScheduleSelector(4, load_inputs(schedule=whole)).choose_halves(1000)
    assert first[0].algorithm == second[0].algorithm == "direct"
