"""A user's script, as `mypy --strict` sees it: every public name has types that say something."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import weft
from weft.runtime import Handle
from weft.schedule import halves


def design() -> None:
    """Compare, plan, simulate and verify."""
    topology = weft.load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    assert_type(topology, weft.Topology)
    comparison = weft.compare(topology, "all_reduce", 1 << 20)
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
    bound = weft.bounds.lower_bound(topology, "all_reduce", 1 << 20)
    assert_type(bound.seconds, float)


def train() -> None:
    """Run collectives."""
    with weft.init(timeout=30.0, transport="tcp") as comm:
        array = np.ones(1000, np.float32)
        assert_type(comm.all_reduce(array), None)
        assert_type(comm.all_reduce(array, async_op=True), Handle[None])
        gathered = comm.all_gather(array)
        total: NDArray[np.float32] = gathered
        handle = comm.reduce_scatter(array, "max", async_op=True)
        share = handle.wait()
        print(total.shape, share.shape)
        try:
            comm.barrier()
        except (ConnectionError, TimeoutError) as error:
            print(error)
