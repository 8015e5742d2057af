"""Flows per link and step, against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.handmade import HANDMADE, SMALL_TOPOLOGIES, ring_all_reduce, weightless_all_reduce

from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import load_topology
from weft.verification import measure_contention


def flows_by_hand(schedule: Schedule) -> Counter[tuple[int, int]]:
    flows = {
        (int(schedule.step[row]), int(schedule.src[row]), int(schedule.dst[row]), schedule.route_of(row))
        for row in range(schedule.transfers)
        if schedule.weights[schedule.chunk[row]]
    }
    return Counter((step, link) for step, src, dst, links in flows if src != dst for link in links)


@pytest.mark.parametrize("make", HANDMADE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("spec", SMALL_TOPOLOGIES)
def test_counts_equal_those_by_hand(make, spec: str) -> None:
    schedule = make(load_topology(spec))
    report, by_hand = measure_contention(schedule), flows_by_hand(schedule)
    share = np.zeros(schedule.topology.links)
    for row in range(schedule.transfers):
        if schedule.src[row] != schedule.dst[row]:
            np.add.at(share, list(schedule.route_of(row)), schedule.weights[schedule.chunk[row]])
    assert report.max_flows == max(by_hand.values())
    assert report.contended_steps == len({step for (step, _), flows in by_hand.items() if flows > 1})
    for link in range(schedule.topology.links):
        most = max((flows for (_, where), flows in by_hand.items() if where == link), default=0)
        assert report.link_flows[link] == most
    np.testing.assert_allclose(report.link_share, share / schedule.denominator)
    worst = sorted((-flows, step, link) for (step, link), flows in by_hand.items() if flows > 1)[:10]
    found = [(-m.flows, m.step, m.link) for m in report.worst]
    assert found == [(flows, step, schedule.topology.link_name(link)) for flows, step, link in worst]


def test_a_ring_on_a_ring_is_free_of_contention() -> None:
    report = measure_contention(ring_all_reduce(load_topology("ring:8")))
    assert (report.max_flows, report.contended_steps, report.worst) == (1, 0, ())
    assert str(report) == (
        "no two flows on one link in one step; 8 of 16 links used, the busiest (0->1) carries 1.75 buffers"
    )


def test_several_messages_of_one_connection_are_one_flow() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "scattered", chunks=8)
    builder.add(step=0, chunk=[0, 2, 4, 7], src=0, dst=1, op=Op.COPY)
    schedule = builder.build()
    assert schedule.messages == 4
    assert measure_contention(schedule).max_flows == 1


def test_weightless_chunks_are_no_flow() -> None:
    schedule = weightless_all_reduce(load_topology("ring:3"))
    whole = measure_contention(schedule)
    assert measure_contention(schedule, size_bytes=0).max_flows == 0
    assert whole.link_share.sum() == pytest.approx(4.0)
    assert measure_contention(schedule, size_bytes=300).link_share.sum() == pytest.approx(4.0)
    assert "carries 300 bytes" in str(measure_contention(schedule, size_bytes=300))


def test_parallel_links_between_switches_count_together_too() -> None:
    topology = load_topology("fattree:2,1,4@uplinks=2")
    builder = ScheduleBuilder(topology, "all_gather", "cross")
    builder.add(step=0, chunk=range(4), src=range(4), dst=range(4, 8), op=Op.COPY)
    report = measure_contention(builder.build())
    up = next(pair for pair in report.switch_pairs if (pair.src, pair.dst) == ("s0", "s2"))
    assert (up.links, up.flows, up.share) == (2, 4, 0.5)
    assert {(pair.src, pair.dst) for pair in report.switch_pairs} == {("s0", "s2"), ("s2", "s1")}


def test_networks_without_switches_have_no_switch_pairs() -> None:
    assert measure_contention(ring_all_reduce(load_topology("ring:4"))).switch_pairs == ()


def test_a_schedule_without_transfers_uses_no_link() -> None:
    empty = ScheduleBuilder(load_topology("ring:3"), "broadcast", "none", chunks=1).build()
    report = measure_contention(empty)
    assert (report.max_flows, report.contended_steps, len(report.step_flows)) == (0, 0, 0)
    assert "0 of 6 links used" in str(report)
