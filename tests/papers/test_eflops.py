"""EFLOPS's reproduction: what is compared, closed forms that it meets, and the rows made of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from weft.papers import eflops, reproduce
from weft.papers.claims import Reproduction, describe
from weft.papers.eflops import fabrics, scaling, sharing
from weft.papers.eflops.all_reduces import (
    ALGORITHMS,
    FARTHEST,
    NEAREST,
    RING,
    dealt_ring,
)
from weft.papers.eflops.root_paths import ROOT_PATHS
from weft.papers.eflops.rows import (
    AT_THE_NIC,
    BEYOND,
    FABRIC_CLAIM,
    NIC_CLAIM,
    SCALING_CLAIM,
    VARIANT,
    needed_root,
)
from weft.schedule import Schedule
from weft.simulation import simulate
from weft.topology import load_topology
from weft.verification import measure_contention, verify

MIB = 1 << 20
PAGE = Path(__file__).parents[2] / "docs" / "papers" / "eflops.md"


def quiet(_text: str) -> None:
    """Tell nobody."""


@pytest.mark.parametrize("workers", [16, 32, 64, 128, 512])
def test_hdrm_on_servers_is_right_and_no_two_flows_share_a_link(workers: int) -> None:
    topology = scaling.cluster(scaling.EFLOPS, workers, 0)
    schedule = scaling.all_reduce(scaling.EFLOPS, topology)
    verify(schedule)
    assert measure_contention(schedule).max_flows == 1
    assert schedule.algorithm == "hdrm"


def test_every_hop_of_a_dealt_ring_leaves_its_server_and_few_of_a_plain_one_do() -> None:
    topology = sharing.servers(gpus=4, nics=1, count=4)

    def crossing(name: str) -> set[bool]:
        schedule = ALGORITHMS[name](topology)
        verify(schedule)
        return {a // 4 != b // 4 for a, b in zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True)}

    assert crossing("ring, ranks dealt out") == {True}
    assert crossing(RING) == {True, False}


def test_sharing_costs_as_many_times_as_gpus_share_where_all_of_it_leaves() -> None:
    shared, own = (dealt_ring(sharing.servers(8, nics, 4)) for nics in (1, 8))
    gain = (
        simulate(shared, 1 << 30, segment_bytes=None, sharing="fluid").seconds
        / simulate(own, 1 << 30, segment_bytes=None, sharing="fluid").seconds
    )
    assert gain == pytest.approx(8, rel=0.01)
    assert gain < 8


def test_a_ring_and_a_hierarchy_have_nothing_to_gain() -> None:
    for one in sharing.sweep((8,), (1, 2), (64 * MIB,), quiet):
        if one.algorithm in (RING, "hierarchical"):
            assert one.gain == pytest.approx(1, rel=0.01)
        elif one.nics == 1:
            assert 2 < one.gain < one.per_nic == 8


def test_a_slow_root_complex_costs_those_who_share_a_nic_and_not_those_who_have_one_each() -> None:
    gains = {}
    for speed in (0, *(path.speed for path in ROOT_PATHS)):
        shared, own = (dealt_ring(sharing.servers(8, nics, 4, speed)) for nics in (1, 8))
        seconds = [
            simulate(schedule, 1 << 30, segment_bytes=None, sharing="fluid").seconds
            for schedule in (shared, own)
        ]
        gains[speed] = seconds[0] / seconds[1]
    # Everything leaves a server, through the root complex where NICs are shared: 8 times how slow that is.
    for path in ROOT_PATHS:
        assert gains[path.speed] == pytest.approx(8 * 12e9 / path.speed, rel=0.01)
        assert gains[path.speed] / gains[0] == pytest.approx(12e9 / path.speed, rel=0.005)


def test_the_speed_that_the_claim_would_take_lies_between_the_published_ones() -> None:
    assert ROOT_PATHS[0].speed < needed_root() < ROOT_PATHS[1].speed
    assert all(path.source.startswith("https://") for path in ROOT_PATHS)


def test_two_nics_halve_what_one_costs() -> None:
    cells = {
        one.nics: one for one in sharing.sweep((8,), (1, 2), (64 * MIB,), quiet) if one.algorithm == FARTHEST
    }
    assert cells[2].own_s == cells[1].own_s
    assert 1.5 < cells[1].shared_s / cells[2].shared_s < 2.1
    assert cells[2].per_nic == 4


def test_beyond_ideal_sharing_messages_wait_for_two_shared_links_in_line() -> None:
    own, *shared = (
        ALGORITHMS[FARTHEST](load_topology(f"servers:8x4@nics={rest}")) for rest in ("4", "2", "2,switches=4")
    )
    alone = simulate(own, 64 * MIB, segment_bytes=None).seconds
    both, nic_only = (simulate(schedule, 64 * MIB, segment_bytes=None).seconds / alone for schedule in shared)
    assert both > 2.2  # more than the two GPUs of each NIC
    assert nic_only < 2


def test_hdrm_takes_what_its_closed_form_says() -> None:
    (one, *_) = fabrics.sweep(((4, 8),), (1,), (64 * MIB,), range(1), quiet)
    bytes_sent = 2 * 31 * (64 * MIB // 32)
    assert one.hdrm_s == pytest.approx(bytes_sent / 12e9 + 10 * 3e-6, rel=1e-9)


def test_what_is_hashed_depends_on_the_seed_and_what_is_not_does_not() -> None:
    cells = list(fabrics.sweep(((4, 8),), (1, 4), (16 * MIB,), range(6), quiet))
    by_name = {(one.network, one.algorithm, one.sharing): one for one in cells}
    hashed = by_name["1:1", FARTHEST, "queue"]
    assert len(hashed.gains) == 6
    assert len(set(hashed.gains)) > 1
    assert 1 < hashed.mean < hashed.most == max(hashed.gains)
    assert hashed.flows > 1
    assert len(by_name[fabrics.SAME, FARTHEST, "queue"].gains) == 1
    # One spine leaves nothing to hash, and a ring from leaf to leaf never has two flows on a link.
    assert len(set(by_name["4:1", FARTHEST, "queue"].gains)) == 1
    assert len(set(by_name["1:1", RING, "queue"].gains)) == 1
    assert by_name["1:1", RING, "queue"].flows == 1


def test_ranks_as_they_come_put_four_flows_on_a_link_of_the_same_bigraph() -> None:
    cells = fabrics.sweep(((4, 8),), (), (64 * MIB,), (), quiet)
    gains = {(one.algorithm, one.sharing): one for one in cells}
    assert gains[FARTHEST, "queue"].flows == gains[NEAREST, "queue"].flows == 4
    # Distances 16, 8 and 4 send half, a quarter and an eighth over links that four share.
    within = 31 / 32 + 3 * (1 / 2 + 1 / 4 + 1 / 8)
    assert gains[FARTHEST, "queue"].most == pytest.approx(within / (31 / 32), rel=0.01)


def test_with_a_barrier_after_each_step_it_does_not_matter_how_links_are_shared() -> None:
    schedule = ALGORITHMS[FARTHEST](load_topology(fabrics.clos(4, 8, 2, 3)))

    def seconds(part: Schedule, sharing: str) -> float:
        return simulate(part, 64 * MIB, segment_bytes=None, sharing=sharing).seconds

    steps = [one_step(schedule, step) for step in range(schedule.steps)]
    turns, rates = (sum(seconds(step, kind) for step in steps) for kind in ("queue", "fluid"))
    assert turns == pytest.approx(rates, rel=1e-3)
    assert seconds(schedule, "queue") < turns < seconds(schedule, "fluid")


def one_step(schedule: Schedule, step: int) -> Schedule:
    """Transfers of one step alone."""
    rows = schedule.step == step
    columns = ("step", "chunk", "src", "dst", "op", "route", "src_slot", "dst_slot")
    kept = {name: getattr(schedule, name) for name in columns}
    return replace(schedule, **{name: column[rows] for name, column in kept.items() if column is not None})


def test_clusters_of_a_set_up_have_the_servers_and_the_network_it_names() -> None:
    assert (
        scaling.cluster(scaling.SHARED_RING, 64, 5).routing
        == load_topology("fattree:16@routing=ecmp,seed=5").routing
    )
    own, shared = (scaling.cluster(name, 64, 0) for name in (scaling.OWN, scaling.SHARED_RING))
    leaving = (
        [own.link_name(link) for link in own.route(0, 63)],
        [shared.link_name(link) for link in shared.route(0, 63)],
    )
    assert [len(names) for names in leaving] == [8, 10]
    assert scaling.cluster(scaling.EFLOPS, 8, 0).hosts == (tuple(range(8)),)
    assert scaling.cluster(scaling.EFLOPS, 64, 0).routing.kind == "shortest"


def test_one_channel_agrees_with_every_link_simulated() -> None:
    for setup in (scaling.EFLOPS, scaling.SHARED_FAR):
        assert abs(scaling.check(setup, 16, "wfbp", "fp16")["difference"]) < 0.005


@pytest.fixture(scope="module")
def reduced() -> tuple[Reproduction, list[tuple[int, int]]]:
    """All of it, on few ranks."""
    told: list[tuple[int, int]] = []
    effort = eflops.Effort(
        gpus=(4, 8),
        nics=(1, 2),
        sizes=(64 << 10, 16 * MIB),
        shapes=((2, 4), (4, 8)),
        oversubscriptions=(1, 2),
        seeds=3,
        workers=(8, 16, 32),
        training_seeds=2,
        checked=16,
    )
    return reproduce("eflops", lambda _text, done, steps: told.append((done, steps)), effort), told


def test_progress_counts_up_to_all_steps(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    told = reduced[1]
    assert [done for done, _ in told] == list(range(len(told)))
    assert {steps for _, steps in told} == {len(told)}


def test_every_claim_of_the_abstract_has_one_row_that_counts_and_all_rows_have_a_reason(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    found = reduced[0]
    counted = {row.claim: row.paper for row in found.rows if not row.claim.startswith(VARIANT)}
    assert counted == {NIC_CLAIM: 11.3, FABRIC_CLAIM: 6.08, SCALING_CLAIM: None}
    assert (AT_THE_NIC, BEYOND) == (11.3, 6.08)
    assert sum(not row.claim.startswith(VARIANT) for row in found.rows) == 3
    assert all(row.paper is None for row in found.rows if row.claim.startswith(VARIANT))
    assert all(row.why and row.setup and row.ours >= 0 for row in found.rows)
    assert all(row.at_most == (row.paper is not None) for row in found.rows)
    assert json.loads(json.dumps(found.to_dict()))["paper"] == "eflops"


def test_scaling_is_judged_by_the_case_that_scales_least(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    (row,) = (row for row in reduced[0].rows if row.claim == SCALING_CLAIM)
    last = [
        one["efficiency"]
        for one in reduced[0].data["scaling"]
        if (one["setup"], one["workers"]) == (scaling.EFLOPS, 32)
    ]
    assert row.ours == 100 * min(last)


def test_every_published_speed_of_the_root_complex_has_a_row_for_one_and_for_two_nics(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    for path in ROOT_PATHS:
        rows = [row for row in reduced[0].rows if path.source in row.why]
        assert [f"{path.speed / 1e9:g} GB/s" in row.setup for row in rows] == [True, True]
        assert rows[0].ours > 1.5 * rows[1].ours
        for row in rows:
            assert ("and not 11.3x" in row.why) == (row.ours < AT_THE_NIC)


def test_rows_are_made_of_the_data(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    found = reduced[0]
    gains = [one["gain"] for one in found.data["sharing"] if (one["gpus"], one["nics"]) == (8, 1)]
    turns = [
        one["gain"]
        for one in found.data["sharing"]
        if (one["gpus"], one["nics"], one["sharing"]) == (8, 1, "queue")
    ]
    assert found.rows[0].ours == max(turns) <= max(gains) < 8
    hashed = [
        max(one["gains"])
        for one in found.data["fabrics"]
        if one["sharing"] == "queue" and one["network"] != fabrics.SAME and one["algorithm"] != RING
    ]
    assert max(hashed) in [row.ours for row in found.rows if row.paper == BEYOND]


def test_efficiency_falls_with_more_gpus_and_with_what_is_shared(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    cells = [one for one in reduced[0].data["scaling"] if (one["policy"], one["dtype"]) == ("ddp", "fp16")]
    for setup in scaling.SETUPS:
        mine = [one["efficiency"] for one in cells if one["setup"] == setup]
        assert len(mine) == 3
        assert all(after <= before + 1e-3 for before, after in pairwise(mine))
        assert all(0 < value <= 1 for value in mine)
    at_most = {one["setup"]: one["efficiency"] for one in cells if one["workers"] == 32}
    assert at_most[scaling.EFLOPS] > at_most[scaling.OWN] > at_most[scaling.SHARED_FAR]


def test_there_is_a_chart_of_every_study(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    charts = reduced[0].charts
    assert set(charts) == {
        *("nics", "nics-sizes", "nics-root", "fabrics", "fabrics-fair", "fabrics-sizes"),
        *("scaling-wfbp", "scaling-ddp"),
    }
    assert all(picture.startswith("<svg") and "nan" not in picture for picture in charts.values())


def test_the_page_has_every_chart_and_every_assumption(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    text = PAGE.read_text()
    shown = re.findall(r"\]\((\.\./images/eflops-[a-z-]+\.svg)\)", text)
    assert {Path(name).stem.removeprefix("eflops-") for name in shown} == set(reduced[0].charts)
    assert all((PAGE.parent / name).is_file() for name in shown)
    words = " ".join(text.split())  # a long assumption has several lines
    assert all(f"- {assumption}" in words for assumption in describe("eflops")["assumptions"])
