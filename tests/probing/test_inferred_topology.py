"""Imagined clusters, whose truth is known, come out of their measurements again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.imagined import Noise, cables_of, probe_imagined

from weft.probing import Measurements, ProbeFinding, infer
from weft.probing.fair_sharing import share_fairly
from weft.probing.flow_rounds import cable_flows
from weft.probing.inferred_topology import format_finding
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.topology.toml_file import parse_toml

NIC = 5_000_000
US = 10**6


def two_tier(groups: Sequence[Sequence[int]], uplinks: Sequence[int], nic: int = NIC) -> Topology:
    hosts = sum(len(group) for group in groups)
    wiring = CableNotes(hosts, len(groups) + 1)
    for number, group in enumerate(groups):
        for host in group:
            wiring.cable(host, hosts + number, bandwidth=nic, latency_ps=10 * US)
        wiring.cable(hosts + number, hosts + len(groups), bandwidth=uplinks[number], latency_ps=20 * US)
    return wiring.build("truth")


def star(out: Sequence[int], into: Sequence[int]) -> Topology:
    wiring = CableNotes(len(out), 1)
    for host, (up, down) in enumerate(zip(out, into, strict=True)):
        wiring.cable(host, len(out), bandwidth=up, back=down, latency_ps=10 * US)
    return wiring.build("truth")


def speed(finding: ProbeFinding, src: str, dst: str) -> int:
    topology = finding.topology
    (link,) = topology.links_between(topology.parse_node(src), topology.parse_node(dst))
    return int(topology.bandwidth[link])


def throughput(topology: Topology, pairs: Sequence[tuple[int, int]]) -> float:
    routes = {number: topology.route(*pair) for number, pair in enumerate(pairs)}
    return sum(share_fairly(routes, topology.bandwidth.tolist()).values())


def test_a_star_is_one_switch() -> None:
    finding = infer(probe_imagined(load_topology("switch:6@bw=5MB/s,lat=10us")))
    assert (finding.topology.switches, finding.topology.links, finding.groups) == (1, 12, ())
    assert set(finding.topology.bandwidth.tolist()) == {NIC}
    assert set(finding.topology.latency_ps.tolist()) == {10 * US}
    assert finding.explained == 1


@given(
    speeds=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=2, max_size=7),
    seed=st.integers(0, 1000),
)
@examples(60)
def test_each_host_of_a_star_sends_and_receives_what_the_others_let_it(
    speeds: list[tuple[int, int]], seed: int
) -> None:
    out, into = ([NIC * pair[way] for pair in speeds] for way in (0, 1))
    finding = infer(probe_imagined(star(out, into), Noise(jitter=0.02, seed=seed)))
    assert finding.groups == ()
    for host in range(len(speeds)):
        takes = sum(into) - into[host]
        gives = sum(out) - out[host]
        assert speed(finding, str(host), "s0") == pytest.approx(min(out[host], takes), rel=0.15)
        assert speed(finding, "s0", str(host)) == pytest.approx(min(into[host], gives), rel=0.15)


def test_hosts_that_share_an_uplink_hang_on_a_leaf() -> None:
    truth = two_tier([(0, 2, 4), (1, 3, 5), (6, 7)], [NIC, 2 * NIC, 3 * NIC // 2])
    finding = infer(probe_imagined(truth, Noise(jitter=0.03)))
    assert finding.groups == ((0, 2, 4), (1, 3, 5), (6, 7))
    for leaf, uplink in (("s0", NIC), ("s1", 2 * NIC), ("s2", 3 * NIC // 2)):
        assert speed(finding, leaf, "s3") == pytest.approx(uplink, rel=0.05)
        assert speed(finding, "s3", leaf) == pytest.approx(uplink, rel=0.05)


def test_an_uplink_that_is_wide_enough_needs_no_leaf() -> None:
    finding = infer(probe_imagined(two_tier([(0, 1, 2), (3, 4, 5)], [3 * NIC, 3 * NIC])))
    assert (finding.topology.switches, finding.groups) == (1, ())


def test_a_cluster_where_one_leaf_alone_is_narrow() -> None:
    finding = infer(probe_imagined(two_tier([(0, 1), (2, 3), (4, 5)], [NIC, 2 * NIC, 2 * NIC])))
    assert (0, 1) in finding.groups
    assert speed(finding, f"s{finding.groups.index((0, 1))}", f"s{len(finding.groups)}") == NIC


def random_cluster(random: np.random.Generator) -> Topology:
    """Groups of random hosts; each uplink carries between a fifth of its hosts' speeds and all of them."""
    sizes = random.integers(2, 6, size=random.integers(2, 5)).tolist()
    order = random.permutation(sum(sizes)).tolist()
    groups, uplinks = [], []
    for size in sizes:
        groups.append(tuple(order[:size]))
        order = order[size:]
        uplinks.append(int(random.integers(NIC * 2 // 3, size * NIC)))
    return two_tier(groups, uplinks)


def test_what_is_found_carries_what_the_cluster_carries() -> None:
    wrong = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        truth = random_cluster(random)
        found = infer(probe_imagined(truth, Noise(jitter=0.02, seed=seed))).topology
        for _ in range(4):
            order = random.permutation(truth.ranks).tolist()
            pairs = list(zip(order, order[1:] + order[:1], strict=True))
            wrong.append(abs(throughput(found, pairs) / throughput(truth, pairs) - 1))
    assert np.median(wrong) < 0.02
    assert np.percentile(wrong, 95) < 0.15


def test_bad_luck_now_and_then_does_not_tear_a_group_apart() -> None:
    truth = two_tier([(0, 1, 2), (3, 4, 5)], [NIC, NIC])
    good = sum(
        infer(probe_imagined(truth, Noise(jitter=0.04, lost=0.03, seed=seed))).groups
        == ((0, 1, 2), (3, 4, 5))
        for seed in range(40)
    )
    assert good >= 38


@pytest.mark.parametrize(
    "spec", ["torus:2x4", "mesh:3x3", "ring:5", "hypercube:3", "fullmesh:4", "torus:4x4"]
)
def test_cables_are_the_topology(spec: str) -> None:
    truth = load_topology(f"{spec}@bw=5MB/s")
    finding = infer(probe_imagined(truth, cables=cables_of(truth)))
    found = finding.topology
    assert found.switches == 0
    for a, b in zip(truth.link_src.tolist(), truth.link_dst.tolist(), strict=True):
        assert [int(found.bandwidth[link]) for link in found.links_between(a, b)] == [NIC]
    assert len(found.addresses) == found.links == truth.links
    if not spec.startswith(("hypercube", "fullmesh")):
        assert found.grid == truth.grid


def test_a_cable_may_be_slower_one_way() -> None:
    truth = load_topology("ring:4@bw=5MB/s,back=1MB/s")
    found = infer(probe_imagined(truth, cables=cables_of(truth))).topology
    assert [int(found.bandwidth[found.links_between(a, b)[0]]) for a, b in ((0, 1), (1, 0))] == [NIC, 10**6]


def test_cables_that_share_something_are_named() -> None:
    truth = load_topology("ring:3@bw=5MB/s")
    measurements = probe_imagined(truth, cables=cables_of(truth))
    last = measurements.rounds[-1]
    for flow in last.rates:
        if flow.src == 1:
            last.rates[flow] *= 0.5
    assert any("all cables at once" in note for note in infer(measurements).topology.notes)


def test_ranks_of_one_host_hang_on_a_switch_inside_it() -> None:
    truth = load_topology("hosts:4,2,1@intra=2GB/s,uplink=4MB/s/2MB/s/1MB/s")
    finding = infer(probe_imagined(truth))
    found = finding.topology
    assert found.hosts == ((0, 1, 2, 3), (4, 5), (6,))
    assert speed(finding, "0", "s0") == speed(finding, "5", "s1") == 2 * 10**9
    assert speed(finding, "s1", "s2") == 2 * 10**6
    assert speed(finding, "6", "s2") == 10**6
    assert speed(finding, "s0", "s2") == 3 * 10**6
    assert any("rank 0 sends at least this" in note for note in found.notes)


def test_a_fan_that_was_held_up_once_is_run_until_its_speed_is_confirmed() -> None:
    truth = load_topology("hosts:4,2,1@uplink=4MB/s/2MB/s/1MB/s")
    fans = 6, 7  # of the first host, once over: only they show what it sends and receives to several others
    again = 12, 13
    for slow in ((), fans, again):
        measurements = probe_imagined(truth, Noise(jitter=0.02, held_up=dict.fromkeys(slow, 0.84)))
        finding = infer(measurements)
        for ends in (("s0", "s2"), ("s2", "s0")):
            assert speed(finding, *ends) == pytest.approx(3 * 10**6, rel=0.05), slow
        assert sum(one.kind == "fans" for one in measurements.rounds) == 6 + 2 + 2 * bool(slow)


def test_a_cable_is_measured_again_if_its_best_rate_is_not_confirmed() -> None:
    truth = load_topology("ring:4@bw=5MB/s")
    cables = cables_of(truth)
    each = len(cable_flows(cables))
    usual = len(probe_imagined(truth, Noise(), cables).rounds)
    held_up = dict.fromkeys(range(2 * each, 4 * each + 1), 0.7)  # all but the first time after the warm-up
    measurements = probe_imagined(truth, Noise(held_up=held_up), cables)
    assert len(measurements.rounds) == usual + each
    assert set(infer(measurements).topology.bandwidth.tolist()) == {NIC}


def test_one_host_has_no_network() -> None:
    finding = infer(Measurements(((0, 1, 2),), memory={0: [1e9, 1.1e9, 0.9e9]}, memory_latency_s=2e-6))
    assert (finding.topology.ranks, finding.topology.switches, finding.topology.hosts) == (3, 1, ((0, 1, 2),))
    assert set(finding.topology.bandwidth.tolist()) == {10**9}


@pytest.mark.parametrize(
    "spec", ["switch:4", "fattree:2,1,3@bw=5MB/s,uplink=5MB/s", "hosts:2,2", "torus:2x3"]
)
def test_the_file_loads_again(spec: str) -> None:
    truth = load_topology(spec)
    finding = infer(probe_imagined(truth, cables=cables_of(truth) if truth.direct else ()))
    text = format_finding(finding)
    assert parse_toml(text, "probed.toml") == finding.topology
    assert text.count("# ") >= finding.topology.links
    assert len(finding.to_dict()["links"]) == finding.topology.links
