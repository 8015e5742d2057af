"""Every rule of a run, on cases small enough to compute by hand.

Links here carry one byte per picosecond unless said otherwise, so that sizes are durations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.reference.lowering import cut_segments, derive_waits
from support.reference.schedule_engine import Run, simulate_reference

from weft.errors import InputError, LimitError, ScheduleError, SimulationError
from weft.probing.fair_sharing import share_fairly
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import Topology
from weft.topology.cable_notes import CableNotes

BYTE_PER_PS = 10**12
COPY, REDUCE = Op.COPY, Op.REDUCE


def wire(ranks: int, *links: tuple[int, int, float, int], switches: int = 0) -> Topology:
    """Directed links as (src, dst, bytes per picosecond, latency), then slow ones so that all reach all."""
    wiring = CableNotes(ranks, switches)
    for src, dst, speed, latency_ps in links:
        wiring.link(src, dst, int(speed * BYTE_PER_PS), latency_ps)
    for rank in range(ranks):
        wiring.link(rank, (rank + 1) % ranks, 1, 10**9)
    return wiring.build("by hand")


def table(topology: Topology, *rows: dict[str, Any], weights: Sequence[int] = (1,)) -> Schedule:
    builder = ScheduleBuilder(topology, "all_reduce", "by hand", chunks=len(weights), weights=weights)
    for row in rows:
        links = row.pop("links", None)
        route = {} if links is None else {"route": builder.route(links)}
        builder.add(**{"chunk": 0, "op": COPY} | row | route)
    return builder.build()


def send(step: int, src: int, dst: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "src": src, "dst": dst, **more}


# One segment on its way


def test_one_hop_takes_size_over_bandwidth_plus_latency() -> None:
    run = simulate_reference(table(wire(2, (0, 1, 1, 3)), send(0, 0, 1)), 10)
    assert (run.time_ps, run.started_ps, run.applied_ps) == (13, (0,), (13,))
    assert run.rank_finish_ps == (10, 13)
    assert run.link_busy_ps == (10, 0, 0)


def test_a_duration_is_rounded_up() -> None:
    run = simulate_reference(table(wire(2, (0, 1, 3, 0)), send(0, 0, 1)), 10)
    assert (run.time_ps, run.link_busy_ps[0]) == (4, 4)


@pytest.mark.parametrize(
    ("speeds", "arrival", "busy"),
    [
        (
            (1, 2),
            5 + 3 + 5 + 7,
            (10, 5),
        ),  # the fast link waits so that its tail follows the slow one's at once
        ((2, 1), 3 + 10 + 7, (5, 10)),  # the slow link begins with the head
        ((1, 1), 3 + 10 + 7, (10, 10)),
    ],
)
def test_a_switch_cuts_through(speeds: tuple[int, int], arrival: int, busy: tuple[int, int]) -> None:
    network = wire(2, (0, 2, speeds[0], 3), (2, 1, speeds[1], 7), switches=1)
    run = simulate_reference(table(network, send(0, 0, 1, links=[0, 1])), 10)
    assert run.applied_ps == (arrival,)
    assert run.link_busy_ps[:2] == busy
    assert run.rank_finish_ps[0] == busy[0]


def test_three_hops_slow_in_the_middle() -> None:
    network = wire(2, (0, 2, 2, 1), (2, 3, 1, 1), (3, 1, 2, 1), switches=2)
    run = simulate_reference(table(network, send(0, 0, 1, links=[0, 1, 2])), 10)
    assert run.time_ps == 1 + (1 + 5) + (5 + 1)


# Several segments on one link


def test_a_link_carries_one_segment_at_a_time() -> None:
    rows = (send(0, 0, 1, chunk=0), send(1, 0, 1, chunk=1))
    run = simulate_reference(table(wire(2, (0, 1, 1, 5)), *rows, weights=(1, 1)), 20)
    assert run.started_ps == (0, 10)
    assert run.applied_ps == (15, 25)


def late_but_urgent() -> Schedule:
    """Rank 1 sends in step 0, could send step 3 at once too, and at 5 receives what it sends in step 1."""
    network = wire(3, (0, 1, 2, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 1, chunk=0), send(0, 1, 2, chunk=1), send(1, 1, 2, chunk=0), send(3, 1, 2, chunk=2))
    return table(network, *rows, weights=(1, 1, 1))


def test_the_smaller_step_goes_first_even_if_it_came_later() -> None:
    assert simulate_reference(late_but_urgent(), 30).started_ps == (0, 0, 10, 20)


def test_among_equal_steps_the_earlier_message_goes_first() -> None:
    rows = (send(0, 0, 1, chunk=2), send(0, 0, 1, chunk=0))
    schedule = table(wire(2, (0, 1, 1, 0)), *rows, weights=(1, 1, 1))
    assert simulate_reference(schedule, 30).started_ps == (0, 10)


def test_the_smaller_step_goes_first_at_each_link_anew() -> None:
    """Step 1 waited for its first link and reaches the second after step 2, but goes ahead of it there."""
    network = wire(3, (0, 3, 1, 0), (1, 3, 1, 0), (3, 2, 0.5, 0), switches=1)
    rows = (
        send(0, 0, 2, chunk=0, links=[0, 2]),
        send(1, 0, 2, chunk=1, links=[0, 2]),
        send(2, 1, 2, chunk=2, links=[1, 2]),
    )
    schedule = table(network, *rows, weights=(1, 1, 1))
    assert simulate_reference(schedule, 30).applied_ps == (20, 40, 60)


def test_the_head_of_a_segment_without_latency_comes_after_what_waits_already() -> None:
    """Step 0 reaches the second link at 0 too, but the link has taken step 1 in the batch before."""
    network = wire(3, (0, 1, 1, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 2, chunk=0, links=[0, 1]), send(1, 1, 2, chunk=1))
    run = simulate_reference(table(network, *rows, weights=(1, 1)), 20)
    assert run.started_ps == (0, 0)
    assert run.applied_ps == (20, 10)


def test_what_arrives_at_an_instant_competes_for_the_link_that_gets_free_then() -> None:
    network = wire(3, (0, 1, 1, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 1, chunk=0), send(0, 1, 2, chunk=1), send(1, 1, 2, chunk=0), send(2, 1, 2, chunk=2))
    run = simulate_reference(table(network, *rows, weights=(1, 1, 1)), 30)
    assert run.started_ps == (0, 0, 10, 20)


def test_parallel_links_carry_side_by_side() -> None:
    network = wire(2, (0, 1, 1, 0), (0, 1, 1, 0))
    rows = (send(0, 0, 1, chunk=0, links=[0]), send(0, 0, 1, chunk=1, links=[1]))
    assert simulate_reference(table(network, *rows, weights=(1, 1)), 20).applied_ps == (10, 10)


# Reads and writes


def test_a_segment_starts_when_what_it_carries_is_applied() -> None:
    network = wire(3, (0, 1, 1, 4), (1, 2, 2, 1))
    run = simulate_reference(table(network, send(0, 0, 1), send(1, 1, 2)), 10)
    assert run.started_ps == (0, 14)
    assert run.applied_ps == (14, 20)


def test_an_exchange_is_not_applied_before_the_old_value_has_left() -> None:
    network = wire(2, (0, 1, 2, 1), (1, 0, 0.5, 1))
    run = simulate_reference(table(network, send(0, 0, 1), send(0, 1, 0)), 10)
    assert run.applied_ps == (20, 21)
    assert run.rank_finish_ps == (21, 20)


def test_a_write_waits_for_every_reader_since_the_last_write() -> None:
    network = wire(3, (0, 1, 0.5, 0), (0, 2, 0.25, 0), (1, 0, 1, 0))
    rows = (send(0, 0, 1), send(0, 0, 2), send(1, 1, 0))
    assert simulate_reference(table(network, *rows), 10).applied_ps == (20, 40, 40)


def test_a_reader_before_the_last_write_does_not_count_again() -> None:
    network = wire(3, (0, 1, 1, 0), (1, 0, 1, 0), (2, 0, 1, 0))
    rows = (send(0, 0, 1), send(1, 1, 0), send(2, 2, 0, op=REDUCE))
    schedule = table(network, *rows)
    segments = cut_segments(schedule, 10)
    waits = derive_waits(segments)
    assert waits[1].apply == {segments[1].arrived, segments[0].left}
    assert waits[2].apply == {segments[2].arrived, segments[1].applied}
    assert simulate_reference(schedule, 10).applied_ps == (10, 20, 20)


def test_reduces_of_one_step_apply_in_row_order() -> None:
    network = wire(3, (0, 2, 0.5, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 2, op=REDUCE), send(0, 1, 2, op=REDUCE))
    assert simulate_reference(table(network, *rows), 10).applied_ps == (20, 20)


def test_a_later_write_waits_for_an_earlier_one() -> None:
    network = wire(3, (0, 2, 0.5, 0), (1, 2, 1, 0))
    assert simulate_reference(table(network, send(0, 0, 2), send(1, 1, 2)), 10).applied_ps == (20, 20)


def test_chunks_and_slots_do_not_wait_for_each_other() -> None:
    network = wire(3, (0, 2, 0.5, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 2), send(1, 1, 2, dst_slot=1))
    assert simulate_reference(table(network, *rows), 10).applied_ps == (20, 10)


# Moves within a rank


def test_a_move_between_slots_takes_no_time_and_no_link() -> None:
    network = wire(2, (0, 1, 1, 2), (1, 0, 1, 2))
    rows = (
        send(0, 0, 1, dst_slot=1),
        send(1, 1, 1, src_slot=1, dst_slot=0, op=REDUCE),
        send(2, 1, 0),
    )
    run = simulate_reference(table(network, *rows), 10)
    assert run.started_ps == (0, 12, 12)
    assert run.applied_ps == (12, 12, 24)
    assert run.link_busy_ps == (10, 10, 0, 0)


def test_a_move_waits_until_the_old_value_has_left() -> None:
    rows = (send(0, 0, 1), send(0, 0, 0, src_slot=1, dst_slot=0))
    run = simulate_reference(table(wire(2, (0, 1, 1, 2)), *rows), 10)
    assert run.applied_ps == (10, 12)  # rows in order of dst: the move is segment 0
    assert run.started_ps == (0, 0)


def test_a_long_chain_of_moves_happens_at_once() -> None:
    rows = [send(step, 0, 0, src_slot=step % 2, dst_slot=1 - step % 2) for step in range(3000)]
    run = simulate_reference(table(wire(2), *rows), 10)
    assert (run.time_ps, set(run.applied_ps)) == (0, {0})


# Cutting


def test_segments_follow_each_other_over_a_chain() -> None:
    network = wire(3, (0, 1, 1, 0), (1, 2, 1, 0))
    run = simulate_reference(table(network, send(0, 0, 1), send(1, 1, 2)), 10, segment_bytes=4)
    assert run.started_ps == (0, 4, 7, 4, 8, 11)
    assert run.applied_ps == (4, 7, 10, 8, 11, 14)


def test_the_segment_number_counts_before_the_step() -> None:
    rows = (send(0, 0, 1, chunk=0), send(1, 0, 1, chunk=1))
    schedule = table(wire(2, (0, 1, 1, 0)), *rows, weights=(1, 1))
    assert simulate_reference(schedule, 20, segment_bytes=5).started_ps == (0, 10, 5, 15)


def test_a_message_of_many_chunks_is_one_segment_unless_cut() -> None:
    rows = (send(0, 0, 1, chunk=[0, 1, 2, 3]),)
    schedule = table(wire(2, (0, 1, 1, 0)), *rows, weights=(3, 3, 3, 2))
    assert simulate_reference(schedule, 11).applied_ps == (11,)
    assert simulate_reference(schedule, 11, segment_bytes=7).applied_ps == (6, 11)
    assert simulate_reference(schedule, 11, segment_bytes=2).applied_ps == (2, 3, 5, 6, 8, 9, 11)
    sizes = [segment.size_bytes for segment in cut_segments(schedule, 11, 2)]
    assert sizes == [2, 1, 2, 1, 2, 1, 2]


def test_pieces_fill_segments_across_chunks() -> None:
    """5 bytes in pieces of at most 4 are 3 and 2; 2 and the next chunk's 2 fit together."""
    rows = (send(0, 0, 1, chunk=[0, 1]),)
    schedule = table(wire(2, (0, 1, 1, 0)), *rows, weights=(5, 2))
    assert [segment.size_bytes for segment in cut_segments(schedule, 7, 4)] == [3, 4]


def test_chunks_without_bytes_vanish_but_do_not_split_their_message() -> None:
    rows = (send(0, 0, 1, chunk=[0, 1, 2]), send(1, 0, 1, chunk=1), send(2, 0, 1, chunk=0))
    run = simulate_reference(table(wire(2, (0, 1, 1, 0)), *rows, weights=(1, 0, 1)), 20)
    assert run.applied_ps == (20, 30)


def test_a_buffer_smaller_than_its_chunks_leaves_some_empty() -> None:
    rows = (send(0, 0, 1, chunk=0), send(0, 1, 0, chunk=1))
    schedule = table(wire(2, (0, 1, 1, 0)), *rows, weights=(1, 1))
    assert simulate_reference(schedule, 1).applied_ps == (1,)
    assert simulate_reference(schedule, 4, element_bytes=4).applied_ps == (4,)


def test_nothing_to_send_takes_no_time() -> None:
    run = simulate_reference(table(wire(2, (0, 1, 1, 3)), send(0, 0, 1)), 0)
    assert (run.time_ps, run.started_ps, run.applied_ps) == (0, (), ())
    assert (run.link_busy_ps, run.rank_finish_ps) == ((0, 0, 0), (0, 0))


def test_a_schedule_without_rows_takes_no_time() -> None:
    assert simulate_reference(table(wire(2)), 10, sharing="fluid").time_ps == 0


# Fluid sharing


def star(*speeds: float, down: float = 1) -> Topology:
    """Ranks 0, 1, .. on a switch; the last rank's downlink is the last link."""
    ranks = len(speeds) + 1
    ups = [(rank, ranks, speed, 1) for rank, speed in enumerate(speeds)]
    return wire(ranks, *ups, (ranks, ranks - 1, down, 2), switches=1)


def test_two_flows_share_a_link_and_the_second_speeds_up() -> None:
    rows = (send(0, 0, 2, chunk=0, links=[0, 2]), send(0, 1, 2, chunk=1, links=[1, 2]))
    schedule = table(star(1, 1), *rows, weights=(1, 2))
    run = simulate_reference(schedule, 30, sharing="fluid")
    assert run.started_ps == (0, 0)
    assert run.applied_ps == (20 + 3, 30 + 3)
    assert run.rank_finish_ps == (20, 30, 33)
    assert run.link_busy_ps[:3] == (10, 20, 30)


def test_three_flows_share_max_min_fair() -> None:
    """One flow can only take 1/4; the others share the remaining 3/4 until the first ends."""
    rows = [send(0, rank, 3, chunk=rank, links=[rank, 3]) for rank in range(3)]
    schedule = table(star(0.25, 1, 1), *rows, weights=(4, 3, 6))
    run = simulate_reference(schedule, 13 * 8, sharing="fluid")
    # 32 bytes at 0.25; 24 at 0.375 end at 64; then 24 of 48 are left and go at 0.75.
    assert run.applied_ps == (128 + 3, 64 + 3, 96 + 3)


def test_shares_are_max_min_fair() -> None:
    assert share_fairly({0: (0, 1), 1: (0,), 2: (0,), 3: (1,)}, [12, 10]) == {0: 4.0, 1: 4.0, 2: 4.0, 3: 6.0}
    assert share_fairly({}, [1]) == {}


def test_a_flow_that_comes_later_slows_the_first() -> None:
    """Rank 1 gets at 10 what it sends on; then both share the downlink until its bytes are through at 30."""
    network = wire(4, (3, 1, 1, 0), (0, 4, 1, 0), (1, 4, 1, 0), (4, 2, 1, 0), switches=1)
    rows = (
        send(0, 3, 1, chunk=0),
        send(0, 0, 2, chunk=1, links=[1, 3]),
        send(1, 1, 2, chunk=0, links=[2, 3]),
    )
    schedule = table(network, *rows, weights=(1, 3))
    run = simulate_reference(schedule, 40, sharing="fluid")
    assert run.started_ps == (0, 0, 10)
    assert run.applied_ps == (40, 10, 30)


def test_a_connection_carries_one_segment_at_a_time() -> None:
    rows = (send(0, 0, 1, chunk=0), send(1, 0, 1, chunk=1))
    schedule = table(wire(2, (0, 1, 1, 5)), *rows, weights=(1, 1))
    assert simulate_reference(schedule, 20, sharing="fluid").started_ps == (0, 10)
    assert simulate_reference(schedule, 20, sharing="fluid", segment_bytes=5).started_ps == (0, 10, 5, 15)


def test_a_connection_is_known_by_its_links() -> None:
    """The network's own path and the same path written out are one connection."""
    network = wire(2, (0, 1, 1, 0))
    rows = (send(0, 0, 1, chunk=0), send(1, 0, 1, chunk=1, links=[0]))
    assert network.route(0, 1) == (0,)
    assert simulate_reference(table(network, *rows, weights=(1, 1)), 20, sharing="fluid").started_ps == (
        0,
        10,
    )


def test_fluid_lets_the_smaller_step_go_first_in_a_connection() -> None:
    schedule = late_but_urgent()
    assert simulate_reference(schedule, 30, sharing="fluid").started_ps == (0, 0, 10, 20)


def test_a_fluid_arrival_without_latency_competes_for_a_connection_that_gets_idle_then() -> None:
    network = wire(3, (0, 1, 1, 0), (1, 2, 1, 0))
    rows = (send(0, 0, 1, chunk=0), send(0, 1, 2, chunk=1), send(1, 1, 2, chunk=0), send(2, 1, 2, chunk=2))
    run = simulate_reference(table(network, *rows, weights=(1, 1, 1)), 30, sharing="fluid")
    assert run.started_ps == (0, 0, 10, 20)


def test_fluid_waits_and_moves_follow_the_same_rules() -> None:
    network = wire(2, (0, 1, 2, 1), (1, 0, 0.5, 1))
    exchange = table(network, send(0, 0, 1), send(0, 1, 0))
    assert simulate_reference(exchange, 10, sharing="fluid").applied_ps == (20, 21)
    moves = table(network, send(0, 0, 0, dst_slot=1), send(1, 0, 1, src_slot=1))
    assert simulate_reference(moves, 10, sharing="fluid").applied_ps == (0, 6)


# What cannot be


def test_a_segment_that_nothing_sets_off_is_named() -> None:
    schedule = table(wire(3, (0, 1, 1, 0), (1, 2, 1, 0)), send(0, 0, 1), send(4, 1, 2))
    segments = cut_segments(schedule, 10)
    waits = derive_waits(segments)
    waits[1].start.add(segments[1].left)
    where = r"segment 1 \(transfer 1: chunk 0 from rank 1 to rank 2 in step 4\)"
    with pytest.raises(SimulationError, match=f"{where} can never start: segment 1 has not left"):
        Run(schedule.topology, segments, waits).to_the_end()


def test_a_segment_that_can_never_be_applied_is_named() -> None:
    schedule = table(wire(2, (0, 1, 1, 0)), send(0, 0, 1))
    segments = cut_segments(schedule, 10)
    waits = derive_waits(segments)
    waits[0].apply.add(segments[0].applied)
    with pytest.raises(
        SimulationError, match=r"rank 1 in step 0\) can never be applied: segment 0 has not been applied"
    ):
        Run(schedule.topology, segments, waits).to_the_end()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sharing": "fair"}, "sharing 'fair' is unknown, expected one of queue, fluid"),
        ({"segment_bytes": 0}, "segment_bytes 0: must be at least 1"),
    ],
)
def test_an_unknown_option_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        simulate_reference(table(wire(2), send(0, 0, 1)), 10, **options)


def test_a_size_that_cannot_be_is_refused() -> None:
    schedule = table(wire(2), send(0, 0, 1))
    with pytest.raises(ScheduleError, match="10 bytes are not a whole number of 4-byte elements"):
        simulate_reference(schedule, 10, element_bytes=4)
    with pytest.raises(LimitError, match="segments"):
        simulate_reference(schedule, 1 << 40, segment_bytes=1)
