"""Sweeps on real clusters of Dask and Ray, on loopback: what comes out is what this process gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.dask_cluster import dask_cluster
from support.ray_environment import ray_environment
from support.sweep_points import two_hundred, without_times, words_for

from weft.errors import InputError
from weft.planning import compare_points, plan
from weft.sweeps import open_executor
from weft.training.sweep import sweep

WEFT = [sys.executable, "-m", "weft"]
DEADLINE_S = 110


@pytest.fixture(scope="module")
def serial() -> list[dict[str, Any]]:
    return without_times(sweep(two_hundred()))


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as address:
        yield f"dask:{address}"


@pytest.fixture
def ray(tmp_path: Path) -> Iterator[dict[str, str]]:
    with ray_environment(tmp_path) as environment:
        yield environment


def run(words: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WEFT, *words],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_two_hundred_jobs_on_dask_give_what_this_process_gives(
    dask: str, serial: list[dict[str, Any]]
) -> None:
    done = run([*words_for(), "--executor", dask, "--deadline", "100"])
    assert done.returncode == 0, done.stderr
    assert without_times(json.loads(done.stdout)["results"]) == serial


def test_two_hundred_jobs_on_ray_give_what_this_process_gives(
    ray: dict[str, str], serial: list[dict[str, Any]]
) -> None:
    done = run([*words_for(), "--executor", "ray", "--jobs", "2", "--deadline", "100"], ray)
    assert done.returncode == 0, done.stderr
    assert without_times(json.loads(done.stdout)["results"]) == serial


def test_comparisons_and_plans_on_dask_are_those_of_this_process(dask: str) -> None:
    where = (["ring:4", "hosts:4,2"], ["64KiB", "16MiB"])
    with open_executor(dask) as executor:
        compared = compare_points(*where, executor=executor, deadline_s=100)
        planned = plan("hosts:4,2", "16MiB", executor=executor)
    assert [[(row.algorithm, row.seconds) for row in one.results] for one in compared] == [
        [(row.algorithm, row.seconds) for row in one.results] for one in compare_points(*where)
    ]
    alone = plan("hosts:4,2", "16MiB")
    assert [one.schedule.digest for one in planned.schedules] == [
        one.schedule.digest for one in alone.schedules
    ]


def test_comparisons_and_plans_on_ray_are_printed_as_without(ray: dict[str, str]) -> None:
    for words in (["compare", "hosts:4,2", "--size", "1MiB"], ["plan", "hosts:4,2", "--size", "16MiB"]):
        alone, there = run(words), run([*words, "--executor", "ray", "--jobs", "2"], ray)
        assert there.returncode == 0, there.stderr
        assert [line for line in there.stdout.splitlines() if "CPU" not in line] == [
            line for line in alone.stdout.splitlines() if "CPU" not in line
        ]


def test_a_scheduler_that_is_not_there_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.sweeps.executors._START_S", 1.0)
    with (
        pytest.raises(InputError, match="no scheduler answers there"),
        open_executor("dask:tcp://127.0.0.1:9"),
    ):
        raise AssertionError


def test_a_scheduler_without_workers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.sweeps.executors._START_S", 5.0)
    with (
        dask_cluster(tmp_path, workers=0) as address,
        pytest.raises(InputError, match="the scheduler has no workers"),
        open_executor(f"dask:{address}"),
    ):
        raise AssertionError


def test_an_interrupted_sweep_on_ray_leaves_no_process(ray: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*WEFT, "compare", "torus:16x16", "--executor", "ray", "--jobs", "2"],
        env=os.environ | ray,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    mark = f"WEFT_TEST_MARK={ray['WEFT_TEST_MARK']}".encode()
    end = time.monotonic() + 60
    while len(marked(mark)) < 5:  # the command, and processes of Ray's
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), error
    while marked(mark):
        assert time.monotonic() < end + 60
        time.sleep(0.1)


def marked(mark: bytes) -> list[int]:
    """Processes that live and have inherited a mark."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it is gone, or somebody else's
    return found
