"""FlexReduce: the portions of the worked examples, interval matching, and never a busier link than evenly."""

from __future__ import annotations

import doctest
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.loads import busiest_seconds, link_loads
from support.oracle import accepts

from weft.algorithms import (
    blueconnect,
    double_binary_tree,
    flexreduce,
    hierarchical,
    registry,
    ring,
)
from weft.algorithms.common.levels import find_levels, flat
from weft.algorithms.flexreduce.intervals import Holding, meet, share_out
from weft.algorithms.flexreduce.pipeline_estimate import SEGMENT_BYTES, estimate_seconds
from weft.algorithms.flexreduce.portion_plans import PortionPlan, even_shares, list_forms, make_plan
from weft.algorithms.flexreduce.portions import are_best, balance, fill_ring
from weft.bounds.collective_bound import lower_bound
from weft.errors import InputError, LimitError, UnsupportedError
from weft.planning.comparison import compare
from weft.schedule import Schedule
from weft.schedule.passes import halves
from weft.simulation import simulate
from weft.simulation.segment_sizes import SEGMENT_SIZES
from weft.simulation.simulator import search_segments
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.training import by_algorithm

UNEVEN = ["hosts:8,4", "hosts:4,3,1", "hosts:1,3,1,5", "hosts:2,1,1,1,3", "hosts:6,4@intra=9GB/s"]
EVEN = ["dgx-h100:2@fabric=flat", "dgx-a100:3@fabric=flat", "fattree:16", "bigraph:3,4", "hosts:5,5,5"]
OTHERS = ["torus:3x3", "mesh:1x5", "switch:6", "fullmesh:5", "ring:2", "torus:3x3+fail=0-1", "hypercube:3"]
GB = 10**9
PAGE = Path(__file__).parents[2] / "docs" / "flexreduce.md"

EXAMPLES = [
    ([1, 2], ["2/3", "1/3"], Fraction(1, 3), Fraction(1, 2)),
    ([8, 8, 4], ["1/5", "1/5", "3/5"], Fraction(1, 10), Fraction(1, 6)),
    ([4, 4, 4, 1], ["1/13", "1/13", "1/13", "10/13"], Fraction(3, 13), Fraction(3, 4)),
    ([1, 1, 2], ["1/2", "1/2", "0"], Fraction(1, 2), Fraction(2, 3)),
]


def portions(schedule: Schedule) -> list[Fraction]:
    """What each rank owns."""
    scatter, _ = halves(schedule)
    owned = [0] * schedule.ranks
    for owner, weight in zip(scatter.target.tolist(), scatter.weights.tolist(), strict=True):
        owned[owner] += weight
    return [Fraction(weight, schedule.denominator) for weight in owned]


def cables(speeds: list[int]) -> Topology:
    """A ring of cables, the i-th from rank i to the next."""
    wiring = CableNotes(len(speeds))
    for rank, speed in enumerate(speeds):
        wiring.cable(rank, (rank + 1) % len(speeds), bandwidth=speed * GB, latency_ps=10**6)
    return wiring.build("cables")


def racks(shape: list[list[int]], rack_speed: int) -> Topology:
    """Racks of hosts behind rack switches behind one core; hosts have 25 GB/s, ranks 100 GB/s."""
    hosts = [count for rack in shape for count in rack]
    wiring = CableNotes(sum(hosts), len(hosts) + len(shape) + 1)
    members: list[tuple[int, ...]] = []
    for rack, counts in enumerate(shape):
        above = wiring.switch(len(hosts) + rack)
        wiring.cable(
            above, wiring.switch(len(hosts) + len(shape)), bandwidth=rack_speed * GB, latency_ps=10**6
        )
        for count in counts:
            here, first = wiring.switch(len(members)), sum(hosts[: len(members)])
            members.append(tuple(range(first, first + count)))
            wiring.cable(here, above, bandwidth=25 * GB, latency_ps=10**6)
            for rank in members[-1]:
                wiring.cable(rank, here, bandwidth=100 * GB, latency_ps=10**6)
    return wiring.build("racks", hosts=tuple(members))


@pytest.mark.parametrize(("speeds", "shares", "seconds", "even"), EXAMPLES)
def test_filling_a_ring_gives_the_worked_examples(
    speeds: list[int], shares: list[str], seconds: Fraction, even: Fraction
) -> None:
    filled = fill_ring(speeds)
    assert [str(share) for share in filled.shares] == shares
    assert filled.seconds == seconds
    assert max((1 - Fraction(1, len(speeds))) / speed for speed in speeds) == even


@examples(50)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=9))
def test_filling_a_ring_is_optimal(speeds: list[int]) -> None:
    shares, seconds = fill_ring(speeds)
    assert sum(shares) == 1
    assert min(shares) >= 0
    busy = [(1 - share) / speed for share, speed in zip(shares, speeds, strict=True)]
    assert max(busy) == seconds
    # Whoever owns something has a hop that is as busy as any: owning less would make it busier.
    assert all(time == seconds for time, share in zip(busy, shares, strict=True) if share)
    hops = np.array([(1 - np.eye(len(speeds))[rank]) / speeds[rank] for rank in range(len(speeds))])
    solved = balance(hops, np.zeros_like(hops), np.zeros(len(speeds)))
    reached = max((1 - share) / speed for share, speed in zip(solved, speeds, strict=True))
    assert reached == pytest.approx(float(seconds), rel=2e-3)


def test_filling_refuses_what_is_no_ring() -> None:
    for speeds in ([1], [1, 0]):
        with pytest.raises(InputError, match="at least two hops of positive speed"):
            fill_ring(speeds)


@pytest.mark.parametrize(("speeds", "shares", "seconds", "even"), EXAMPLES[1:])
def test_a_ring_of_cables_gets_the_portions_of_the_examples(
    speeds: list[int], shares: list[str], seconds: Fraction, even: Fraction
) -> None:
    topology = cables(speeds)
    schedule = flexreduce.all_reduce(topology, shape="ring")
    assert accepts(schedule)
    owned = portions(schedule)
    # The order may run either way round: the hop that leaves a rank is then the cable before it.
    backward = [shares[rank - 1] for rank in range(len(speeds))]
    assert [str(share) for share in owned] in (shares, backward)
    scatter, gather = halves(schedule)
    for half in (scatter, gather):
        assert busiest_seconds(half) * GB == pytest.approx(float(seconds), rel=1e-12)
    # The halves use opposite directions, so that together they are no busier than either.
    assert busiest_seconds(schedule) * GB == pytest.approx(float(seconds), rel=1e-12)
    plain = flexreduce.all_reduce(topology, shape="ring", portions="even")
    assert busiest_seconds(halves(plain)[0]) * GB == pytest.approx(float(even), rel=1e-12)


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN, *OTHERS])
@pytest.mark.parametrize("parts", [1, 3])
def test_every_cluster_is_reduced_and_has_halves(spec: str, parts: int) -> None:
    schedule = flexreduce.all_reduce(load_topology(spec), parts=parts)
    assert accepts(schedule)
    scatter, gather = halves(schedule)
    assert accepts(scatter)
    assert accepts(gather)
    assert sum(portions(schedule)) == 1


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN])
@pytest.mark.parametrize("shape", ["ring", "levels"])
@pytest.mark.parametrize("kind", ["balanced", "even"])
def test_every_option_is_right(spec: str, shape: str, kind: str) -> None:
    assert accepts(flexreduce.all_reduce(load_topology(spec), shape=shape, portions=kind, parts=2))


@examples(20)
@given(clusters(max_ranks=7))
def test_any_cluster_is_served_and_no_link_is_busier_than_with_even_portions(topology: Topology) -> None:
    schedule = flexreduce.all_reduce(topology, parts=1)
    assert accepts(schedule)
    for shape in ("ring", "auto"):
        balanced, even = (
            busiest_seconds(flexreduce.all_reduce(topology, shape=shape, portions=kind, parts=1))
            for kind in ("balanced", "even")
        )
        assert balanced <= even * (1 + 1e-9)
    bound = lower_bound(topology, "all_reduce", 10**9).bandwidth_seconds / 10**9
    assert bound <= busiest_seconds(schedule) * (1 + 1e-9)


@pytest.mark.parametrize(
    "spec", ["hosts:4,4", "hosts:5,5,5", "fattree:16", "dgx-h100:2@fabric=flat", "dgx-a100:4@fabric=flat"]
)
def test_on_a_symmetric_tree_it_costs_what_blueconnect_costs(spec: str) -> None:
    topology = load_topology(spec)
    blue = blueconnect.all_reduce(topology)
    flex = flexreduce.all_reduce(topology, shape="levels", portions="even")
    assert busiest_seconds(flex) == pytest.approx(busiest_seconds(blue), rel=1e-12)
    assert sorted(set(portions(flex))) == [Fraction(1, topology.ranks)]
    best = flexreduce.all_reduce(topology)
    assert busiest_seconds(best) <= busiest_seconds(blue) * (1 + 1e-9)


def group_shares(schedule: Schedule) -> list[Fraction]:
    owned = portions(schedule)
    return [sum((owned[rank] for rank in group), Fraction(0)) for group in schedule.topology.groups]


@pytest.mark.parametrize(
    "spec",
    [
        "hosts:8,4,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s",
        "hosts:4,3,1@intra=100GB/s,uplink=25GB/s",
        "hosts:8,8,8,1@intra=100GB/s,uplink=25GB/s/20GB/s/15GB/s/10GB/s",
    ],
)
def test_an_uplink_carries_everything_but_what_its_host_owns(spec: str) -> None:
    topology = load_topology(spec)
    schedule = flexreduce.all_reduce(topology, shape="levels")
    scatter, gather = (link_loads(half) for half in halves(schedule))
    core = topology.nodes - 1
    for host, share in enumerate(group_shares(schedule)):
        switch = topology.ranks + host
        (up,), (down,) = topology.links_between(switch, core), topology.links_between(core, switch)
        assert scatter[up] == gather[down] == 1 - share


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN, *OTHERS])
def test_the_all_gather_is_the_mirror_image(spec: str) -> None:
    scatter, gather = halves(flexreduce.all_reduce(load_topology(spec)))
    there = sorted(zip(scatter.chunk.tolist(), scatter.src.tolist(), scatter.dst.tolist(), strict=True))
    back = sorted(zip(gather.chunk.tolist(), gather.dst.tolist(), gather.src.tolist(), strict=True))
    assert there == back


@examples(25)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=8))
def test_on_one_switch_with_any_ports_the_busiest_link_reaches_the_bound(speeds: list[int]) -> None:
    wiring = CableNotes(len(speeds), 1)
    for rank, speed in enumerate(speeds):
        wiring.cable(rank, wiring.switch(0), bandwidth=speed * GB, latency_ps=10**6)
    topology = wiring.build("ports")
    busiest = busiest_seconds(flexreduce.all_reduce(topology)) * GB
    count = len(speeds)
    assert busiest == pytest.approx(max(2 * (count - 1) / sum(speeds), 1 / min(speeds)), rel=0.011)
    bound = lower_bound(topology, "all_reduce", 10**9).bandwidth_seconds
    assert bound == pytest.approx(max(2 * (count - 1) / sum(speeds), 1 / min(speeds)), rel=1e-9)


def test_one_slow_port_among_eight_costs_no_more_than_its_own_speed() -> None:
    speeds = "/".join(["25GB/s"] * 3 + ["2.5GB/s"] + ["25GB/s"] * 4)
    topology = load_topology(f"hosts:1,1,1,1,1,1,1,1@uplink={speeds}")
    schedule = flexreduce.all_reduce(topology)
    even = flexreduce.all_reduce(topology, portions="even")
    assert busiest_seconds(even) / busiest_seconds(schedule) == pytest.approx(1.75)
    size = 64 << 20
    assert simulate(schedule, size, segment_bytes=64 << 10).seconds <= 1.01 * size / 2.5e9


def test_intervals_of_different_groups_are_matched() -> None:
    thirds = Holding([Fraction(i, 3) for i in range(3)], [0, 1, 2])
    quarters = Holding([Fraction(i, 4) for i in range(4)], [3, 4, 5, 6])
    meeting = meet(flat(range(7)), [thirds, quarters])
    assert [str(start) for start in meeting.starts] == ["0", "1/4", "1/3", "1/2", "2/3", "3/4"]
    assert meeting.holders.tolist() == [[0, 3], [0, 4], [1, 4], [1, 5], [2, 5], [2, 6]]
    exchange = share_out(meeting, [Fraction(1, 4), Fraction(3, 4)])
    kept = [Fraction(0)] * 7
    for rank, length in zip(exchange.holding.ranks, exchange.lengths, strict=True):
        kept[rank] += length
    assert kept == [Fraction(1, 12)] * 3 + [Fraction(3, 16)] * 4
    coarse = share_out(
        meet(flat(range(3)), [Holding([Fraction(0)], [r]) for r in range(3)]), [Fraction(1, 3)] * 3, 4
    )
    assert [str(start) for start in coarse.starts] == ["0", "1/4", "3/4"]


def test_racks_of_hosts_are_levels() -> None:
    topology = racks([[3, 2], [2], [1, 1]], 25)
    cluster = find_levels(topology)
    assert cluster.height == 3
    assert [part.ranks for part in cluster.parts] == [(0, 1, 2, 3, 4), (5, 6), (7, 8)]
    assert [part.height for part in cluster.parts] == [2, 1, 1]
    for rack_speed in (1, 25, 100):
        for shape in ("levels", "auto"):
            schedule = flexreduce.all_reduce(racks([[3, 2], [2], [1, 1]], rack_speed), shape=shape, parts=2)
            assert accepts(schedule)
            bound = lower_bound(schedule.topology, "all_reduce", 10**9).bandwidth_seconds / 10**9
            assert busiest_seconds(schedule) <= 1.02 * bound
    assert find_levels(load_topology("torus:4x4")).height == 1
    assert find_levels(load_topology("hosts:1,1,1")).height == 1


def test_a_rank_without_its_own_interface_holds_little() -> None:
    topology = load_topology("dgx-h100:2@fabric=flat+fail=0-s2")
    balanced, even = (
        busiest_seconds(flexreduce.all_reduce(topology, shape="levels", portions=kind))
        for kind in ("balanced", "even")
    )
    bound = lower_bound(topology, "all_reduce", 10**9).bandwidth_seconds / 10**9
    assert balanced < 0.85 * even
    assert balanced < 1.12 * bound


def test_groups_of_many_sizes_are_cut_on_a_coarser_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flexreduce, "_MOST_ROWS", 3000)
    schedule = flexreduce.all_reduce(load_topology("hosts:7,6,5,4,3"), shape="levels")
    assert accepts(schedule)
    whole = len({Fraction(i, n) for n in (7, 6, 5, 4, 3) for i in range(n)})
    assert schedule.chunks < 5 * whole
    assert busiest_seconds(schedule) < 1.2 * busiest_seconds(ring.all_reduce(schedule.topology))


def test_large_portions_are_cut_into_more_pieces() -> None:
    topology = load_topology("hosts:8,8,8,1@intra=25GB/s,uplink=25GB/s")
    schedule = flexreduce.all_reduce(topology, shape="levels")
    assert max(portions(schedule)) > 5 * min(portions(schedule))
    assert schedule.weights.max() < 1.5 * schedule.weights.min()
    alone = flexreduce.all_reduce(topology, shape="levels", parts=1)
    assert alone.chunks < schedule.chunks


@pytest.mark.parametrize("size", [1 << 20, 64 << 20])
@pytest.mark.parametrize(
    "spec",
    [
        "hosts:8,4@intra=100GB/s,uplink=25GB/s",
        "hosts:8,4,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s",
        "hosts:4,3,1@intra=100GB/s,uplink=25GB/s",
    ],
)
def test_it_is_faster_than_what_takes_uneven_hosts_otherwise(spec: str, size: int) -> None:
    topology = load_topology(spec)

    def seconds(schedule: Schedule) -> float:
        return min(simulate(schedule, size, segment_bytes=cut).seconds for cut in (None, 256 << 10, 64 << 10))

    flex = seconds(flexreduce.all_reduce(topology))
    for make in (ring.all_reduce, hierarchical.all_reduce, double_binary_tree.all_reduce):
        assert flex < 1.01 * seconds(make(topology))


def test_the_oldest_piece_goes_first_and_so_levels_overlap_even_in_whole_messages() -> None:
    schedule = flexreduce.all_reduce(load_topology("hosts:8,4,2@intra=100GB/s,uplink=25GB/s"), shape="levels")
    bound = lower_bound(schedule.topology, "all_reduce", 1 << 30).seconds
    assert simulate(schedule, 1 << 30, segment_bytes=None).seconds < 1.03 * bound
    assert simulate(schedule, 1 << 30, segment_bytes=256 << 10).seconds < 1.01 * bound


def test_what_is_on_its_way_back_does_not_wait_for_all_others_to_leave() -> None:
    # A slow port gets its sums back while it still sends: both directions of it are busy nearly all the time.
    speeds = "/".join(["12.5GB/s"] * 7 + ["3.125GB/s"])
    ports = load_topology(f"hosts:1,1,1,1,1,1,1,1@intra=120GB/s,uplink={speeds},lat=1us")
    schedule = flexreduce.all_reduce(ports, kinds="direct")
    assert simulate(schedule, 4 << 20, segment_bytes=None).seconds < 1.08 * (4 << 20) / 3.125e9


def fastest_seconds(schedule: Schedule, size: int) -> float:
    return search_segments(schedule, size).result.seconds


CHOICES = (
    "hosts:4,3,1@intra=12GB/s,intra_lat=2850ns,uplink=12.5GB/s,lat=1950ns",
    "hosts:4,4,4,4@intra=12GB/s,intra_lat=2850ns,uplink=12.5GB/s,lat=1950ns",
    "hosts:3,3,1@intra=120GB/s,nic=12.5GB/s,lat=2us",
    "hosts:6,2@intra=50GB/s,uplink=25GB/s/5GB/s,lat=5us",
    "cloud:6x4,8@taken=12,rule=random,draw=3,uplink=12.5GB/s,intra=120GB/s",
)


@pytest.mark.parametrize("spec", CHOICES)
@pytest.mark.parametrize("size", [1 << 20, 16 << 20])
def test_for_a_known_size_the_choice_is_near_the_best_of_all_plans(spec: str, size: int) -> None:
    topology = load_topology(spec)
    every = {
        kinds: fastest_seconds(flexreduce.all_reduce(topology, kinds=",".join(kinds)), size)
        for _, kinds in list_forms(topology)
    }
    chosen = fastest_seconds(flexreduce.all_reduce(topology, size_bytes=size), size)
    assert min(every.values()) <= chosen <= 1.02 * min(every.values())


@examples(25)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.sampled_from([12, 50, 120]),
    st.sampled_from([3, 12, 25]),
    st.sampled_from([300, 2000, 10_000]),
    st.sampled_from([64 << 10, 1 << 20, 32 << 20]),
)
def test_estimates_are_near_what_the_simulator_finds(
    hosts: list[int], inside: int, uplink: int, latency: int, size: int
) -> None:
    spec = f"hosts:{','.join(map(str, hosts))}@intra={inside}GB/s,uplink={uplink}GB/s,lat={latency}ns"
    topology = load_topology(spec)
    for cluster, kinds in list_forms(topology):
        plan = make_plan(topology, cluster, kinds, even_shares(cluster))
        schedule = flexreduce.all_reduce(topology, kinds=",".join(kinds), portions="even")
        pieces = 8 * max(1, topology.ranks // len(plan.exchanges[-1].starts))
        estimate = estimate_seconds(plan, size, pieces)
        assert 0.7 <= estimate / fastest_seconds(schedule, size) <= 1.35, kinds


def test_a_ring_that_is_always_busy_hides_its_latencies_and_an_idle_one_adds_them_up() -> None:
    topology = load_topology("ring:8@bw=1GB/s,lat=10us")
    cluster, kinds = list_forms(topology, "ring")[0]
    plan = make_plan(topology, cluster, kinds, even_shares(cluster))
    carried = 7 / 8 * (64 << 20) / 1e9  # in either direction, so that the halves overlap
    found = simulate(flexreduce.all_reduce(topology, shape="ring"), 64 << 20, segment_bytes=64 << 10).seconds
    assert carried < found < 1.04 * carried
    assert estimate_seconds(plan, 64 << 20, 8) == pytest.approx(found, rel=0.04)
    assert estimate_seconds(plan, 8, 1) == pytest.approx(14 * 10e-6, rel=0.01)


@pytest.mark.parametrize("spec", ["dgx-h100:4", "dgx-a100:2"])
def test_only_plans_that_may_be_fastest_are_estimated(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = load_topology(spec)
    estimated: list[PortionPlan] = []

    def count_estimates(plan: PortionPlan, size_bytes: int, pieces: int) -> float:
        estimated.append(plan)
        return estimate_seconds(plan, size_bytes, pieces)

    monkeypatch.setattr(flexreduce, "estimate_seconds", count_estimates)
    found = flexreduce.all_reduce(topology, size_bytes=1 << 30)
    few = len(estimated)
    monkeypatch.setattr(flexreduce, "_ALIKE", float("inf"))
    assert flexreduce.all_reduce(topology, size_bytes=1 << 30).digest == found.digest
    assert few < len(estimated) - few == len(list_forms(topology))


def test_the_finest_segments_of_the_estimate_are_those_of_simulations() -> None:
    assert min(SEGMENT_SIZES) == SEGMENT_BYTES


def test_a_registry_line_that_is_sized_hands_the_size_on_and_others_do_without() -> None:
    topology = load_topology("hosts:8,4,2@intra=12GB/s,intra_lat=3us,uplink=12.5GB/s,lat=2us")
    line = registry.find("flexreduce")
    for size in (1 << 20, 64 << 20):
        found = line.build(topology, "all_reduce", expected_bytes=size)
        assert found.digest == flexreduce.all_reduce(topology, size_bytes=size).digest
    small = line.build(topology, "all_reduce", expected_bytes=64 << 20, size_bytes=1 << 20)
    assert small.digest == flexreduce.all_reduce(topology, size_bytes=1 << 20).digest
    assert registry.find("ring").build(topology, "all_reduce", expected_bytes=1 << 20).steps == 26


def test_a_comparison_and_a_simulated_job_tell_the_size() -> None:
    topology = load_topology("hosts:8,4,2@intra=12GB/s,intra_lat=3us,uplink=12.5GB/s,lat=2us")
    for size in (1 << 20, 64 << 20):
        wanted = flexreduce.all_reduce(topology, size_bytes=size)
        (row,) = compare(topology, size, algorithms="flexreduce").results
        assert (row.steps, row.transfers) == (wanted.steps, wanted.transfers)
        schedule, _ = by_algorithm(topology, "flexreduce")("all_reduce", size)
        assert schedule.digest == wanted.digest
    choose = by_algorithm(topology, "flexreduce")
    scatter, gather = (choose(half, 5000)[0] for half in ("reduce_scatter", "all_gather"))
    assert scatter.target.tolist() == gather.source.tolist()


def test_the_same_cluster_gives_the_same_schedule() -> None:
    first, second = (flexreduce.all_reduce(load_topology("hosts:5,3,1@uplink=3GB/s")) for _ in range(2))
    assert first.digest == second.digest
    assert first.notes == second.notes


def test_bad_use_is_refused() -> None:
    switch = load_topology("switch:4")
    with pytest.raises(UnsupportedError, match=r'switch:4 has no levels: .*; use shape="ring"'):
        flexreduce.all_reduce(switch, shape="levels")
    with pytest.raises(InputError, match="shape='star' is unknown, expected auto, ring or levels"):
        flexreduce.all_reduce(switch, shape="star")
    with pytest.raises(UnsupportedError, match=r"kinds='star' does not fit switch:4.*; use ring or direct"):
        flexreduce.all_reduce(switch, kinds="star")
    with pytest.raises(InputError, match="size_bytes=0 must be at least 1"):
        flexreduce.all_reduce(switch, size_bytes=0)
    with pytest.raises(InputError, match="portions='odd' is unknown, expected balanced or even"):
        flexreduce.all_reduce(switch, portions="odd")
    with pytest.raises(InputError, match="parts=0 must be at least 1"):
        flexreduce.all_reduce(switch, parts=0)
    with pytest.raises(LimitError, match="flexreduce: transfers"):
        flexreduce.all_reduce(load_topology("switch:16384"))


def test_the_page_on_flexreduce_shows_what_comes_out() -> None:
    failed, tried = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 8
    assert failed == 0


def test_the_table_of_the_page_is_that_of_the_benchmark() -> None:
    results = PAGE.parents[1] / "benchmarks" / "flexreduce" / "uneven.json"
    rows = json.loads(results.read_text("utf-8"))["results"]
    columns = ("flexreduce", "ring", "hierarchical", "blueconnect", "double_binary_tree")
    measured: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        cells = measured.setdefault(row["topology"], {})
        cells.setdefault(row["algorithm"], []).append(f"{row['fraction_of_bound']:.3f}")
    expected = [[" / ".join(cells[name]) for name in columns] for cells in measured.values()]
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.count(" / ") == 10]
    assert [[cell.strip() for cell in line.split("|")[2:-1]] for line in table] == expected


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_shares_that_are_said_to_be_the_best_are_not_beaten_by_a_linear_programme(
    seed: int, alike: bool
) -> None:
    draw = np.random.default_rng(seed)
    links, parts = draw.integers(1, 6, 2)
    busy = draw.integers(0, 4, (links, parts)).astype(float) + 0.125
    if alike:  # each part as busy as the others, on other links
        busy = np.vstack([np.roll(busy, turn, axis=1) for turn in range(parts)])
    fixed = np.full(len(busy), 0.5) if alike else draw.integers(0, 3, len(busy)).astype(float)
    even = np.full(parts, 1 / parts)
    best = np.array([float(share) for share in balance(busy, np.zeros_like(busy), fixed)])
    seconds, least = (busy @ even + fixed).max(), (busy @ best + fixed).max()
    if are_best(busy, fixed, even):
        assert seconds <= least * (1 + 1e-6)
    assert are_best(busy, fixed, even) or not alike or seconds > least * (1 + 1e-9)
