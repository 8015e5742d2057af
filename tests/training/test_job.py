"""`weft.train`: what the command computes, from Python, with names or with objects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.algorithms import ring
from weft.errors import InputError, VerificationError
from weft.schedule import Schedule, ScheduleBuilder
from weft.topology import load_topology
from weft.training import TrainingJob, find_device, find_endpoint, load_workload
from weft.training.schedules import by_schedule, verified

SLOW = "switch:4@bw=600MB/s,lat=25us"


def without_last_step(schedule: Schedule) -> Schedule:
    """Leave out what completes a schedule."""
    kept = schedule.step < schedule.steps - 1
    builder = ScheduleBuilder(schedule.topology, schedule.collective, schedule.algorithm)
    columns = {name: getattr(schedule, name)[kept] for name in ("step", "chunk", "src", "dst", "op")}
    builder.add(**columns)
    return builder.build()


def test_names_and_objects_give_the_same_figures() -> None:
    named = weft.train("resnet50", SLOW, policy="ddp", endpoint="ideal").to_dict()
    given = weft.train(
        load_workload("resnet50"),
        load_topology(SLOW),
        policy="ddp",
        device=find_device("v100"),
        endpoint=find_endpoint("ideal"),
    ).to_dict()
    assert {**named, "simulation_seconds": 0} == {**given, "simulation_seconds": 0}


def test_a_job_is_its_arguments() -> None:
    job = TrainingJob("resnet50", SLOW, policy="dear", fusion="1MiB", options={"prefetch": 2})
    found = job.run()
    assert found.job is job
    assert found.options == {"threshold_bytes": 1 << 20, "prefetch": 2}
    assert found.seconds < replace(job, stragglers={1: 1.5}).run().seconds


def test_a_plan_brings_its_schedules_and_says_so() -> None:
    plan = weft.plan("torus:2x2", "1MB", algorithms=["ring"])
    found = weft.train("resnet50", plan, policy="wfbp")
    assert found.planned == "all_reduce"
    assert found.algorithms() == {"all_reduce": ["ring"]}
    assert weft.train("resnet50", plan, policy="wfbp", algorithm="ring").planned is None


def test_a_schedule_that_is_wrong_is_refused_before_it_is_used() -> None:
    topology = load_topology("ring:4")
    good = ring.all_reduce(topology)
    assert weft.train("resnet50", topology, policy="wfbp", algorithm=by_schedule(good)).seconds > 0
    with pytest.raises(VerificationError):
        weft.train("resnet50", topology, policy="wfbp", algorithm=by_schedule(without_last_step(good)))


def test_every_schedule_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Schedule] = []
    monkeypatch.setattr("weft.training.schedules.verify", lambda schedule, **_: checked.append(schedule))
    schedules = [ring.all_reduce(load_topology(f"ring:{ranks}")) for ranks in (3, 4)]
    choose = verified(lambda _collective, size: (schedules[size], None))
    assert [choose("all_reduce", size)[0] for size in (0, 1, 0, 1)] == schedules * 2
    assert checked == schedules


def test_a_trace_needs_a_recording(tmp_path: Path) -> None:
    job = TrainingJob("multitree-alphagozero", "ring:2", policy="wfbp")
    with pytest.raises(InputError, match="record=True"):
        job.run().save_trace(tmp_path / "t.json")
    job.run(record=True).save_trace(tmp_path / "t.json")
    assert (tmp_path / "t.json").stat().st_size
