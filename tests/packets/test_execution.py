"""How interfaces go about tables: steps, ports, NOPs, closing entries, waiting; and the way of a packet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import PLAIN, gather, make, reduce, run

from weft import limits
from weft.algorithms import multitree, ring
from weft.errors import InputError, LimitError, SimulationError
from weft.packets import (
    CODESIGNED,
    PRESETS,
    Hardware,
    Rules,
    Tables,
    make_tables,
    simulate_tables,
)
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes

CYCLE = 1000
MESH = load_topology("mesh:4@bw=16GB/s,lat=10ns")  # a line of ranks, each with a router
SWITCH = load_topology("switch:4@bw=16GB/s,lat=10ns")

FIRST = 1 * CYCLE
"""When a rank has read the first line of its table."""


def way(hops: int, flits: int, hardware: Hardware = PLAIN) -> int:
    """Cycles from handing over to knowing, along `hops` links of 10 cycles, on ranks with routers."""
    routers = (hops + 1) * hardware.router_cycles
    ports = 2 * hardware.port_cycles
    return hardware.send_cycles + ports + routers + 10 * hops + (flits - 1) + hardware.receive_cycles


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize(("size", "flits"), [(0, 1), (1, 2), (64, 5), (65, 7), (640, 50)])
def test_a_message_alone_takes_its_flits_and_its_way(hops: int, size: int, flits: int) -> None:
    found = run(make(MESH, {0: [gather(0, hops, size=size)]}))
    assert found.flits == flits
    assert found.time_ps == FIRST + way(hops, flits) * CYCLE


def test_a_message_without_heads_and_bytes_still_arrives() -> None:
    found = run(make(MESH, {0: [gather(0, 1, size=0)]}), replace(PLAIN, head_flits=0))
    assert found.flits == 0
    assert found.time_ps > FIRST + 10 * CYCLE


def test_padding_fills_the_last_packet() -> None:
    padded = replace(PLAIN, padded=True)
    assert run(make(MESH, {0: [gather(0, 1, size=0)]}), padded).flits == 5
    assert run(make(MESH, {0: [gather(0, 1, size=65)]}), padded).flits == 10


def test_a_message_has_one_head_under_message_flow_control() -> None:
    found = run(make(MESH, {0: [gather(0, 2, size=640)]}), rules=Rules("message"))
    assert found.flits == 41
    assert found.time_ps == FIRST + way(2, 41) * CYCLE


def test_on_a_switch_links_are_ports() -> None:
    found = run(make(SWITCH, {0: [gather(0, 1)]}))
    cycles = PLAIN.send_cycles + 10 + PLAIN.switch_cycles + 10 + (5 - 1) + PLAIN.receive_cycles
    assert found.time_ps == FIRST + cycles * CYCLE


def chain(speeds: list[int], latencies: list[int]) -> Topology:
    """Ranks at both ends of a line of switches."""
    wiring = CableNotes(2, len(speeds) - 1)
    nodes = [0, *range(2, 1 + len(speeds)), 1]
    for index, (speed, latency) in enumerate(zip(speeds, latencies, strict=True)):
        wiring.link(nodes[index], nodes[index + 1], speed, latency)
        wiring.link(nodes[index + 1], nodes[index], speed, latency)
    return wiring.build("chain")


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 50_000)), min_size=2, max_size=5),
    st.integers(0, 64),
)
def test_a_packet_cuts_through_links_of_any_speeds(links: list[tuple[int, int]], size: int) -> None:
    """Head after head, and no tail before the one behind it: reckoned here flit by flit."""
    speeds = [speed * 10**9 for speed, _ in links]
    latencies = [latency for _, latency in links]
    found = run(make(chain(speeds, latencies), {0: [gather(0, 1, size=size)]}))
    count = 1 + -(-size // 16)
    router = PLAIN.switch_cycles * CYCLE
    at = [FIRST + PLAIN.send_cycles * CYCLE] * count  # when each flit may start
    for index, (speed, latency) in enumerate(zip(speeds, latencies, strict=True)):
        flit_ps = -(-16 * 10**12 // speed)
        start = at[0]
        last = max(start + (count - 1) * flit_ps, at[-1])
        at = [start, *[last] * (count - 1)]
        gap = latency + (router if index + 1 < len(links) else 0)
        at = [time + gap for time in at]
    assert found.time_ps == at[-1] + PLAIN.receive_cycles * CYCLE


def test_a_step_begins_a_cycle_after_the_one_before_is_on_its_way() -> None:
    entries = [gather(0, 1, step=0), gather(1, 1, step=1), gather(2, 1, step=2)]
    start = run(make(MESH, {0: entries}, ports=3)).start
    assert [start[1, "gather", flow, 0] for flow in range(3)] == [FIRST, 2 * CYCLE, 3 * CYCLE]


def test_ready_entries_of_a_step_begin_together_as_ports_allow() -> None:
    entries = [gather(flow, 1, size=640) for flow in range(3)]
    start = run(make(MESH, {0: entries}, ports=2)).start
    assert start[1, "gather", 0, 0] == start[1, "gather", 1, 0] == FIRST
    # Ten packets go into the queue, one a cycle; a cycle later the free port is seen.
    assert start[1, "gather", 2, 0] == FIRST + (10 + 1) * CYCLE


def test_a_full_queue_keeps_its_port() -> None:
    entries = [gather(0, 1, size=64 * 50), gather(1, 1, step=1)]
    tight = replace(PLAIN, queue_packets=4, queue_flits=0)
    free = run(make(MESH, {0: entries})).start[1, "gather", 1, 0]
    kept = run(make(MESH, {0: entries}), tight).start[1, "gather", 1, 0]
    assert free == FIRST + 51 * CYCLE
    # All but four packets must have begun to leave, at five cycles each.
    assert kept >= FIRST + 5 * (50 - 4) * CYCLE


def test_strict_steps_wait_for_all_ports() -> None:
    entries = [gather(0, 1, size=640), gather(1, 1, step=1)]
    tables = make(MESH, {0: entries}, ports=2)
    assert run(tables).start[1, "gather", 1, 0] == 2 * CYCLE
    assert run(tables, rules=Rules(strict=True)).start[1, "gather", 1, 0] == FIRST + (10 + 1) * CYCLE


def test_a_closing_entry_waits_for_all_ports_whatever_the_rules() -> None:
    entries = [reduce(0, 1, size=640), reduce(1, step=1), gather(2, 1, step=2)]
    start = run(make(MESH, {0: entries}, ports=2)).start
    assert start[1, "gather", 2, 0] == FIRST + (10 + 1) * CYCLE


def test_an_entry_that_is_ready_does_not_overtake_a_step() -> None:
    """Rank 1 could send flow 5 at once, but its step before that waits for rank 0."""
    waiting = gather(0, 2, after=(("gather", 0, 0),))
    found = run(make(MESH, {0: [gather(0, 1)], 1: [waiting, gather(5, 2, step=1)]}, ports=2))
    come = found.arrived[1, "gather", 0, 0]
    assert found.start[2, "gather", 0, 1] == come + CYCLE
    assert found.start[2, "gather", 5, 1] == come + 2 * CYCLE


def test_within_a_step_the_ready_entry_goes_first() -> None:
    waiting = gather(0, 2, after=(("gather", 0, 0),))
    found = run(make(MESH, {0: [gather(0, 1)], 1: [waiting, gather(5, 2)]}, ports=2))
    assert found.start[2, "gather", 5, 1] == FIRST
    assert found.start[2, "gather", 0, 1] == found.arrived[1, "gather", 0, 0] + CYCLE


def test_contributions_are_added_one_after_the_other() -> None:
    adding = replace(PLAIN, lanes=2, lane_elements=8, element_bytes=4)  # 64 bytes: 2 cycles
    children = (("reduce", 1, 0), ("reduce", 1, 2))
    tables = make(MESH, {0: [reduce(1, 1)], 2: [reduce(1, 1)], 1: [gather(1, 2, after=children)]}, ports=1)
    found = run(tables, adding)
    come = sorted(found.arrived[1, "reduce", 1, src] for src in (0, 2))
    first = come[0] + (1 + 2) * CYCLE
    second = max(first, come[1]) + (1 + 2) * CYCLE
    assert found.start[2, "gather", 1, 1] == second + CYCLE
    free = run(tables)
    come = sorted(free.arrived[1, "reduce", 1, src] for src in (0, 2))
    assert free.start[2, "gather", 1, 1] == come[1] + CYCLE


NOP = PLAIN.step_ps(64, "packet")
"""The estimate for the one packet of these tables."""


def test_idle_steps_take_no_time_without_lockstep() -> None:
    entries = [gather(0, 1), gather(1, 1, step=9)]
    start = run(make(MESH, {0: entries}, ports=2)).start
    assert start[1, "gather", 1, 0] == 2 * CYCLE


@pytest.mark.parametrize("idle", [1, 2, 5])
def test_idle_steps_wait_under_lockstep(idle: int) -> None:
    """The step before them still runs for its own time, then each takes its own."""
    hardware = replace(PLAIN, lockstep_packets=0)
    nop = hardware.step_ps(64, "packet")
    assert nop == 5 * CYCLE
    entries = [gather(0, 1), gather(1, 1, step=1 + idle)]
    start = run(make(MESH, {0: entries}, ports=2), hardware, Rules(lockstep=True)).start
    assert start[1, "gather", 1, 0] == FIRST + (1 + idle) * nop + CYCLE


@pytest.mark.parametrize("idle", [1, 3])
def test_a_table_may_begin_with_idle_steps(idle: int) -> None:
    start = run(make(MESH, {0: [gather(0, 1, step=idle)]}), rules=Rules(lockstep=True)).start
    assert start[1, "gather", 0, 0] == idle * NOP + CYCLE


def test_priority_goes_to_the_earlier_step() -> None:
    """Two ranks send to a third over one link of a switch; the one of the earlier step is done first."""
    early, late = gather(0, 3, size=6400), gather(1, 3, step=5, size=6400)
    tables = make(SWITCH, {0: [late], 1: [early]})
    ordered = run(tables, rules=Rules(prioritised=True)).arrived
    fair = run(tables).arrived
    assert ordered[3, "gather", 0, 1] < ordered[3, "gather", 1, 0]
    assert ordered[3, "gather", 0, 1] < fair[3, "gather", 0, 1]


def test_two_senders_share_a_link_by_turns() -> None:
    """A hundred packets each: in turn, so that both end within a packet of each other."""
    tables = make(SWITCH, {0: [gather(0, 3, size=6400)], 1: [gather(1, 3, size=6400)]})
    found = run(tables)
    ends = sorted(found.arrived.values())
    assert ends[1] - ends[0] <= 5 * CYCLE
    assert found.time_ps >= 2 * 100 * 5 * CYCLE


def test_few_credits_slow_a_long_link_down() -> None:
    """A buffer of b flits passes at most b flits in the time of a round trip."""
    far = load_topology("switch:2@bw=16GB/s,lat=100ns")
    tables = make(far, {0: [gather(0, 1, size=64 * 100)]})
    little = replace(PLAIN, virtual_channels=1, buffer_flits=20)
    fast, slow = run(tables), run(tables, little)
    # 20 flits are 4 packets; each waits for a credit that takes 200 cycles, its router and its own way.
    assert fast.time_ps < 750 * CYCLE
    assert slow.time_ps > 100 / 4 * 200 * CYCLE


def test_buffers_for_a_short_link_give_a_fifth_of_a_long_one() -> None:
    """As docs/packets.md says of message flow control; packets have four virtual channels."""
    tables = make(load_topology("switch:2@bw=25GB/s,lat=500ns"), {0: [gather(0, 1, size=1 << 20)]})
    whole, cut = (run(tables, "multitree-isca21", Rules(kind)) for kind in ("message", "packet"))
    assert whole.flits * 640 / whole.time_ps == pytest.approx(0.2, abs=0.01)
    assert cut.flits * 640 / cut.time_ps == pytest.approx(0.8, abs=0.04)


def circle(ranks: int) -> Topology:
    """Switches in a one-way ring, a rank at each."""
    wiring = CableNotes(ranks, ranks)
    for rank in range(ranks):
        wiring.link(rank, ranks + rank, 16 * 10**9, 10_000)
        wiring.link(ranks + rank, rank, 16 * 10**9, 10_000)
        wiring.link(ranks + rank, ranks + (rank + 1) % ranks, 16 * 10**9, 10_000)
    return wiring.build("circle")


def two_ahead(size: int) -> Tables:
    """Everybody sends two switches ahead: each holds the buffer that the one behind it needs."""
    return make(circle(4), {rank: [gather(rank, (rank + 2) % 4, size=size)] for rank in range(4)})


TINY = replace(PLAIN, virtual_channels=1, buffer_flits=1)


@pytest.mark.parametrize("flow_control", ["packet", "message"])
@pytest.mark.parametrize("detail", ["packet", "message"])
@pytest.mark.parametrize("size", [64, 6400])
def test_a_deadlock_is_found_and_named(flow_control: str, detail: str, size: int) -> None:
    stuck = "no progress; gather 0 from rank 0 to 2, step 0, waits for link s1->s2: .* in a circle"
    with pytest.raises(SimulationError, match=stuck):
        simulate_tables(two_ahead(size), hardware=TINY, rules=Rules(flow_control), detail=detail)


def test_room_or_more_channels_undo_the_deadlock() -> None:
    for hardware, flow_control in (
        (replace(PLAIN, virtual_channels=2, buffer_flits=1), "message"),
        (replace(PLAIN, virtual_channels=1, buffer_flits=1000), "packet"),
    ):
        result = simulate_tables(two_ahead(6400), hardware=hardware, rules=Rules(flow_control))
        assert result.packets == 400


def test_tables_that_wait_for_each_other_are_named() -> None:
    tables = make(
        MESH,
        {
            0: [gather(0, 1, after=(("gather", 1, 1),))],
            1: [gather(1, 0, after=(("gather", 0, 0),))],
        },
    )
    with pytest.raises(SimulationError, match="rank 0, step 0, gather 0 waits for gather 1 of rank 1"):
        simulate_tables(tables)


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PACKET_EVENTS", 100)
    with pytest.raises(LimitError, match="more than 100 events; use detail='message'"):
        simulate_tables(make(MESH, {0: [gather(0, 3, size=64_000)]}))


@pytest.mark.parametrize("detail", ["packet", "message"])
@pytest.mark.parametrize("power", range(22, 51, 4))
def test_too_much_time_is_refused(power: int, detail: str) -> None:
    """Also where a single piece would take more than the clock can count."""
    slow = load_topology("mesh:2@bw=1B/s")
    with pytest.raises(LimitError, match="takes more than the"):
        simulate_tables(make(slow, {0: [gather(0, 1, size=1 << power)]}, size=1 << power), detail=detail)


def test_words_that_are_unknown_are_refused() -> None:
    with pytest.raises(InputError, match="flow control 'flit' is unknown"):
        Rules("flit")
    with pytest.raises(InputError, match="detail 'bit' is unknown"):
        simulate_tables(make(MESH, {0: [gather(0, 1)]}), detail="bit")


def test_more_ports_than_links_are_refused_on_a_switch() -> None:
    with pytest.raises(InputError, match="rank 0 has 1 links to switches, not 2"):
        simulate_tables(make(SWITCH, {0: [gather(0, 1)]}, ports=2))


@pytest.mark.parametrize("hardware", PRESETS)
@pytest.mark.parametrize("rules", [Rules(), CODESIGNED], ids=["plain", "codesigned"])
def test_the_details_of_messages_are_near_those_of_packets(hardware: str, rules: Rules) -> None:
    torus = load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    for schedule, ports in ((ring.all_reduce(torus), 1), (multitree.all_reduce(torus), 4)):
        tables = make_tables(schedule, "4MiB", ports=ports)
        packets = simulate_tables(tables, hardware=hardware, rules=rules)
        messages = simulate_tables(tables, hardware=hardware, rules=rules, detail="message")
        assert (messages.packets, messages.flits) == (packets.packets, packets.flits)
        assert messages.time_ps == pytest.approx(packets.time_ps, rel=0.22)  # as docs/packets.md says
        assert messages.events <= packets.events


@pytest.mark.parametrize("flow_control", ["packet", "message"])
@pytest.mark.parametrize("hops", [1, 3])
def test_flit_by_flit_a_message_alone_takes_as_long(hops: int, flow_control: str) -> None:
    tables = make(MESH, {0: [gather(0, hops, size=640)]})
    rules = Rules(flow_control)
    packets = simulate_tables(tables, hardware=PLAIN, rules=rules)
    flits = simulate_tables(tables, hardware=PLAIN, rules=rules, detail="flit")
    assert (flits.time_ps, flits.flits) == (packets.time_ps, packets.flits)
    assert flits.link_busy_ps.tolist() == packets.link_busy_ps.tolist()


def test_flit_by_flit_a_ring_takes_as_long_as_in_the_authors_simulator() -> None:
    torus = load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    found = simulate_tables(make_tables(ring.all_reduce(torus), "32KiB"), detail="flit")
    assert abs(found.total_cycles - 9344) <= 1


def test_flit_by_flit_grants_that_are_not_accepted_cost_cycles() -> None:
    topology = load_topology("fattree:4,4,4@bw=16GB/s,lat=150ns")
    tables = make_tables(multitree.all_reduce(topology, paper_order=True), "32KiB", ports=1)
    assert simulate_tables(tables, detail="flit").cycles > simulate_tables(tables).cycles


def test_flit_by_flit_the_earlier_step_goes_first_among_virtual_channels_of_one_input() -> None:
    mesh = load_topology("mesh:4x4@bw=16GB/s,lat=150ns")
    tables = make_tables(multitree.all_reduce(mesh, paper_order=True), "32KiB", ports=4)
    authors = 5313  # of their simulator, which is told the priority of steps
    plain, ordered = (
        simulate_tables(tables, rules=replace(CODESIGNED, prioritised=first), detail="flit").total_cycles
        for first in (False, True)
    )
    assert abs(ordered / authors - 1) < 0.01 < abs(plain / authors - 1)


def test_flit_by_flit_a_head_waits_for_room_for_its_whole_packet() -> None:
    torus = load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    tables = make_tables(multitree.all_reduce(torus, paper_order=True), "512KiB", ports=4)
    # Some 33,600 cycles; 31,900 where a head takes a virtual channel with any room at all.
    assert (
        simulate_tables(tables, rules=Rules(strict=True, lockstep=True), detail="flit").total_cycles > 33_000
    )


def test_flit_by_flit_needs_whole_cycles() -> None:
    tables = make_tables(ring.all_reduce(load_topology("ring:4@bw=25GB/s,lat=150ns")), "1KiB")
    with pytest.raises(InputError, match="a flit takes 640ps there, no whole number of cycles of 1ns"):
        simulate_tables(tables, detail="flit")
