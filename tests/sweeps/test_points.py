"""Sweeps on processes, MPI and threads give what this process alone gives, and what travels is complete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from support.clusters import clusters
from support.engines import AS_ROOT, MPIRUN
from support.sweep_points import SIZES, TWO_SIZES, points_of, without_times, words_for

import weft
from weft.algorithms.registry import find
from weft.algorithms.resolver import resolve_algorithm
from weft.errors import InputError
from weft.planning import Comparison, Plan, compare_points
from weft.planning.point_text import read_algorithm, read_network, write_algorithm, write_network
from weft.sweeps import open_executor
from weft.training.job import TrainingJob
from weft.training.job_text import read_job, write_job
from weft.training.sweep import SweepPoint, expand, sweep


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with open_executor("processes", 2) as executor:
        yield executor


MANY = pytest.param(SIZES, marks=pytest.mark.slow, id="200")
FEW = pytest.param(TWO_SIZES, id="40")


@pytest.mark.parametrize("sizes", [FEW, MANY])
def test_jobs_on_processes_and_on_mpi_give_what_this_process_gives(
    processes: Executor, sizes: list[str]
) -> None:
    serial = without_times(sweep(points_of(sizes=sizes)))
    assert len(serial) == 20 * len(sizes)
    assert without_times(sweep(points_of(sizes=sizes), processes, deadline_s=100)) == serial
    start = [MPIRUN, "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "weft"]
    done = subprocess.run(
        [*start, *words_for(sizes=sizes), "--executor", "mpi", "--deadline", "100"],
        env=os.environ | AS_ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert without_times(json.loads(done.stdout)["results"]) == serial


def timeless(found: Comparison) -> dict[str, Any]:
    document = found.to_dict()
    for row in document["results"]:
        del row["synthesis_seconds"], row["simulation_seconds"]
    return document | {"links": [row.bottleneck for row in found.results]}


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_comparisons_on_processes_give_what_this_process_gives(processes: Executor, collective: Any) -> None:
    where = (["torus:4x4", weft.load_topology("mesh:2x3")], ["64KiB", "64MiB"])
    there = compare_points(*where, collective, time_limit=None, executor=processes)
    assert [timeless(one) for one in there] == [
        timeless(one) for one in compare_points(*where, collective, time_limit=None)
    ]
    assert there[0].topology == weft.load_topology("torus:4x4")


def test_a_wrong_schedule_is_as_wrong_in_a_worker(processes: Executor) -> None:
    ring = weft.load_topology("ring:4")
    wrong = weft.ScheduleBuilder(ring, "all_reduce", "wrong").build()  # nothing is sent
    here, there = (
        compare_points([ring], ["1MiB"], algorithms=[wrong, "ring"], executor=executor)[0]
        for executor in (None, processes)
    )
    assert timeless(here) == timeless(there)
    assert [str(row.problem) for row in here.results] == [str(row.problem) for row in there.results]
    assert not there.verified


def test_a_function_of_ones_own_does_not_travel(processes: Executor) -> None:
    def own(topology: weft.Topology) -> weft.Schedule:
        return find("ring").build(topology, "all_reduce")

    with pytest.raises(InputError, match="workers do not have this function"):
        compare_points(["ring:4"], ["1MiB"], algorithms=[own], executor=processes)
    planned = weft.plan("ring:4", "1MiB", algorithms=[own, "multitree"], executor=processes)
    assert {contender.algorithm for contender in planned.contenders} == {"own", "multitree"}


def without_seconds(plan: Plan) -> dict[str, Any]:
    return {key: value for key, value in plan.to_dict().items() if key != "planning_seconds"}


@pytest.mark.parametrize("size", [None, "64MiB", ["1MiB", "16MiB"]])
def test_a_plan_whose_algorithms_processes_build_is_the_same_plan(processes: Executor, size: Any) -> None:
    here, there = (weft.plan("hosts:4,2", size, executor=executor) for executor in (None, processes))
    assert without_seconds(here) == without_seconds(there)
    assert [one.schedule.digest for one in here.schedules] == [one.schedule.digest for one in there.schedules]
    assert here.complete


def test_a_plan_on_an_executor_keeps_its_time_limit(processes: Executor) -> None:
    found = weft.plan("torus:8x8", executor=processes, time_limit=0.01)
    assert not found.complete
    assert any("time limit" in one.reason for one in found.skipped)


def test_no_algorithm_that_applies_is_the_same_error_on_an_executor(processes: Executor) -> None:
    texts = []
    for executor in (None, processes):
        with pytest.raises(weft.UnsupportedError) as caught:
            weft.plan("ring:6", algorithms=["swing", "hdrm"], executor=executor)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@given(clusters())
def test_a_topology_is_the_same_after_its_way_to_a_worker(topology: weft.Topology) -> None:
    found = read_network(write_network(topology))
    assert found == topology
    assert isinstance(found, weft.Topology)
    assert (found.name, found.digest) == (topology.name, topology.digest)


def test_a_file_travels_as_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    weft.save_topology(weft.load_topology("hosts:3,2"), path)
    text = write_network(str(path))
    path.unlink()
    assert read_network(text) == weft.load_topology("hosts:3,2")
    plan = weft.plan("ring:4", "1MiB", algorithms="ring")
    job = read_job(write_job(TrainingJob("resnet50", plan), scripts=False))
    assert isinstance(job.topology, Plan)
    assert job.topology.to_dict() == plan.to_dict()


def test_a_schedule_travels_with_its_name(tmp_path: Path) -> None:
    schedule = find("ring").build(weft.load_topology("ring:4"), "all_reduce")
    path = tmp_path / "mine.weft"
    weft.save_schedule(schedule, path)
    line = resolve_algorithm(str(path))
    text = write_algorithm(line)
    path.unlink()
    assert read_algorithm(text) == line


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"model": "model.py:make"}, "model model.py:make: is a script"),
        ({"algorithm": "mine.py:own"}, "algorithm mine.py:own: is a script"),
        ({"algorithm": lambda *_: None}, "an algorithm of one's own"),
        ({"topology": "nowhere.toml"}, "nowhere.toml: no such file"),
    ],
)
def test_what_workers_elsewhere_do_not_have_is_an_error_of_its_point(
    fields: dict[str, Any], complaint: str
) -> None:
    job = TrainingJob(**{"model": "multitree-ncf", "topology": "ring:2"} | fields)
    good = TrainingJob("multitree-ncf", "ring:2")
    with ThreadPoolExecutor(1) as threads:
        found = sweep([SweepPoint({}, job), SweepPoint({}, good)], threads)
    assert complaint in found[0]["error"]
    assert found[1]["ranks"] == 2


def test_a_worker_refuses_a_job_that_names_a_script(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise SystemExit('it ran')\n", "utf-8")
    for field in ({"model": f"{tmp_path}/model.py:f"}, {"algorithm": f"{tmp_path}/model.py:f"}):
        job = TrainingJob(**{"model": "resnet50", "topology": "ring:2"} | field)
        text = write_job(job, scripts=True)
        with pytest.raises(InputError) as caught:
            read_job(text)
        assert "it ran" not in str(caught.value)


def test_a_bad_scale_is_told_beside_the_others(processes: Executor) -> None:
    points = expand(TrainingJob("multitree-ncf", "ring:{scale}"), {"scale": ["2", "no", "3"]})
    found = sweep(points, processes)
    assert [row.get("ranks") for row in found] == [2, None, 3]
    assert "ring:no" in found[1]["error"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["compare", "ring:4", "--jobs", "2"], "it is for --executor"),
        (["compare", "ring:4", "--deadline", "2"], "it is for --executor"),
        (["plan", "ring:4", "--jobs", "2"], "it is for --executor"),
        (["compare", "ring:4", "--executor", "threads"], "expected processes, mpi, dask:ADDRESS or ray"),
        (["plan", "ring:4", "--executor", "mpi"], "start it as mpirun"),
        (["plan", "ring:4", "--executor", "mpi", "--jobs", "3"], "leave --jobs out"),
    ],
)
def test_bad_use_is_told_in_one_line(words: list[str], complaint: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_the_commands_print_on_an_executor_what_they_print_without() -> None:
    for words in (
        ["compare", "hosts:4,2", "--size", "1MiB", "--size", "16MiB"],
        ["plan", "hosts:4,2", "--size", "16MiB"],
    ):
        alone, there = run(*words), run(*words, "--executor", "processes", "--jobs", "2")
        assert (there.returncode, there.stderr) == (0, "")
        assert [line for line in there.stdout.splitlines() if "CPU" not in line] == [
            line for line in alone.stdout.splitlines() if "CPU" not in line
        ]


def test_a_sweep_that_is_late_says_how_far_it_was() -> None:
    done = run("compare", "torus:16x16", "--executor", "processes", "--jobs", "1", "--deadline", "0.5")
    assert done.returncode == 3
    assert "of 4 points are done" in done.stderr
    assert done.stderr.count("\n") == 1


HEEDING = """
import signal, sys
import weft.cli
# Whoever runs the tests in the background may have interrupts ignored, which processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(weft.cli.main())
"""


def test_an_interrupted_plan_on_processes_leaves_none_of_them() -> None:
    words = [sys.executable, "-c", HEEDING, "plan", "torus:16x16", "--executor", "processes", "--jobs", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while len(children(process.pid)) < 3:  # two helpers of Python's and a worker
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    started = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    while any(Path(f"/proc/{number}/exe").exists() for number in started):
        assert time.monotonic() < end + 60
        time.sleep(0.05)


def children(number: int) -> list[int]:
    """Processes that a process has started, and those that these have."""
    found: list[int] = []
    for task in Path(f"/proc/{number}/task").glob("*/children"):
        for child in map(int, task.read_text("utf-8").split()):
            found += [child, *children(child)]
    return found
