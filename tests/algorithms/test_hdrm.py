"""HDRM: the paper's map, and no two flows on a link wherever it does not refuse."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from support.oracle import accepts

import weft
from weft.algorithms import halving_doubling, hdrm
from weft.algorithms.common.bigraphs import read_bigraph
from weft.errors import UnsupportedError
from weft.schedule import Op, Schedule
from weft.schedule.passes import halves
from weft.topology import Topology, load_topology
from weft.verification import measure_contention

PAPER = [(2, 4), (4, 8), (4, 16), (4, 32), (8, 16), (8, 32), (16, 32)]
"""Ranks per switch and switches, as the paper has them."""

BEYOND = [
    "bigraph:1,2",
    "bigraph:1,8",
    "bigraph:3,8",
    "bigraph:7,16",
    "bigraph:12,32",
    "bigraph:8,8@uplinks=2",
    "bigraph:5,8@uplinks=2",
    "bigraph:8,2@uplinks=8",
    "bigraph:3,2@uplinks=3",
    "bigraph:1,6",
    "bigraph:2,12",
    "bigraph:3,12",
    "bigraph:3,14",
    "bigraph:3,18",
    "bigraph:3,6@uplinks=2",
    "bigraph:5,6@uplinks=4",
]
"""What the paper leaves out."""

BEHIND_NICS = {
    "servers:2x8@nics=8,fabric=bigraph,leaves=8": "bigraph:2,8",
    "servers:4x8@nics=8,fabric=bigraph,leaves=8": "bigraph:4,8",
    "servers:8x8@nics=8,fabric=bigraph,leaves=16": "bigraph:4,16",
    "servers:16x1@fabric=bigraph,leaves=8": "bigraph:2,8",
    "servers:3x8@nics=8,fabric=bigraph,leaves=8": "bigraph:3,8",
    "servers:8x3@nics=3,fabric=bigraph,leaves=12": "bigraph:2,12",
    "servers:2x8@nics=8,fabric=bigraph,leaves=2,uplinks=8": "bigraph:8,2@uplinks=8",
    "servers:2x8@nics=8,fabric=bigraph,leaves=8+fail=s0-s8": "bigraph:2,8",  # a GPU without root complex
}
"""Servers in which each GPU has a NIC, and the BiGraph that these are plugged into."""


def flows_per_switch_pair(schedule: Schedule) -> int:
    pairs = measure_contention(schedule).switch_pairs
    return max(pair.flows for pair in pairs)


def positions(topology: Topology) -> list[list[int]]:
    """Position of each rank, switch by switch, as the first step of each distance shows it."""
    schedule = hdrm.all_reduce(topology)
    partner = [dict(zip(schedule.src[rows], schedule.dst[rows], strict=True)) for rows in steps_of(schedule)]
    position = {0: 0}
    for step, pairs in enumerate(partner[: schedule.steps // 2]):
        position |= {int(pairs[rank]): place ^ (1 << step) for rank, place in position.items()}
    return [[position[rank] for rank in group] for group in topology.groups]


def steps_of(schedule: Schedule) -> list[np.ndarray]:
    return [schedule.step == step for step in range(schedule.steps)]


def test_the_worked_map_of_the_paper() -> None:
    assert positions(load_topology("bigraph:4,8")) == [
        [0, 15, 20, 27],
        [3, 9, 23, 29],
        [5, 10, 17, 30],
        [6, 12, 18, 24],
        [1, 8, 16, 25],
        [2, 11, 19, 26],
        [4, 13, 21, 28],
        [7, 14, 22, 31],
    ]


@pytest.mark.parametrize(("m", "n"), PAPER)
def test_every_ordered_pair_of_switches_carries_at_most_one_flow(m: int, n: int) -> None:
    topology = load_topology(f"bigraph:{m},{n}")
    schedule = hdrm.all_reduce(topology)
    weft.verify(schedule)
    assert flows_per_switch_pair(schedule) == 1
    assert measure_contention(schedule).max_flows == 1
    half = n // 2 * m
    assert ((schedule.src < half) != (schedule.dst < half)).all(), "partners sit in different halves"
    assert (np.diff(schedule.route_offsets) == 3).all()


@pytest.mark.parametrize("spec", [*(f"bigraph:{m},{n}" for m, n in PAPER[:3]), *BEYOND])
def test_no_two_flows_meet_in_any_collective(spec: str) -> None:
    topology = load_topology(spec)
    for make in (hdrm.all_reduce, hdrm.reduce_scatter, hdrm.all_gather):
        schedule = make(topology)
        weft.verify(schedule)
        assert measure_contention(schedule).max_flows == 1
        assert (schedule.route >= 0).all()


@pytest.mark.parametrize("spec", BEHIND_NICS)
def test_ranks_behind_pcie_switches_and_nics_of_their_own_have_the_same_map(spec: str) -> None:
    topology, bare = load_topology(spec), load_topology(BEHIND_NICS[spec])
    for make in (hdrm.all_reduce, hdrm.reduce_scatter, hdrm.all_gather):
        schedule, plain = make(topology), make(bare)
        weft.verify(schedule)
        assert measure_contention(schedule).max_flows == 1
        assert (schedule.route >= 0).all()
        rows = [
            sorted(
                zip(*(getattr(one, name).tolist() for name in ("step", "chunk", "src", "dst")), strict=True)
            )
            for one in (schedule, plain)
        ]
        assert rows[0] == rows[1]


def test_two_ranks_whose_network_is_one_line_of_switches_are_served() -> None:
    schedule = hdrm.all_reduce(load_topology("servers:2x1@fabric=bigraph,leaves=2"))
    weft.verify(schedule)
    assert measure_contention(schedule).max_flows == 1


def test_routes_go_through_the_nics_and_never_through_a_root_complex() -> None:
    topology = load_topology("servers:4x4@nics=4,fabric=bigraph,leaves=8")
    schedule = hdrm.all_reduce(topology)
    roots = {topology.parse_node(f"s{server * 9 + 4}") for server in range(4)}
    crossed = set(topology.link_dst[schedule.route_links].tolist())
    assert crossed.isdisjoint(roots)
    nics = {topology.parse_node(f"s{server * 9 + 5 + nic}") for server in range(4) for nic in range(4)}
    assert nics < crossed
    assert (np.diff(schedule.route_offsets) == 7).all()  # three out, one between switches, three in


@pytest.mark.parametrize("uplinks", [1, 2, 3])
def test_it_serves_just_the_shapes_it_promises(uplinks: int) -> None:
    for m in range(1, 9):
        for h in range(1, 8):
            topology = load_topology(f"bigraph:{m},{2 * h}@uplinks={uplinks}")
            whole = h & (h - 1) == 0
            if m <= uplinks * h and (whole or 2 * m <= uplinks * h):
                assert measure_contention(hdrm.all_reduce(topology)).max_flows == 1
            else:
                with pytest.raises(UnsupportedError, match="is the most that its links can serve"):
                    hdrm.all_reduce(topology)


@pytest.mark.parametrize(
    "spec", ["bigraph:1,2", "bigraph:2,4", "bigraph:3,8", "bigraph:2,12", "bigraph:3,6@uplinks=2"]
)
def test_small_schedules_do_what_the_brute_force_oracle_wants(spec: str) -> None:
    topology = load_topology(spec)
    schedules = (hdrm.all_reduce(topology), hdrm.reduce_scatter(topology), hdrm.all_gather(topology))
    assert all(accepts(schedule) for schedule in (*schedules, *halves(schedules[0])))


@pytest.mark.parametrize("spec", ["bigraph:4,8", "bigraph:4,16", "bigraph:3,8", "bigraph:3,18"])
def test_steps_volume_and_messages_are_those_of_halving_doubling(spec: str) -> None:
    topology = load_topology(spec)
    ranks = topology.ranks
    schedule = hdrm.all_reduce(topology)
    assert schedule.steps == 2 * (ranks - 1).bit_length()
    sent = np.bincount(schedule.src, schedule.weights[schedule.chunk], ranks) / schedule.denominator
    assert np.allclose(sent, 2 * (ranks - 1) / ranks)
    starts = schedule.message_starts
    place = schedule.step[starts].astype(np.int64) * ranks + schedule.src[starts]
    most = int(np.unique(place, return_counts=True)[1].max())
    assert most <= (1 if ranks & (ranks - 1) == 0 else 2)


def test_half_of_the_data_goes_first_and_comes_last() -> None:
    schedule = hdrm.all_reduce(load_topology("bigraph:4,8"))
    rows = [int(rows.sum()) for rows in steps_of(schedule)]
    assert rows == [32 * 16, 32 * 8, 32 * 4, 32 * 2, 32, 32, 32 * 2, 32 * 4, 32 * 8, 32 * 16]
    assert set(schedule.op[schedule.step < 5].tolist()) == {Op.REDUCE}
    assert set(schedule.op[schedule.step >= 5].tolist()) == {Op.COPY}


@pytest.mark.parametrize(("m", "n"), [(4, 8), (4, 16)])
def test_ranks_as_they_come_put_four_flows_on_a_link_from_distance_four_on(m: int, n: int) -> None:
    schedule = halving_doubling.all_reduce(load_topology(f"bigraph:{m},{n}"))
    flows = measure_contention(schedule).step_flows.tolist()
    distances = (m * n).bit_length() - 1
    expected = [1 if 1 << step < 4 else 4 for step in range(distances)]
    assert flows == [*expected, *reversed(expected)]


@pytest.mark.parametrize(("m", "n", "gain"), [(4, 8, 1.74), (4, 16, 1.78), (8, 16, 1.83)])
def test_large_buffers_are_faster_by_what_the_shared_links_cost(m: int, n: int, gain: float) -> None:
    topology = load_topology(f"bigraph:{m},{n}@bw=16GB/s,lat=150ns")
    plain, mapped = (make.all_reduce(topology) for make in (halving_doubling, hdrm))
    seconds = [weft.simulate(schedule, "64MiB", segment_bytes=None).seconds for schedule in (plain, mapped)]
    assert seconds[0] / seconds[1] == pytest.approx(gain, abs=0.01)
    bound = 2 * (m * n - 1) / (m * n) * (64 << 20) / 16e9
    assert bound < seconds[1] < 1.001 * bound


def test_a_small_buffer_takes_three_links_latency_per_step() -> None:
    topology = load_topology("bigraph:4,8@bw=1GB/s,lat=1us")
    # 32 chunks of one byte: the messages of all steps take 2 * 31 ns on the wire.
    assert weft.simulate(hdrm.all_reduce(topology), 32).time_ps == 10 * 3 * 10**6 + 2 * 31 * 10**3


def bigraph_file(tmp_path: Path, order: list[int]) -> Topology:
    """``bigraph:2,4`` from a file, its ranks dealt to the switches in some order, cables in another."""
    lines = ['name = "lab"', "ranks = 8", "switches = 4"]
    cables = [(a, b) for a in ("s3", "s0") for b in ("s2", "s1")]
    cables += [(str(rank), f"s{place // 2}") for place, rank in enumerate(order)]
    for src, dst in cables:
        lines += ["[[links]]", f"src = {src if src.isdigit() else repr(src)}", f'dst = "{dst}"']
        lines += ['bandwidth = "10GB/s"', 'latency = "1us"', "duplex = true"]
    path = tmp_path / "lab.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_topology(path)


def test_a_bigraph_is_known_by_its_wiring(tmp_path: Path) -> None:
    topology = bigraph_file(tmp_path, [5, 0, 3, 2, 7, 1, 6, 4])
    network = read_bigraph(topology, "hdrm", "")
    assert network.ranks.tolist() == [[[0, 5], [4, 6]], [[2, 3], [1, 7]]]
    schedule = hdrm.all_reduce(topology)
    weft.verify(schedule)
    assert measure_contention(schedule).max_flows == 1


def test_a_lost_cable_of_several_is_no_matter() -> None:
    schedule = hdrm.all_reduce(load_topology("bigraph:4,8@uplinks=2+fail=s0-s5*1"))
    assert measure_contention(schedule).max_flows == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("torus:4x4", "torus:4x4 is not a BiGraph: it has no switches"),
        ("switch:8", "fall into 1 and 0, not into two halves"),
        ("fattree:16", "s0 has 4 ranks and s4 has 0"),
        ("hosts:4,4", "s0 has 4 ranks and s2 has 0"),
        ("dgx-h100:2@fabric=flat", "rank 0 does not hang on one switch alone"),
        ("dragonfly:3,3,2", "are wired but belong to the same half"),
        ("bigraph:4,8+fail=s0-s5", "there is no link s0->s5"),
        ("bigraph:4,8+fail=s5>s0", "there is no link s5->s0"),
        ("bigraph:4,8+fail=rank:3", "s0 has 3 ranks and s1 has 4"),
        ("bigraph:8,8", "has 8 ranks on each switch, 4 is the most.*with uplinks=2 it would work"),
        ("bigraph:3,12+fail=s0-s6", "there is no link s0->s6"),
        ("bigraph:1,4+fail=s0-s2", "there is no link s0->s2"),
        ("servers:8x8@fabric=bigraph,leaves=8", "s0 has 2 ranks and s4 has 0"),  # one NIC for all
        ("servers:4x4@nics=2,nic_at=switch,fabric=bigraph,leaves=4", "s0 has 2 ranks and s3 has 0"),
        ("servers:4x4@nics=4", "fall into 1 and 0, not into two halves"),
        ("servers:4x4@nics=4,fabric=clos,leaves=4", "s36 has 4 ranks and s40 has 0"),
        ("servers:4x4@nics=4,fabric=bigraph,leaves=8+fail=s36-s40", "there is no link s36->s40"),
        ("servers:4x4@nics=4,fabric=bigraph,leaves=8+fail=s0-s5", "s0 has 1 ranks and s5 has 0"),
        (
            "servers:8x8@nics=8,fabric=bigraph,leaves=8",
            "has 8 ranks on each switch, 4 is the most.*with uplinks=2 it would work",
        ),
        (
            "bigraph:2,6",
            "2 ranks on each switch, 1 is the most .* since 3 is no power of two; with uplinks=2",
        ),
    ],
)
def test_elsewhere_it_says_why_not_and_what_works(spec: str, reason: str) -> None:
    for make in (hdrm.all_reduce, hdrm.reduce_scatter, hdrm.all_gather):
        with pytest.raises(UnsupportedError, match=reason) as refusal:
            make(load_topology(spec))
        assert "halving_doubling and multitree work on any network" in str(refusal.value)
    weft.verify(halving_doubling.all_reduce(load_topology(spec)))


def test_what_a_refusal_proposes_works() -> None:
    for spec in ("bigraph:8,8@uplinks=2", "bigraph:2,6@uplinks=2"):
        assert measure_contention(hdrm.all_reduce(load_topology(spec))).max_flows == 1


def test_the_same_input_gives_the_same_schedule() -> None:
    first, second = (hdrm.all_reduce(load_topology("bigraph:3,8")) for _ in range(2))
    assert first.digest == second.digest


def test_the_examples_of_the_page_do_what_it_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "hdrm.md"
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 5
    assert not failed
