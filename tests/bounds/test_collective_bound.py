"""Lower bounds: right numbers where they are known, never above what a schedule reaches."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.reference.schedule_engine import simulate_reference

from weft.algorithms import direct
from weft.algorithms.registry import ALGORITHMS
from weft.bounds import tight_cuts
from weft.bounds.collective_bound import (
    condition_of,
    equal_shard_all_reduce_seconds,
    kind_text,
    lower_bound,
)
from weft.bounds.distances import longest_path
from weft.errors import InputError, UnsupportedError
from weft.schedule import COLLECTIVES, Schedule
from weft.simulation import simulate
from weft.topology import Topology, load_topology

SIZE = 16 * 64 * 10**6
"""A whole number of bytes for every rank of the clusters in the tables."""


def rate(spec: str, collective: str = "all_reduce", size: int = SIZE) -> float:
    """Algorithm bandwidth in GB/s that no schedule exceeds."""
    return size / lower_bound(load_topology(spec), collective, size).bandwidth_seconds / 1e9


@pytest.mark.parametrize(
    ("spec", "algbw", "kind"),
    [
        ("mesh:4x4@bw=1GB/s", 1.6, "singletons"),
        ("mesh:8x8@bw=1GB/s", 224 / 126, "singletons"),
        ("mesh:4x4@bw=1GB/s/4GB/s", 4.0, "one slab"),
        ("torus:4x4@bw=1GB/s", 64 / 30, "singletons"),
        ("torus:8x8@bw=1GB/s", 256 / 126, "singletons"),
        ("torus:4x4@bw=1GB/s+fail=0-1", 62 / 30, "singletons"),
        ("torus:8x8@bw=1GB/s+fail=0-1", 254 / 126, "singletons"),
        ("dgx-h100:2@fabric=flat", 8000 / 30, "singletons"),
        ("dgx-h100:2@fabric=flat+fail=0-s2", 7950 / 30, "singletons"),
        ("dgx-a100:2@fabric=flat", 5200 / 30, "singletons"),
        ("dgx-a100:4@fabric=flat", 800 / 6, "hosts"),
        ("fattree:4,4,4@bw=1GB/s,uplink=0.1GB/s", 1.6 / 6, "groups"),
        ("hosts:8,4,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s", 1.0, "one host"),
        ("torus:4x4@bw=0.1GB/s/10GB/s", 3.2 / 6, "slabs"),
        ("switch:8@bw=1GB/s,back=10GB/s", 8 / 14, "singletons"),
        ("switch:8@bw=10GB/s,back=1GB/s", 8 / 14, "singletons"),
    ],
)
def test_all_reduce_rates(spec: str, algbw: float, kind: str) -> None:
    assert rate(spec) == pytest.approx(algbw, rel=1e-12)
    assert lower_bound(load_topology(spec), "all_reduce", SIZE).kind == f"bandwidth: {kind}"


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("spec", "algbw"),
    [
        ("mesh:4x4@bw=1GB/s", 2 * 1.0666667),
        ("mesh:8x8@bw=1GB/s", 2 * 1.015873),
        ("mesh:4x4@bw=1GB/s/4GB/s", 2 * 2.6666667),
        ("torus:4x4@bw=1GB/s", 2 * 2.1333333),
        ("torus:4x4@bw=1GB/s+fail=0-1", 2 * 1.6),
        ("torus:8x8@bw=1GB/s+fail=0-1", 2 * 1.5238095),
        ("dgx-h100:2@fabric=flat", 533.33333),
        ("dgx-h100:2@fabric=flat+fail=0-s2", 480.0),
        ("dgx-a100:2@fabric=flat", 346.66667),
        ("dgx-a100:4@fabric=flat", 266.66667),
        ("torus:8x8@bw=1GB/s", 4.0634921),
    ],
)
def test_equal_shard_rates(spec: str, algbw: float, collective: str) -> None:
    assert rate(spec, collective) == pytest.approx(algbw, rel=1e-6)


@pytest.mark.parametrize(
    ("spec", "algbw"),
    [
        ("mesh:4x4@bw=1GB/s", Fraction(16, 15)),
        ("mesh:8x8@bw=1GB/s", Fraction(64, 63)),
        ("mesh:4x4@bw=1GB/s/4GB/s", Fraction(8, 3)),
        ("torus:4x4@bw=1GB/s", Fraction(32, 15)),
        ("torus:8x8@bw=1GB/s", Fraction(128, 63)),
        ("torus:4x4@bw=1GB/s+fail=0-1", Fraction(8, 5)),
        ("torus:8x8@bw=1GB/s+fail=0-1", Fraction(32, 21)),
        ("dgx-h100:2@fabric=flat", Fraction(800, 3)),
        ("dgx-h100:2@fabric=flat+fail=0-s2", Fraction(240)),
        ("dgx-a100:2@fabric=flat", Fraction(520, 3)),
    ],
)
def test_equal_shard_all_reduce_is_a_reduce_scatter_and_an_all_gather(spec: str, algbw: Fraction) -> None:
    seconds = equal_shard_all_reduce_seconds(load_topology(spec), SIZE)
    assert Fraction(SIZE, 10**9) / Fraction(seconds) == pytest.approx(algbw, rel=1e-14)


def test_directions_are_told_apart() -> None:
    one_way = "mesh:2@bw=1GB/s,back=4GB/s"
    assert rate(one_way, "broadcast") == 1.0
    assert rate(one_way, "reduce") == 4.0
    assert rate(one_way, "all_reduce") == 1.0
    assert rate(one_way, "all_gather") == 2.0
    slow_up, slow_down = "switch:8@bw=1GB/s,back=10GB/s", "switch:8@bw=10GB/s,back=1GB/s"
    for spec in (slow_up, slow_down):
        for collective in ("all_gather", "reduce_scatter", "all_to_all"):
            assert rate(spec, collective) == pytest.approx(8 / 7)


def test_all_to_all_is_limited_by_the_bisection() -> None:
    assert rate("torus:8x8@bw=1GB/s", "all_to_all") == pytest.approx(1.0)
    assert rate("mesh:8x8@bw=1GB/s", "all_to_all") == pytest.approx(0.5)
    assert rate("ring:8@bw=1GB/s", "all_to_all") == pytest.approx(1.0)


def test_mixture_of_hosts_and_ranks() -> None:
    bound = lower_bound(load_topology("hosts:8,8@intra=1GB/s/100GB/s,uplink=1GB/s"), "all_reduce", SIZE)
    assert bound.kind == "bandwidth: hosts and singletons"
    assert SIZE / bound.seconds / 1e9 == pytest.approx(9 / 16)


def two_islands() -> Topology:
    """Two full meshes of five, joined by one slow cable."""
    cables = [*combinations(range(5), 2), *combinations(range(5, 10), 2)]
    fast = Topology.from_links("islands", 10, 0, [*cables, (0, 5)], bandwidth="10GB/s", latency="1us")
    speeds = fast.bandwidth.copy()
    speeds[-2:] = 10**9
    return Topology("islands", 10, 0, fast.link_src, fast.link_dst, speeds, fast.latency_ps)


def racks() -> Topology:
    """Four hosts of two ranks, two hosts to a rack switch, a thin cable between the racks."""
    ranks_to_hosts = [(rank, 8 + rank // 2) for rank in range(8)]
    hosts_to_racks = [(8 + host, 12 + host // 2) for host in range(4)]
    wide = Topology.from_links(
        "racks", 8, 6, [*ranks_to_hosts, *hosts_to_racks, (12, 13)], bandwidth="10GB/s", latency="1us"
    )
    speeds = wide.bandwidth.copy()
    speeds[-2:] = 10**9
    hosts = tuple((2 * host, 2 * host + 1) for host in range(4))
    return Topology("racks", 8, 6, wide.link_src, wide.link_dst, speeds, wide.latency_ps, hosts=hosts)


@pytest.mark.parametrize("topology", [two_islands(), racks()], ids=["islands", "racks"])
def test_thin_places_are_found(topology: Topology) -> None:
    for collective in ("all_reduce", "broadcast", "reduce"):
        bound = lower_bound(topology, collective, SIZE)
        assert bound.kind == "bandwidth: minimum cut"
        assert SIZE / bound.seconds / 1e9 == pytest.approx(1.0)
    assert SIZE / lower_bound(topology, "all_gather", SIZE).seconds / 1e9 == pytest.approx(2.0)
    assert "over 0->5 (1GB/s)" in lower_bound(two_islands(), "broadcast", SIZE).explanation


def test_explanations_can_be_checked_by_hand() -> None:
    bound = lower_bound(load_topology("torus:8x8@bw=1GB/s"), "all_reduce", 64 << 20)
    assert bound.explanation == "each rank a set of its own: 126 x 64MiB over 256 links (256GB/s together)"
    bound = lower_bound(load_topology("hosts:8,4,2@uplink=10GB/s/5GB/s/1GB/s"), "reduce", 64 << 20)
    assert bound.explanation == "out of host 2 (ranks 12 to 13): 64MiB over s2->s3 (1GB/s)"


@pytest.mark.parametrize(
    ("uplinks", "explanation"),
    [
        ("1GB/s/9GB/s", "out of host 0 (ranks 0 to 1): 64MB over s0->s2 (1GB/s)"),
        ("9GB/s/1GB/s", "out of host 1 (ranks 2 to 9): 64MB over s1->s2 (1GB/s)"),
    ],
)
def test_a_link_between_two_hosts_is_named_with_the_host_that_it_belongs_to(
    uplinks: str, explanation: str
) -> None:
    topology = load_topology(f"hosts:2,8@uplink={uplinks}")
    assert lower_bound(topology, "all_reduce", 64_000_000).explanation == explanation


def test_a_narrow_way_in_is_not_the_other_hosts_way_out() -> None:
    topology = load_topology("hosts:2,8@uplink=9GB/s")
    (narrow,) = topology.links_between(topology.parse_node("s2"), topology.parse_node("s1"))
    bandwidth = topology.bandwidth.copy()
    bandwidth[narrow] = 10**9
    bound = lower_bound(replace(topology, bandwidth=bandwidth), "all_reduce", 64_000_000)
    assert bound.explanation == "into host 1 (ranks 2 to 9): 64MB over s2->s1 (1GB/s)"
    bound = lower_bound(load_topology("mesh:4x4@lat=2us"), "all_reduce", 1)
    assert bound.kind == "latency"
    assert bound.explanation == "rank 0 to rank 15: 12us by the shortest path"
    assert bound.seconds == bound.latency_seconds == 12e-6 > bound.bandwidth_seconds > 0


def test_latency_counts_only_between_ranks_that_must_meet() -> None:
    line = load_topology("mesh:8@lat=1us")
    assert lower_bound(line, "broadcast", 1, root=3).latency_seconds == 4e-6
    assert lower_bound(line, "reduce", 1, root=0).latency_seconds == 7e-6
    # A single byte is owned by rank 0 alone.
    assert lower_bound(load_topology("mesh:3@lat=1us"), "all_gather", 1).latency_seconds == 2e-6
    assert lower_bound(load_topology("mesh:8@lat=1us"), "all_gather", 1).latency_seconds == 7e-6
    assert lower_bound(line, "all_gather", 8, element_bytes=8).bandwidth_seconds < 8 / 25e9 + 1e-15


def test_an_empty_buffer_needs_no_time() -> None:
    for collective in COLLECTIVES:
        assert lower_bound(load_topology("ring:4"), collective, 0).seconds == 0


def test_bad_input_is_refused() -> None:
    ring = load_topology("ring:4")
    with pytest.raises(InputError, match="collective 'all_scatter' is unknown"):
        lower_bound(ring, "all_scatter", 1)
    with pytest.raises(InputError, match=r"root 4: ring:4 has ranks 0\.\.3"):
        lower_bound(ring, "broadcast", 1, root=4)
    with pytest.raises(InputError, match="whole number of 4-byte elements"):
        lower_bound(ring, "broadcast", 6, element_bytes=4)


def test_bounds_do_not_load_scipy() -> None:
    code = """
import sys
from weft.bounds.collective_bound import lower_bound
from weft.schedule import COLLECTIVES
from weft.topology import load_topology
grids = ["torus:4x4+fail=0-1", "fattree:16", "dragonfly:3,2,1"]
for spec in [*grids, "switch:8", "dgx-h100:2", "dgx-h100:2@fabric=flat", "hosts:8,4,2"]:
    for collective in COLLECTIVES:
        lower_bound(load_topology(spec), collective, 1 << 20)
assert "scipy" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def schedules(topology: Topology, root: int) -> Iterator[Schedule]:
    for algorithm in ALGORITHMS.values():
        for collective in algorithm.collectives:
            try:
                yield algorithm.build(topology, collective, root)
            except UnsupportedError:
                continue


def assert_no_schedule_is_faster(topology: Topology, root: int, sizes: tuple[int, ...]) -> None:
    bounds = {
        (collective, size): lower_bound(topology, collective, size, root).seconds
        for collective in COLLECTIVES
        for size in sizes
    }
    for schedule in schedules(topology, root):
        for size in sizes:
            for segment in (None, max(1, size // 20)):
                reached = simulate(schedule, size, segment_bytes=segment).time_ps * 1e-12
                assert bounds[schedule.collective, size] <= reached * (1 + 1e-12), (repr(schedule), size)


@pytest.mark.parametrize(
    "spec",
    [
        "ring:5",
        "mesh:3x3",
        "torus:3x3+fail=0-1",
        "hypercube:3",
        "fullmesh:6",
        "switch:7@bw=1GB/s,back=3GB/s",
        "hosts:4,2,1@intra=10GB/s,uplink=1GB/s",
        "fattree:2,2,3",
        "dragonfly:3,2,1",
        "mesh:2",
        "torus:2x2@wrap2=double,back=1GB/s",
    ],
)
def test_no_schedule_beats_the_bound(spec: str) -> None:
    topology = load_topology(spec)
    assert_no_schedule_is_faster(topology, topology.ranks - 1, (1, 5, 1000, 10**6))


@examples(15)
@given(clusters(max_ranks=6), st.integers(1, 10**5), st.data())
def test_no_schedule_beats_the_bound_on_any_cluster(
    topology: Topology, size: int, data: st.DataObject
) -> None:
    assert_no_schedule_is_faster(topology, data.draw(st.integers(0, topology.ranks - 1)), (size,))


@pytest.mark.parametrize(
    "make", [direct.all_reduce, direct.reduce_scatter, direct.all_gather, direct.all_to_all]
)
def test_direct_exchange_reaches_the_bound_of_a_full_mesh(make: Callable[[Topology], Schedule]) -> None:
    schedule = make(load_topology("fullmesh:8@bw=1GB/s,lat=0s"))
    bound = lower_bound(schedule.topology, schedule.collective, 8_000_000)
    assert simulate_reference(schedule, 8_000_000).time_ps == pytest.approx(bound.seconds * 1e12, rel=1e-12)


def out_of(topology: Topology, inside: set[int]) -> int:
    ends = zip(
        topology.link_src.tolist(), topology.link_dst.tolist(), topology.bandwidth.tolist(), strict=True
    )
    return sum(speed for src, dst, speed in ends if src in inside and dst not in inside)


def smallest_way_out(topology: Topology, ranks: tuple[int, ...]) -> int:
    """Least capacity out of some ranks, over all choices of switches to go with them."""
    switches = range(topology.ranks, topology.nodes)
    choices = (with_ for count in range(topology.switches + 1) for with_ in combinations(switches, count))
    return min(out_of(topology, {*ranks, *with_}) for with_ in choices)


@examples(40)
@given(clusters(max_ranks=6, max_switches=3))
def test_broadcast_is_bounded_by_the_smallest_cut_of_all(topology: Topology) -> None:
    others = range(1, topology.ranks)
    sets = [(0, *more) for count in range(len(others)) for more in combinations(others, count)]
    smallest = min(smallest_way_out(topology, inside) for inside in sets)
    bound = lower_bound(topology, "broadcast", SIZE)
    if "set" in bound.explanation:  # a division: with slow ways out it may say more than any single cut
        assert bound.bandwidth_seconds >= SIZE / smallest * (1 - 1e-12)
    else:
        assert bound.bandwidth_seconds == pytest.approx(SIZE / smallest, rel=1e-12)


def proper_sets(ranks: int) -> Iterator[tuple[int, ...]]:
    return (chosen for count in range(1, ranks) for chosen in combinations(range(ranks), count))


def divisions(ranks: list[int]) -> Iterator[list[tuple[int, ...]]]:
    if not ranks:
        yield []
        return
    for rest in divisions(ranks[1:]):
        yield [(ranks[0],), *rest]
        for index, part in enumerate(rest):
            yield [*rest[:index], (ranks[0], *part), *rest[index + 1 :]]


@examples(40)
@given(clusters(max_ranks=5, max_switches=3))
def test_the_searches_find_the_best_of_all_sets_and_divisions(topology: Topology) -> None:
    for outward in (True, False):
        turned = topology if outward else topology.transpose()
        way_out = {chosen: smallest_way_out(turned, chosen) for chosen in proper_sets(topology.ranks)}
        dense = tight_cuts.densest(topology, outward=outward)
        inside = set(np.flatnonzero(dense).tolist())
        found = Fraction(int(dense[: topology.ranks].sum()), out_of(turned, inside))
        assert found == max(Fraction(len(chosen), least) for chosen, least in way_out.items())
        thin = set(np.flatnonzero(tight_cuts.thinnest(topology, 0, outward=outward)).tolist())
        assert 0 in thin
        assert out_of(turned, thin) == min(least for chosen, least in way_out.items() if 0 in chosen)
        division = tight_cuts.strongest(topology, outward=outward)
        parts = [tuple(np.flatnonzero(division.part == p).tolist()) for p in range(division.parts)]
        assert division.capacity == sum(way_out[part] for part in parts)
        assert Fraction(division.parts - 1, division.capacity) == max(
            Fraction(len(parts) - 1, sum(way_out[part] for part in parts))
            for parts in divisions(list(range(topology.ranks)))
            if len(parts) > 1
        )


def test_a_division_without_a_name_is_found() -> None:
    """A triangle of fast links with a pair hanging on each corner: corners and pairs are neither alike."""
    fast = [(0, 1), (1, 2), (2, 0)]
    slow = [(corner, 3 + corner) for corner in range(3)]
    both = Topology.from_links("star", 6, 0, [*fast, *slow], bandwidth="4GB/s", latency="1us")
    speeds = both.bandwidth.copy()
    speeds[6:] = 10**9
    topology = Topology("star", 6, 0, both.link_src, both.link_dst, speeds, both.latency_ps)
    bound = lower_bound(topology, "all_reduce", SIZE)
    assert SIZE / bound.seconds / 1e9 == pytest.approx(1.0)
    wider = speeds.copy()
    wider[6:] = 7 * 10**9
    topology = Topology("star", 6, 0, both.link_src, both.link_dst, wider, both.latency_ps)
    bound = lower_bound(topology, "all_reduce", SIZE)
    # Corners with their pairs as three sets: 4 crossings over 24 GB/s; no single cut says more than 1/8.
    assert bound.kind == "bandwidth: partition"
    assert SIZE / bound.seconds / 1e9 == pytest.approx(6.0)
    assert bound.explanation.startswith("3 sets, 0 of them single ranks, the largest ranks 0, 3: 4 x ")


def test_speeds_that_do_not_fit_into_64_bits_still_bound() -> None:
    cables = [(a, b) for a in range(64) for b in range(a)]
    topology = Topology.from_links("wide", 64, 0, cables, bandwidth=10**15, latency="1us")
    speeds = topology.bandwidth - np.arange(topology.links)
    topology = Topology("wide", 64, 0, topology.link_src, topology.link_dst, speeds, topology.latency_ps)
    division = tight_cuts.strongest(topology, outward=True)
    exact = sum(speeds.tolist())
    assert division.parts == 64
    assert exact <= division.capacity <= exact * (1 + 1e-9)
    slowest = min(speeds[topology.link_dst == rank].sum() for rank in range(64))
    bound = lower_bound(topology, "all_gather", 64 * 10**6)
    assert bound.bandwidth_seconds == pytest.approx(63 * 10**6 / float(slowest), rel=1e-12)


class Prices:
    """A certificate that says what it is told."""

    def __init__(self, seconds_per_byte: float) -> None:
        self.value = seconds_per_byte

    def seconds_per_byte(self, topology: Topology) -> float:
        return self.value


def test_a_certificate_counts_where_it_is_sharper() -> None:
    topology = load_topology("dgx-h100:2@fabric=flat+fail=0-s2")
    own = lower_bound(topology, "all_reduce", SIZE)
    sharper = lower_bound(topology, "all_reduce", SIZE, certificate=Prices(1 / 263.3e9))
    assert sharper.kind == "bandwidth: certificate"
    assert sharper.seconds == pytest.approx(SIZE / 263.3e9)
    assert "no packing of trees carries more than 263.3GB/s" in sharper.explanation
    assert lower_bound(topology, "all_reduce", SIZE, certificate=Prices(1 / 300e9)) == own
    assert lower_bound(topology, "all_reduce", SIZE, certificate=Prices(0.0)) == own
    with pytest.raises(InputError, match="a certificate bounds all_reduce, not broadcast"):
        lower_bound(topology, "broadcast", SIZE, certificate=Prices(1.0))


def test_beyond_what_can_be_searched_named_sets_still_bound() -> None:
    assert tight_cuts.affordable(load_topology("torus:32x32"))
    large = load_topology("ring:8192")
    assert not tight_cuts.affordable(large)
    assert lower_bound(large, "all_gather", 1 << 33).kind == "bandwidth: one rank"


@examples(60)
@given(clusters(max_ranks=12))
def test_longest_path_is_the_longest_of_the_shortest(topology: Topology) -> None:
    far = 1 << 60
    distance = np.full((topology.nodes, topology.nodes), far)
    np.fill_diagonal(distance, 0)
    for src, dst, latency in zip(topology.link_src, topology.link_dst, topology.latency_ps, strict=True):
        distance[src, dst] = min(distance[src, dst], latency)
    for via in range(topology.nodes):
        distance = np.minimum(distance, distance[:, [via]] + distance[[via], :])
    distance = distance[: topology.ranks, : topology.ranks]
    everyone = np.arange(topology.ranks)
    path = longest_path(topology, everyone, everyone)
    assert path.latency_ps == distance.max() == distance[path.src, path.dst]
    for rank in (0, topology.ranks - 1):
        down = longest_path(topology, np.array([rank]), everyone)
        assert down.latency_ps == distance[rank].max() == distance[rank, down.dst]
        up = longest_path(topology, everyone, np.array([rank]))
        assert up.latency_ps == distance[:, rank].max() == distance[up.src, rank]


@pytest.mark.parametrize(
    "spec", ["mesh:3x4x2", "torus:5x4", "torus:2x3", "ring:9", "mesh:1x6", "hypercube:4"]
)
def test_longest_path_of_a_grid_has_a_closed_form(spec: str) -> None:
    topology = load_topology(spec)
    grid = topology.grid
    assert grid is not None
    hops = sum(n // 2 if wrap else n - 1 for n, wrap in zip(grid.shape, grid.wrap, strict=True))
    everyone = np.arange(topology.ranks)
    assert longest_path(topology, everyone, everyone).latency_ps == hops * 10**6
    assert (
        longest_path(load_topology(spec).with_routing("shortest"), everyone, everyone).latency_ps
        == hops * 10**6
    )


def test_large_clusters_have_bounds_too() -> None:
    for spec in ("torus:32x32", "ring:4096", "fattree:32,32,32", "torus:32x32+fail=rank:3"):
        bound = lower_bound(load_topology(spec), "all_reduce", 1 << 40)
        assert bound.seconds > 0
    huge = lower_bound(load_topology("ring:8192"), "all_to_all", 1 << 50)
    assert huge.kind == "bandwidth: one slab"


def test_the_page_on_bounds_shows_what_comes_out() -> None:
    page = Path(__file__).parents[2] / "docs" / "bounds.md"
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 15
    assert failed == 0


def test_a_leaf_switch_is_not_called_a_host() -> None:
    leaves = load_topology("fattree:2,1,3@bw=4GB/s,uplink=1GB/s")
    alone = replace(leaves, hosts=tuple((rank,) for rank in range(6)))
    for topology in (leaves, alone):
        found = lower_bound(topology, "all_reduce", 64_000_000)
        assert (found.kind, found.explanation.partition(" (")[0]) == (
            "bandwidth: one group",
            "out of group 0",
        )


@pytest.mark.parametrize(
    ("spec", "collective", "condition"),
    [
        ("dgx-h100:1", "all_reduce", "sums are made at ranks"),
        ("dgx-h100:2", "all_reduce", "sums are made at ranks"),
        ("hosts:8,4,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s", "all_reduce", ""),
        ("torus:4x4", "all_reduce", ""),
        ("dgx-h100:1", "all_gather", ""),
    ],
)
def test_a_bound_that_a_switch_which_adds_could_beat_says_so(
    spec: str, collective: str, condition: str
) -> None:
    topology = load_topology(spec)
    kind = lower_bound(topology, collective, 1 << 30).kind
    assert condition_of(topology, collective, kind) == condition
    assert condition_of(topology, collective, "latency") == ""
    assert kind_text(topology, collective, kind) == (f"{kind}; {condition}" if condition else kind)


def test_the_longest_path_begins_at_ranks_that_own_elements() -> None:
    line = load_topology("ring:6@lat=1us+fail=2-3")
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        found = [lower_bound(line, collective, size).latency_seconds for size in (1, 6, 64, 1)]
        assert found == pytest.approx([3e-6, 5e-6, 5e-6, 3e-6])
