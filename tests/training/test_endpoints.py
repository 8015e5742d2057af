"""Endpoints: what they take, what they use of a rank, and how an engine's memory is divided."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from weft.algorithms import four_phase, ring
from weft.errors import InputError, LimitError
from weft.simulation import LocalWork, Part
from weft.topology import load_topology
from weft.training.devices import find_device
from weft.training.endpoint_resources import (
    CHANNEL,
    Equipment,
    engine_phases,
    passages,
    phase_steps,
    resources,
)
from weft.training.endpoints import ENDPOINTS, Endpoint, EndpointEngine, find_endpoint

GB = 10**9
CHUNK = 64 << 10
PACKAGES = four_phase.all_reduce(load_topology("ace:4x2x2"))


def busy_bytes(endpoint: Endpoint, chunks: int) -> tuple[dict[str, float], list[Part | LocalWork]]:
    """Bytes that each resource of rank 0 served for some chunks of the all-reduce."""
    equipment = Equipment(PACKAGES.topology, endpoint, PACKAGES, None)
    stages = list(equipment.stages(PACKAGES, equipment.pattern(PACKAGES, CHUNK, None), CHUNK))
    for _ in range(chunks):
        equipment.flow.task("chunk", stages, pool=CHANNEL if equipment.pooled else None)
    topology, run = PACKAGES.topology, equipment.flow.run()
    busy = run.busy_ps[topology.links :].reshape(-1, topology.ranks)[:, 0]
    served = {
        resource.name: float(row) / 1e12 * resource.bandwidth
        for resource, row in zip(equipment.flow.resources, busy, strict=True)
    }
    return served, stages


def test_kernels_read_at_the_slower_of_memory_and_processors() -> None:
    assert ENDPOINTS["comm-opt"].read_bandwidth == 450 * GB
    assert replace(ENDPOINTS["comm-opt"], processors=2).read_bandwidth == 2 * 64 * 1_245_000_000
    assert ENDPOINTS["ace"].read_bandwidth == 128 * GB
    assert ENDPOINTS["ideal"].read_bandwidth is None


def test_what_an_endpoint_takes_computing_lacks() -> None:
    npu = find_device("ace-npu")
    left = {name: endpoint.leaves(npu) for name, endpoint in ENDPOINTS.items()}
    peaks = {name: dict(device.flops_per_s)["fp16"] / 120e12 for name, device in left.items()}
    memory = {name: device.memory_bytes_per_s / 1e9 for name, device in left.items()}
    assert peaks == pytest.approx(
        {"free": 1, "ideal": 1, "no-overlap": 1, "comm-opt": 74 / 80, "comp-opt": 78 / 80, "ace": 1}
    )
    assert memory == pytest.approx(
        {"free": 900, "ideal": 900, "no-overlap": 900, "comm-opt": 450, "comp-opt": 772, "ace": 772}
    )


def test_an_endpoint_that_takes_everything_is_refused() -> None:
    greedy = replace(ENDPOINTS["no-overlap"], overlaps=True)
    with pytest.raises(InputError, match="nothing is left to compute with"):
        greedy.leaves(find_device("ace-npu"))


@pytest.mark.parametrize(
    "figures",
    [
        {"processors": -1},
        {"memory_bandwidth": -5},
        {"bus_bandwidth": 0},
        {"processor_bandwidth": 0},
        {"copy_reads": Fraction(-1)},
        {"chunk_bytes": 0},
        {"message_bytes": 0},
        {"chunk_bytes": None, "engine": EndpointEngine()},
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(figures: dict[str, object]) -> None:
    with pytest.raises(InputError, match="endpoint mine: "):
        Endpoint("mine", "", **figures)  # type: ignore[arg-type]


def test_an_engine_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        EndpointEngine(fsms=0)
    with pytest.raises(LimitError, match="SRAM of an engine"):
        EndpointEngine(sram_bytes=1 << 62)


def test_an_unknown_endpoint_is_told_what_is_close() -> None:
    with pytest.raises(InputError, match="did you mean comm-opt"):
        find_endpoint("commopt")


def test_only_what_costs_something_has_resources() -> None:
    assert [one.name for one in resources(ENDPOINTS["ideal"])] == ["compute"]
    assert passages(ENDPOINTS["ideal"]) == ([], [])
    kernels = [one.name for one in resources(ENDPOINTS["comm-opt"])]
    assert kernels == ["compute", "memory", "bus out", "bus in"]
    assert [one.name for one in resources(ENDPOINTS["ace"])] == [*kernels, "adding"]


def test_kernels_read_twice_what_is_to_be_added() -> None:
    served, stages = busy_bytes(ENDPOINTS["comm-opt"], 8)
    assert len(stages) == 1
    sent = 2.0 * 8 * CHUNK  # bytes sent for each byte of the buffer on 4x2x2, half of them to be added
    assert served["memory"] == pytest.approx(1.5 * sent, rel=1e-3)
    assert served["bus out"] == pytest.approx(sent, rel=1e-3)
    assert served["bus in"] == pytest.approx(sent, rel=1e-3)


def test_an_engine_reads_and_writes_once_and_adds_what_it_receives() -> None:
    served, stages = busy_bytes(ENDPOINTS["ace"], 8)
    payload = 8 * CHUNK
    assert served["memory"] == pytest.approx(payload, rel=1e-3)
    assert served["bus out"] == pytest.approx(payload, rel=1e-3)
    assert served["bus in"] == pytest.approx(payload, rel=1e-3)
    assert served["adding"] == pytest.approx(payload, rel=1e-3)
    assert [type(stage).__name__ for stage in stages] == [
        "LocalWork",
        "LocalWork",
        "Part",
        "Part",
        "Part",
        "Part",
        "LocalWork",
    ]


def test_phases_begin_where_the_axis_changes() -> None:
    assert phase_steps(four_phase.all_reduce(load_topology("ace:4x4x4"))) == [3, 9, 15]
    assert phase_steps(PACKAGES) == [3, 5, 7]
    assert phase_steps(ring.all_reduce(load_topology("ring:4"))) == []


@pytest.mark.parametrize("sram", [512 << 10, 1 << 20, 4 << 20])
def test_partitions_fit_into_the_memory_of_the_engine(sram: int) -> None:
    engine = EndpointEngine(sram_bytes=sram, fsms=1000)
    phases = engine_phases(engine, ENDPOINTS["ace"], PACKAGES, CHUNK)
    held = np.array([CHUNK, CHUNK / 4, CHUNK / 4, CHUNK, CHUNK])
    rooms = np.array([phase.room for phase in phases])
    assert (rooms * held).sum() <= sram
    assert (rooms * held).sum() > 0.6 * sram


def test_partitions_by_bandwidth_give_the_fast_phases_the_room() -> None:
    engine = EndpointEngine(sram_bytes=4 << 20, fsms=1000, partitions="bandwidth")
    rooms = [phase.room for phase in engine_phases(engine, ENDPOINTS["ace"], PACKAGES, CHUNK)]
    # Two links of 200 GB/s inside a package; along an axis of two, both of 25 GB/s. A chunk has all its
    # bytes in a phase inside, a quarter in one outside, and all of them where its result waits.
    needs = np.array([400 * CHUNK, 50 * CHUNK / 4, 50 * CHUNK / 4, 400 * CHUNK, 400 * CHUNK])
    held = np.array([CHUNK, CHUNK / 4, CHUNK / 4, CHUNK, CHUNK])
    assert rooms == np.maximum(1, (4 << 20) * needs / needs.sum() // held).astype(int).tolist()


def test_no_partition_holds_more_chunks_than_there_are_state_machines() -> None:
    phases = engine_phases(EndpointEngine(sram_bytes=1 << 30, fsms=5), ENDPOINTS["ace"], PACKAGES, CHUNK)
    assert [phase.room for phase in phases] == [5] * 5


def test_one_state_machine_takes_one_chunk_at_a_time() -> None:
    lonely = replace(ENDPOINTS["ace"], engine=EndpointEngine(fsms=1))
    equipment = Equipment(PACKAGES.topology, lonely, PACKAGES, None)
    stages = equipment.stages(PACKAGES, equipment.pattern(PACKAGES, CHUNK, None), CHUNK)
    for _ in range(3):
        equipment.flow.task("chunk", stages, pool=CHANNEL)
    run = equipment.flow.run()
    assert (run.began_ps[1:] >= run.ended_ps[:-1]).all()


def test_a_schedule_that_is_cut_otherwise_passes_an_engine_as_one_phase() -> None:
    topology = load_topology("ace:4x2x2")
    other = ring.all_reduce(topology)
    equipment = Equipment(topology, ENDPOINTS["ace"], PACKAGES, None)
    stages = equipment.stages(other, equipment.pattern(other, CHUNK, None), CHUNK)
    assert [type(stage) for stage in stages] == [LocalWork, LocalWork, Part, LocalWork]
