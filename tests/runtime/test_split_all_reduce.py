"""An all-reduce in two parts, on every engine and over planned, halved and default schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.engines import run_engine

import weft
from weft.algorithms import recursive_doubling
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

JOB = Path(__file__).with_name("jobs") / "halves_of_all_reduce.py"


def run(folder: Path, ranks: int, way: str = "native", plan_s: float = 0.0, **options: object) -> list[str]:
    return run_engine(way, folder, ranks, JOB, json.dumps(options), str(plan_s))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_halves_make_an_all_reduce(tmp_path: Path, ranks: int) -> None:
    run(tmp_path, ranks)


@pytest.mark.parametrize("way", ["mpi", "torch"])
def test_the_halves_run_on_other_engines(tmp_path: Path, way: str) -> None:
    run(tmp_path, 3, way=way)


def test_the_halves_run_over_sockets(tmp_path: Path) -> None:
    run(tmp_path, 4, "native:tcp")


@pytest.mark.parametrize("algorithm", ["forest", "ring", "recursive_doubling", "double_binary_tree"])
def test_the_halves_of_an_algorithm_are_its_own_where_it_has_some(tmp_path: Path, algorithm: str) -> None:
    said = run(tmp_path, 4, topology="torus:2x2", algorithm=algorithm)
    assert all((algorithm in one) != (algorithm == "recursive_doubling") for one in said)


def test_halves_that_were_planned_are_used(tmp_path: Path) -> None:
    run(tmp_path, 4, plan_s=4.0, topology="torus:2x2@bw=12.5MB/s,lat=20us", plan_time_limit=2)


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
