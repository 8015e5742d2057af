"""Topologies, schedules and errors survive the trip to a worker process and back."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import weft


def simulate(schedule: weft.Schedule) -> int:
    return weft.simulate(schedule, "1MB").time_ps


def refuse(spec: str) -> None:
    weft.load_topology(spec)


def test_a_schedule_is_simulated_in_another_process() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    here = simulate(schedule)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(simulate, schedule).result(timeout=60) == here
        refused = pool.submit(refuse, "torus:0x4")
        with pytest.raises(weft.TopologyError, match="zero"):
            refused.result(timeout=60)


def test_copies_are_the_same_and_cannot_be_changed() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    assert copy.copy(schedule) is copy.deepcopy(schedule) is schedule
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    with pytest.raises(ValueError, match="WRITEABLE"):
        again.src.flags.writeable = True


def test_a_forged_copy_is_checked() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    kind, parts = schedule.__reduce__()
    forged = [np.full_like(part, 99) if part is schedule.src else part for part in parts]
    with pytest.raises(weft.ScheduleError, match="src 99 is outside"):
        kind(*forged)
