"""Packings: as fast as the best there is, with weights that add up and a proof that holds."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from support.clusters import clusters
from support.examples import examples

from weft.bounds.certificates import check_certificate, price_bound, prove_seconds
from weft.bounds.collective_bound import lower_bound
from weft.bounds.packing import Packing, pack
from weft.bounds.tree_columns import TREE_COLLECTIVES, find_centres, find_twins
from weft.errors import InputError
from weft.topology import Topology, load_topology

ROWS = [
    ("mesh:4x4@bw=1GB/s", 1.6),
    ("mesh:8x8@bw=1GB/s", 224 / 126),
    ("mesh:4x4@bw=1GB/s/4GB/s", 4.0),
    ("torus:4x4@bw=1GB/s", 64 / 30),
    ("torus:8x8@bw=1GB/s", 256 / 126),
    ("torus:4x4@bw=1GB/s+fail=0-1", 62 / 30),
    ("torus:8x8@bw=1GB/s+fail=0-1", 254 / 126),
    ("dgx-h100:2@fabric=flat", 8000 / 30),
    ("dgx-h100:2@fabric=flat+fail=0-s2", 7950 / 30),
    ("dgx-a100:2@fabric=flat", 5200 / 30),
    ("dgx-a100:4@fabric=flat", 400 / 3),
    ("switch:8@bw=1GB/s,back=10GB/s", 8 / 14),
    ("hosts:8,4,2@intra=100GB/s,uplink=25GB/s", 18.75),
]


def tiny(max_ranks: int = 4) -> st.SearchStrategy[Topology]:
    return clusters(max_ranks=max_ranks, max_switches=1).filter(lambda topology: topology.links <= 14)


def ways(topology: Topology, src: int, dst: int) -> list[tuple[int, ...]]:
    """Every way between two ranks that passes through switches only, and none twice."""
    found, open_ways = [], [((), (src,))]
    while open_ways:
        links, nodes = open_ways.pop()
        for link in np.flatnonzero(topology.link_src == nodes[-1]).tolist():
            node = int(topology.link_dst[link])
            if node == dst:
                found.append((*links, link))
            elif node >= topology.ranks and node not in nodes:
                open_ways.append(((*links, link), (*nodes, node)))
    return found


def arborescences(topology: Topology, root: int, *, outward: bool) -> Iterator[tuple[int, ...]]:
    """Links, with repetition, of every tree from (or to) a root."""
    others = [rank for rank in range(topology.ranks) if rank != root]
    for parents in itertools.product(range(topology.ranks), repeat=len(others)):
        parent = dict(zip(others, parents, strict=True))
        if not all(reaches(rank, root, parent) for rank in others):
            continue
        pairs = [(parent[rank], rank) if outward else (rank, parent[rank]) for rank in others]
        for choice in itertools.product(*(ways(topology, *pair) for pair in pairs)):
            yield tuple(itertools.chain(*choice))


def reaches(rank: int, root: int, parent: dict[int, int]) -> bool:
    for _ in parent:
        rank = parent.get(rank, rank)
    return rank == root


def best_rate(topology: Topology, collective: str) -> float:
    """The linear programme over all trees there are."""
    up, down = TREE_COLLECTIVES[collective]
    columns = set()
    for root in range(topology.ranks) if up and down else (0,):
        ups = list(arborescences(topology, root, outward=False)) if up else [()]
        downs = list(arborescences(topology, root, outward=True)) if down else [()]
        for links in itertools.product(ups, downs):
            counts = np.bincount(list(itertools.chain(*links)), minlength=topology.links)
            columns.add(tuple(counts.tolist()))
    loads = np.array(sorted(columns), np.float64).T
    solution = linprog(-np.ones(loads.shape[1]), A_ub=loads, b_ub=topology.bandwidth / 1e9)
    return float(-solution.fun)


def cheapest_gossip(topology: Topology, prices: Sequence[int]) -> int:
    """What it costs until every rank knows of every other: shortest path over who knows what."""
    start = tuple(1 << rank for rank in range(topology.ranks))
    cost = {
        (a, b): min(sum(prices[link] for link in way) for way in ways(topology, a, b))
        for a, b in itertools.permutations(range(topology.ranks), 2)
        if ways(topology, a, b)
    }
    best, queue = {start: 0}, [(0, start)]
    while queue:
        paid, known = heapq.heappop(queue)
        if paid > best[known]:
            continue
        if all(facts == (1 << topology.ranks) - 1 for facts in known):
            return paid
        for (a, b), price in cost.items():
            after = (*known[:b], known[a] | known[b], *known[b + 1 :])
            if paid + price < best.get(after, 1 << 62):
                best[after] = paid + price
                heapq.heappush(queue, (paid + price, after))
    raise AssertionError("connected ranks can gossip")


def check(packing: Packing) -> None:
    """Recompute everything that a packing claims."""
    counts = packing.trees.count_links(packing.topology.links)
    assert packing.weights.min() > 0
    load = (packing.weights[:, None] * counts).sum(axis=0).tolist()
    whole = int(packing.weights.sum())
    speeds = packing.topology.bandwidth.tolist()
    assert packing.rate == min(Fraction(b * whole, n) for b, n in zip(speeds, load, strict=True) if n)
    assert packing.rate <= packing.certificate.bound
    root = max(packing.root, 0)
    claim = (packing.certificate.bound, packing.collective, root)
    assert check_certificate(packing.topology, packing.certificate.prices, *claim)
    assert not check_certificate(packing.topology, packing.certificate.prices, packing.rate / 2, *claim[1:])


@pytest.mark.parametrize(("spec", "algbw"), ROWS)
def test_known_rows_reach_their_bound(spec: str, algbw: float) -> None:
    packing = pack(load_topology(spec))
    check(packing)
    assert float(packing.certificate.bound) / 1e9 == pytest.approx(algbw, rel=1e-6)
    assert float(packing.rate) / 1e9 == pytest.approx(algbw, rel=1e-3)


@examples(25)
@given(tiny(), st.sampled_from(sorted(TREE_COLLECTIVES)))
def test_no_packing_of_all_trees_there_are_is_faster(topology: Topology, collective: str) -> None:
    packing = pack(topology, collective, tolerance=1e-6)
    check(packing)
    best = best_rate(topology, collective)
    assert float(packing.certificate.bound) / 1e9 >= best * (1 - 1e-6)
    assert float(packing.rate) / 1e9 == pytest.approx(best, rel=1e-4)


@examples(25)
@given(tiny(), st.data())
def test_no_gossip_is_cheaper_than_prices_prove(topology: Topology, data: st.DataObject) -> None:
    prices = data.draw(st.lists(st.integers(0, 9), min_size=topology.links, max_size=topology.links))
    paid = sum(b * y for b, y in zip(topology.bandwidth.tolist(), prices, strict=True))
    assert prove_seconds(topology, prices) * paid <= cheapest_gossip(topology, prices)


@examples(20)
@given(clusters(), st.data())
def test_any_cluster_is_packed(topology: Topology, data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(sorted(TREE_COLLECTIVES)))
    root = data.draw(st.integers(0, topology.ranks - 1))
    packing = pack(topology, collective, root=root)
    check(packing)
    assert packing.gap < 0.005


def test_a_certificate_is_a_bound_like_others() -> None:
    topology = load_topology("torus:4x4@bw=1GB/s+fail=0-1")
    certificate = pack(topology).certificate
    assert certificate.seconds_per_byte(topology) == 1 / certificate.bound
    with_it = lower_bound(topology, "all_reduce", 10**9, certificate=certificate)
    assert with_it.seconds == pytest.approx(lower_bound(topology, "all_reduce", 10**9).seconds, rel=1e-9)


def test_uneven_directions_prove_less_for_any_schedule_than_for_trees() -> None:
    topology = load_topology("ring:4@bw=1GB/s+fail=0>1")
    prices = [1] * topology.links
    assert prove_seconds(topology, prices) <= 1 / price_bound(topology, prices)
    assert prove_seconds(topology, [0] * topology.links) == 0
    assert price_bound(topology, [0] * topology.links) is None


def test_the_time_limit_ends_the_search_with_what_it_has() -> None:
    packing = pack(load_topology("dragonfly:4,4,2"), tolerance=0.0, time_limit_s=0.0)
    check(packing)
    assert packing.gap < 0.1


@pytest.mark.parametrize("spec", ["torus:18x18", "dgx-h100:40@fabric=flat", "fattree:18,18,18"])
def test_first_trees_of_a_large_network_are_near_enough(spec: str) -> None:
    assert pack(load_topology(spec), time_limit_s=0.0).gap < 0.02


def test_what_is_proven_elsewhere_ends_the_search_too() -> None:
    topology = load_topology("mesh:8x8@bw=1GB/s")
    assert pack(topology, tolerance=0.02, proven=Fraction(10**9)).gap < 0.05


def test_weights_are_small_whole_numbers_where_these_are_exact() -> None:
    packing = pack(load_topology("hosts:8,4,2@intra=100GB/s,uplink=25GB/s"))
    assert packing.weights.sum() < 100
    assert packing.rate == packing.certificate.bound
    assert "18.75 GB/s, at most 0 % below the best" in repr(packing)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"collective": "all_gather"}, "not made of trees"),
        ({"root": 16}, "has ranks 0..15"),
        ({"tolerance": -1.0}, "must be in 0..1, and the time limit"),
        ({"time_limit_s": -1.0}, "must be in 0..1, and the time limit"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        pack(load_topology("mesh:4x4"), **options)  # type: ignore[arg-type]


def test_prices_must_fit_the_links() -> None:
    mesh = load_topology("mesh:4x4")
    for prices in ([1], [-1] * mesh.links):
        with pytest.raises(InputError, match="need 48 prices"):
            prove_seconds(mesh, prices)


def test_twins_and_centres() -> None:
    assert find_twins(load_topology("switch:3")).tolist() == [1, 0, 3, 2, 5, 4]
    assert find_twins(load_topology("switch:3@bw=1GB/s,back=2GB/s")).tolist() == []
    assert find_centres(load_topology("mesh:5x5"), 0).tolist() == [12]


@pytest.mark.parametrize(
    ("prices", "collective", "root"),
    [
        ([1] * 8, "nonsense", 0),
        ([1] * 8, "all_gather", 0),
        ([1] * 8, None, 0),
        ([1] * 8, "broadcast", -1),
        ([1] * 8, "broadcast", 4),
        ([1] * 8, "broadcast", 0.5),
        ([1.5] * 8, "all_reduce", 0),
        ([float("nan")] * 8, "all_reduce", 0),
        ([None] * 8, "all_reduce", 0),
        ([-1] * 8, "all_reduce", 0),
        ([1] * 7, "all_reduce", 0),
    ],
)
def test_a_checker_judges_only_what_it_can(prices: Any, collective: Any, root: Any) -> None:
    with pytest.raises(InputError):
        check_certificate(load_topology("mesh:2x2"), prices, 10**15, collective, root)


@pytest.mark.parametrize(
    "options", [{"tolerance": float("nan")}, {"tolerance": 2}, {"time_limit_s": float("inf")}]
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="tolerance"):
        pack(load_topology("mesh:2x2"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("speeds", ["intra=1000TB/s,uplink=1B/s", "intra=1B/s,uplink=1000TB/s"])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce"])
def test_speeds_may_differ_by_fifteen_orders_of_magnitude(speeds: str, collective: str) -> None:
    packing = pack(load_topology(f"hosts:2,2@{speeds}"), collective, tolerance=0, time_limit_s=1)
    assert 0 < packing.rate <= packing.certificate.bound
