"""What must hold on any network: nothing is lost, nothing is early, and a file runs as its schedule does."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.random_schedules import schedules
from support.tables import Run, flits_of, run

from weft.algorithms import multitree, registry
from weft.errors import InputError, SimulationError, UnsupportedError
from weft.packets import (
    CODESIGNED,
    PRESETS,
    PacketResult,
    Rules,
    Tables,
    default_ports,
    find_hardware,
    make_tables,
    simulate_tables,
    tables_from_json,
    tables_to_json,
)
from weft.schedule import Schedule
from weft.topology import Topology, load_topology

RULES = st.builds(
    Rules,
    st.sampled_from(["packet", "message"]),
    strict=st.booleans(),
    prioritised=st.booleans(),
    lockstep=st.booleans(),
)
HARDWARE = st.sampled_from(list(PRESETS))
ALGORITHMS = (
    "ring",
    "bidirectional_ring",
    "multitree",
    "double_binary_tree",
    "halving_doubling",
    "direct",
    "forest",
)
SLOW = examples(60, suppress_health_check=[HealthCheck.filter_too_much])


def outcome(result: PacketResult) -> dict[str, object]:
    """Everything that a run says, but what it cost."""
    found = {item.name: getattr(result, item.name) for item in fields(result) if item.name != "cpu_seconds"}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def attempt(tables: Tables, hardware: str, rules: Rules, detail: str) -> dict[str, object] | str:
    """The outcome of a run, or why there is none."""
    try:
        return outcome(simulate_tables(tables, hardware=hardware, rules=rules, detail=detail))
    except (InputError, SimulationError) as error:
        return str(error)


def tables_on(topology: Topology, algorithm: str, size: int) -> Tables:
    """Tables of an algorithm, if it applies and its ranks have a port wherever they use a link."""
    try:
        schedule = registry.find(algorithm).build(topology, "all_reduce")
        return make_tables(schedule, size, ports=default_ports(topology))
    except UnsupportedError:
        assume(False)
        raise


def all_routes(tables: Tables) -> list[tuple[int, int, tuple[int, ...]]]:
    """Sender, bytes and links of each message, in the order of the tables."""
    return [
        (rank, entry.size_bytes, send.route or tables.topology.route(rank, send.dst))
        for rank, entries in enumerate(tables.ranks)
        for entry in entries
        for send in entry.sends
    ]


def check_conserved(tables: Tables, found: Run, hardware_name: str, rules: Rules) -> None:
    """Every link carried exactly the flits of the messages that take it."""
    hardware = find_hardware(hardware_name)
    expected: Counter[int] = Counter()
    packets = flits = 0
    for _, size, route in all_routes(tables):
        of_message = flits_of(size, hardware, rules.flow_control)
        packets += of_message[0]
        flits += of_message[1]
        for link in route:
            expected[link] += of_message[1]
    assert (found.packets, found.flits) == (packets, flits)
    speeds = tables.topology.bandwidth.tolist()
    flit_ps = [-(-hardware.flit_bytes * 10**12 // speed) for speed in speeds]
    busy = found.busy_ps[: tables.topology.links].tolist()
    assert busy == [expected[link] * each for link, each in enumerate(flit_ps)]


def check_in_time(tables: Tables, found: Run, hardware_name: str, rules: Rules) -> None:
    """No message is there before its flits, its links' latencies and its interfaces allow."""
    hardware = find_hardware(hardware_name)
    topology = tables.topology
    for key, arrived, (_, size, route) in zip(
        found.arrived, found.arrived.values(), all_routes(tables), strict=True
    ):
        flits = flits_of(size, hardware, rules.flow_control)[1]
        slowest = max(-(-hardware.flit_bytes * 10**12 // int(topology.bandwidth[link])) for link in route)
        least = (hardware.send_cycles + hardware.receive_cycles) * hardware.cycle_ps
        least += sum(int(topology.latency_ps[link]) for link in route) + (flits - 1) * slowest
        assert found.start[key] >= 0
        assert arrived - found.start[key] >= least


def check_waits(tables: Tables, found: Run) -> None:
    """Nobody sends what has not come."""
    for rank, entries in enumerate(tables.ranks):
        for entry in entries:
            come = [found.arrived[rank, *wait] for wait in entry.after]
            for send in entry.sends:
                assert all(found.start[send.dst, entry.op, entry.flow, rank] >= time for time in come)


@SLOW
@given(
    clusters(max_ranks=8, max_switches=2),
    st.sampled_from(ALGORITHMS),
    st.integers(0, 20_000),
    HARDWARE,
    RULES,
)
def test_nothing_is_lost_and_nothing_is_early(
    topology: Topology, algorithm: str, size: int, hardware: str, rules: Rules
) -> None:
    tables = tables_on(topology, algorithm, size)
    refused = isinstance(attempt(tables, hardware, rules, "packet"), str)
    assume(not refused)
    found = run(tables, hardware, rules)
    assert len(found.arrived) == tables.messages
    check_conserved(tables, found, hardware, rules)
    check_in_time(tables, found, hardware, rules)
    check_waits(tables, found)


@SLOW
@given(
    clusters(max_ranks=8, max_switches=2),
    st.sampled_from(ALGORITHMS),
    st.integers(0, 20_000),
    HARDWARE,
    RULES,
    st.sampled_from(["packet", "message"]),
)
def test_a_file_runs_exactly_as_its_schedule(
    topology: Topology, algorithm: str, size: int, hardware: str, rules: Rules, detail: str
) -> None:
    tables = tables_on(topology, algorithm, size)
    read = tables_from_json(tables_to_json(tables))
    assert attempt(read, hardware, rules, detail) == attempt(tables, hardware, rules, detail)


@SLOW
@given(schedules(), st.integers(0, 5000), RULES)
def test_any_schedule_runs_from_its_file_as_from_itself(schedule: Schedule, size: int, rules: Rules) -> None:
    try:
        tables = make_tables(schedule, size)
    except UnsupportedError:
        return
    read = tables_from_json(tables_to_json(tables))
    hardware = "multitree-isca21"
    assert attempt(read, hardware, rules, "packet") == attempt(tables, hardware, rules, "packet")


@pytest.mark.parametrize(
    "rules", [Rules(), Rules("message"), CODESIGNED], ids=["packet", "message", "codesigned"]
)
@pytest.mark.parametrize(
    "algorithm", ["ring", "multitree", "ring2d", "double_binary_tree", "direct", "halving_doubling"]
)
def test_flits_on_a_torus_are_messages_times_hops(algorithm: str, rules: Rules) -> None:
    """Where two ways are as long, packets take both: which link has which is left open, the sum is not."""
    torus = load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    tables = tables_on(torus, algorithm, 10_000)
    result = simulate_tables(tables, rules=rules)
    expected = sum(
        flits_of(size, result.hardware, rules.flow_control)[1] * len(route)
        for _, size, route in all_routes(tables)
    )
    assert result.link_busy_ps.sum() == 1000 * expected
    ports = sum(flits_of(size, result.hardware, rules.flow_control)[1] for _, size, _ in all_routes(tables))
    assert result.port_busy_ps.reshape(2, -1).sum(axis=1).tolist() == [1000 * ports] * 2


SPECS = (
    "ring:5",
    "mesh:3x3",
    "torus:4x4",
    "fullmesh:6",
    "switch:6",
    "bigraph:2,4",
    "fattree:4",
    "hosts:4,2",
    "dragonfly:2,2,2",
)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("algorithm", sorted(item.name for item in registry.ALGORITHMS.values()))
def test_algorithms_run_wherever_they_apply(spec: str, algorithm: str) -> None:
    topology = load_topology(spec)
    try:
        schedule = registry.find(algorithm).build(topology, "all_reduce")
    except UnsupportedError:
        return
    tables = make_tables(schedule, "20KB", ports=default_ports(topology))
    plain, codesigned = simulate_tables(tables), simulate_tables(tables, rules=CODESIGNED)
    assert plain.packets == codesigned.packets
    assert plain.flits - plain.packets == codesigned.flits - tables.messages
    assert max(plain.rank_finish_ps) == plain.time_ps
    assert plain.most_flits > 0
    assert plain.quiet_ps >= plain.time_ps


@pytest.mark.parametrize("detail", ["packet", "message"])
@pytest.mark.parametrize("rules", [Rules(), CODESIGNED])
def test_no_virtual_channel_holds_more_than_its_size(rules: Rules, detail: str) -> None:
    schedule = multitree.all_reduce(load_topology("torus:4x4@bw=16GB/s,lat=150ns"))
    found = simulate_tables(make_tables(schedule, "1MiB", ports=4), rules=rules, detail=detail)
    # Packets start while there is room for their first flit: the fullest buffer of this run is full.
    assert found.most_flits == found.buffer_flits == 318
