"""Who meets whom, and what joins two hosts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.imagined import cables_of

from weft.probing import flow_rounds
from weft.probing.host_addresses import find_cables, own_addresses
from weft.topology import load_topology


@given(hosts=st.integers(2, 20))
def test_in_a_tournament_every_pair_meets_once_and_nobody_twice_at_a_time(hosts: int) -> None:
    meetings = flow_rounds.tournament(hosts)
    assert Counter(pair for one in meetings for pair in one) == Counter(
        (a, b) for b in range(hosts) for a in range(b)
    )
    for one in meetings:
        assert len({host for pair in one for host in pair}) == 2 * len(one)
    assert len(meetings) == hosts - 1 + hosts % 2


@given(hosts=st.integers(2, 12), seed=st.integers(0, 99))
def test_in_permutations_every_host_sends_once_and_receives_once(hosts: int, seed: int) -> None:
    found = list(flow_rounds.permutations(np.random.default_rng(seed).permutation(hosts).tolist()))
    for one in found:
        assert sorted(flow.src for flow in one) == sorted(flow.dst for flow in one) == list(range(hosts))
    assert len({flow for one in found for flow in one}) == hosts * (hosts - 1)


@pytest.mark.parametrize("spec", ["torus:3x3", "ring:5", "fullmesh:5", "mesh:2x4"])
def test_each_cable_runs_both_ways_and_no_host_twice_at_a_time(spec: str) -> None:
    cables = cables_of(load_topology(spec))
    found = flow_rounds.cable_flows(cables)
    assert len({flow for one in found for flow in one}) == sum(map(len, found)) == 2 * len(cables)
    for one in found:
        assert len({host for flow in one for host in flow[:2]}) == 2 * len(one)


def test_a_group_sends_out_to_all_other_groups() -> None:
    flows = flow_rounds.leaving((0, 1, 2), [(0, 1, 2), (3, 4, 5), (6,)])
    assert Counter(flow.src for flow in flows) == {0: 2, 1: 2, 2: 2}
    assert {flow.dst for flow in flows} == {3, 4, 5, 6}
    assert [(flow.dst, flow.src) for flow in flows] == [
        (flow.src, flow.dst) for flow in flow_rounds.entering((0, 1, 2), [(0, 1, 2), (3, 4, 5), (6,)])
    ]


def test_a_subnet_of_three_hosts_is_no_cable() -> None:
    assert find_cables([["10.0.0.1/24"], ["10.0.0.2/24"], ["10.0.0.3/24"]]) == ()


def test_bridges_of_containers_with_one_address_everywhere_are_no_cable() -> None:
    assert find_cables([["172.17.0.1/16"], ["172.17.0.1/16"]]) == ()


def test_an_address_without_a_subnet_is_no_cable() -> None:
    assert find_cables([["10.0.0.1/32"], ["10.0.0.1/32"]]) == ()


def test_two_cables_between_two_hosts_are_two() -> None:
    found = find_cables([["10.0.0.1/30", "10.0.0.5/30"], ["10.0.0.2/30", "10.0.0.6/30"]])
    assert [cable.addresses for cable in found] == [("10.0.0.1", "10.0.0.2"), ("10.0.0.5", "10.0.0.6")]


def test_own_addresses_leave_loopback_out() -> None:
    assert not [text for text in own_addresses() if text.startswith("127.")]
