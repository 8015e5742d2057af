"""A user's script, as `mypy --strict` sees it: every public name has types that say something."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import weft
from weft.runtime import Handle
from weft.schedule import halves
from weft.training import TrainingResult


def design() -> None:
    """Compare, plan, simulate and verify."""
    topology = weft.load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    assert_type(topology, weft.Topology)
    comparison = weft.compare(topology, "64MiB", "all_reduce")
    assert_type(comparison, weft.Comparison)
    plan = weft.plan(topology, "all_reduce")
    assert_type(plan, weft.Plan)
    schedule = weft.algorithms.ring.all_reduce(topology)
    assert_type(schedule, weft.Schedule)
    result = weft.simulate(schedule, 1 << 20)
    assert_type(result, weft.SimulationResult)
    report = weft.verify(schedule)
    assert_type(report, weft.VerificationReport)
    first, second = halves(schedule)
    assert_type(first, weft.Schedule)
    assert_type(second, weft.Schedule)
    weft.save_schedule(schedule, "ring.weft")
    weft.save_topology(topology, "torus.toml")
    predicted = weft.train("resnet50", topology, policy="dear")
    assert_type(predicted, TrainingResult)
    bound = weft.bounds.lower_bound(topology, "all_reduce", 1 << 20)
    assert_type(bound.seconds, float)


def train() -> None:
    """Run collectives."""
    with weft.init(timeout=30.0, transport="tcp") as comm:
        array: NDArray[np.float32] = np.ones(1000, np.float32)
        assert_type(comm.all_reduce(array), NDArray[np.float32])
        assert_type(comm.all_reduce(array, async_op=True), Handle[NDArray[np.float32]])
        total: NDArray[np.float32] = comm.all_gather(array)
        handle = comm.reduce_scatter(array, "max", async_op=True)
        share = handle.wait()
        print(total.shape, share.shape)
        try:
            comm.barrier()
        except (ConnectionError, TimeoutError) as error:
            print(error)
