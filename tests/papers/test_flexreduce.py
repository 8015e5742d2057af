"""FlexReduce, reproduced: baselines that are right, clusters as described, rows made of their times."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from weft.algorithms.common.levels import find_levels
from weft.papers import PAPERS, Reproduction, flexreduce, reproduce
from weft.papers.flexreduce.baselines import (
    CONVENTIONAL,
    FLEX,
    NAMES,
    fold,
    schedules,
    symmetric_levels,
    symmetric_part,
)
from weft.papers.flexreduce.charts import PICTURES
from weft.papers.flexreduce.clusters import NICS, SCENARIOS, STUDIES, SYMMETRIC, Scenario, is_symmetric
from weft.papers.flexreduce.rows import case_rows, draw_rows, summary_rows
from weft.papers.flexreduce.timing import EQUAL, TimingCase, measure
from weft.topology import load_topology
from weft.verification import verify

GB = 10**9
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
HOSTS = st.lists(st.integers(1, 5), min_size=2, max_size=5)


@given(HOSTS)
@examples(40)
def test_blueconnect_with_ranks_folded_in_is_right_on_any_hosts(counts: list[int]) -> None:
    cluster = load_topology(f"hosts:{','.join(map(str, counts))}")
    part = symmetric_part(cluster)
    schedule = fold(cluster, part)
    verify(schedule)
    shares = schedule.weights[schedule.chunk] / schedule.denominator
    sent = np.bincount(schedule.src, shares, cluster.ranks)
    inside = {rank for host in part for rank in host}
    assert all(sent[rank] == pytest.approx(1.0) for rank in range(cluster.ranks) if rank not in inside)


@given(HOSTS)
def test_the_symmetric_part_is_equal_and_none_is_larger(counts: list[int]) -> None:
    cluster = load_topology(f"hosts:{','.join(map(str, counts))}")
    part = symmetric_part(cluster)
    assert len({len(host) for host in part}) == 1
    assert len(part) > 1
    best = max(size * able for size in counts if (able := sum(count >= size for count in counts)) > 1)
    assert sum(map(len, part)) == best


@pytest.mark.parametrize(
    ("spec", "levels"),
    [
        ("hosts:4,4", (4, 2)),
        ("hosts:2,2,2,2@racks=2", (2, 2, 2)),
        ("hosts:2,2,2@racks=2", None),
        ("hosts:4,2", None),
    ],
)
def test_levels_are_symmetric_or_there_are_none(spec: str, levels: tuple[int, ...] | None) -> None:
    assert symmetric_levels(find_levels(load_topology(spec))) == levels


@pytest.mark.parametrize("spec", ["hosts:3,2,1", "hosts:2,2,2@racks=2/1", "hosts:3,1@nic=9GB/s"])
def test_every_contender_is_verified_and_none_is_tried_twice(spec: str) -> None:
    cluster = load_topology(spec)
    for name in NAMES:
        found = schedules(cluster, name)
        assert found
        assert len({schedule.digest for schedule in found}) == len(found)
        for schedule in found:
            verify(schedule)


def test_leaders_and_blueconnect_need_groups() -> None:
    grid = load_topology("torus:2x3")
    assert [len(schedules(grid, name)) for name in ("leaders", "blueconnect")] == [0, 0]
    assert len(schedules(grid, FLEX)) == 2  # a ring, and all directly


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_cluster_is_symmetric_where_its_kind_says_so(scenario: Scenario) -> None:
    assert is_symmetric(scenario.topology(scenario.inside[0])) == (scenario.kind == SYMMETRIC)


def test_the_clusters_of_the_comparison_are_there() -> None:
    shapes = {scenario.shape for scenario in SCENARIOS}
    assert {"8,8", "8,4", "8,4,2", "4,3,1", "8,8,8,1", "16,8", "8,8,8"} <= shapes
    unequal = [scenario.topology("NVLink") for scenario in SCENARIOS if scenario.kind == NICS]
    assert all(len(set(cluster.bandwidth.tolist())) > 2 for cluster in unequal)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_draw_is_sixteen_gpus_and_always_the_same(study: flexreduce.Study) -> None:
    drawn = [study.topology(seed) for seed in range(6)]
    assert drawn == [study.topology(seed) for seed in range(6)]
    assert {cluster.ranks for cluster in drawn} == {16}
    assert len({cluster.digest for cluster in drawn}) > 3
    slow = [3_125_000_000 in cluster.bandwidth for cluster in drawn]
    assert any(slow) == (study.nics == "unequal")


@pytest.fixture(scope="module")
def one_slow() -> list[TimingCase]:
    cluster = load_topology("hosts:2,2,2,2@intra=120GB/s,uplink=12.5GB/s/12.5GB/s/12.5GB/s/3.125GB/s")
    return measure(cluster, ["64KiB", "64MiB"])


def test_a_slow_nic_carries_the_buffer_once_and_not_one_and_a_half_times(one_slow: list[TimingCase]) -> None:
    # Equal shares send 2 (G - 1)/G of the buffer over it, balanced ones what they must: all of it, once.
    point = one_slow[-1]
    assert point.bound_s == pytest.approx(point.size_bytes / 3.125e9)
    assert point.balance_gain == pytest.approx(1.5, rel=0.03)
    assert point.speedup == pytest.approx(1.5, rel=0.03)
    assert point.fraction(FLEX) > 0.97


def test_times_are_above_the_bound_and_the_best_of_options_counts(one_slow: list[TimingCase]) -> None:
    for point in one_slow:
        assert set(point.seconds) == {*NAMES, EQUAL}
        assert min(point.seconds.values()) >= point.bound_s
        assert point.best_plan_s <= point.seconds[FLEX]
        assert point.seconds[point.best_conventional] == min(point.seconds[name] for name in CONVENTIONAL)
        assert point.packed_s >= point.size_bytes / 3.125e9 * (1 - 1e-9)


def test_without_other_options_the_default_is_what_counts() -> None:
    cluster = BY_NAME["{4,3,1}"].topology("NVLink")
    (point,) = measure(cluster, ["1MiB"], as_it_comes=True)
    assert point.seconds[FLEX] == point.best_plan_s


def test_few_nics_are_the_bound_where_each_gpu_has_one() -> None:
    (point,) = measure(load_topology("hosts:4,2@intra=120GB/s,nic=12.5GB/s"), ["64MiB"])
    assert point.bound_s == pytest.approx(point.size_bytes / 25e9)
    assert point.fraction(FLEX) > 0.95
    assert point.over("leaders") > 1.7  # all but two NICs of its are idle


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "inside"),
    [(scenario, inside) for scenario in SCENARIOS for inside in scenario.inside],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_default_is_near_its_best_plan_and_the_best_rival_at_every_size(
    scenario: Scenario, inside: str
) -> None:
    for point in measure(scenario.topology(inside), flexreduce.Effort().sizes):
        assert point.choice >= 1 / 1.02, "more than 2 % longer than the best of its own plans"
        assert point.speedup >= 1 / 1.02, "more than 2 % longer than the best rival"


def test_there_are_as_many_pairs_of_cluster_and_size_as_the_page_says() -> None:
    pairs = {True: 0, False: 0}
    for scenario in SCENARIOS:
        pairs[scenario.kind == SYMMETRIC] += len(scenario.inside) * len(flexreduce.Effort().sizes)
    assert pairs == {True: 21, False: 72}


@pytest.fixture(scope="module")
def reduced() -> tuple[Reproduction, list[tuple[int, int]]]:
    """A little of everything."""
    told: list[tuple[int, int]] = []
    few = ("{4,3,1}", "{4,3,1} NIC each", "{8,8}")
    effort = flexreduce.Effort(
        scenarios=tuple(replace(BY_NAME[name], inside=("NVLink",)) for name in few),
        sizes=("64KiB", "4MiB"),
        studies=STUDIES[:1],
        draws=2,
        draw_size="1MiB",
    )
    return reproduce("flexreduce", lambda _text, done, steps: told.append((done, steps)), effort), told


def test_progress_counts_up_to_all_steps(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    told = reduced[1]
    assert told == [(done, 5) for done in range(5)]


def test_no_number_is_called_the_papers_and_every_row_has_a_reason(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    found = reduced[0]
    assert {row.paper for row in found.rows} == {None}
    assert all(row.why and row.setup for row in found.rows)
    assert any("not known" in text for text in found.assumptions)
    claims = [row.claim for row in found.rows]
    assert len(set(claims)) == len(claims)
    assert json.loads(json.dumps(found.to_dict()))["paper"] == "flexreduce"
    assert "flexreduce" in PAPERS


def test_data_has_every_point_and_charts_show_them(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    found = reduced[0]
    assert len(found.data["clusters"]) == 6
    assert [len(draws) for draws in found.data["placements"].values()] == [2]
    assert set(found.charts) == {"symmetric", "counts-nvlink", "each", "placements"}
    assert all(picture.startswith("<svg") and "nan" not in picture for picture in found.charts.values())


def point_of(flex: float, ring: float, size: int = 1 << 20) -> TimingCase:
    """A point with times of our own."""
    times = {"ring": ring, FLEX: flex, EQUAL: 2 * flex}
    return TimingCase("a cluster", size, times, flex, 0.9 * min(flex, ring), 1.0)


def test_a_row_where_it_is_slower_says_so_and_why() -> None:
    scenario = Scenario("{8,4}", "GPUs of hosts differ", "8,4", "uplink=1GB/s")
    early = [point_of(2.0, 1.0), point_of(1.0, 1.0, 1 << 30)]
    (row,) = case_rows([(scenario, "PCIe", early)])
    assert row.ours == pytest.approx(0.5**0.5)
    assert "slower at 1MiB, where ring is nearer the bound: filling its pipeline" in row.why
    (row,) = case_rows([(scenario, "PCIe", [point_of(2.0, 1.0)])])
    assert "slower at 1MiB, where ring is nearer the bound: its plan is worse" in row.why
    (row,) = case_rows([(scenario, "PCIe", [point_of(1.0, 2.0)])])
    assert "slower" not in row.why


def test_a_symmetric_row_has_the_least_and_an_asymmetric_one_the_mean() -> None:
    points = [point_of(1.0, 1.0), point_of(1.0, 4.0)]
    scenario = Scenario("{8,8}", SYMMETRIC, "8,8", "uplink=1GB/s")
    rows = list(case_rows([(scenario, "PCIe", points), (replace(scenario, kind=NICS), "PCIe", points)]))
    assert [row.ours for row in rows] == pytest.approx([2.0, 1.0])


def test_shares_count_what_is_faster_alike_and_slower() -> None:
    times = ((1.0, 1.5), (1.0, 1.005), (1.0, 0.5), (1.0, 2.0))
    points = [point_of(*pair, size=2**number << 20) for number, pair in enumerate(times)]
    draws = [(point, number == 0) for number, point in enumerate(points)]
    share, mean, most = draw_rows(STUDIES[0], draws)
    assert share.ours == 50.0
    assert "2 are faster, 1 within 1% and 1 slower, and the least is 0.500x, on draw 2" in share.why
    assert "1 of the draws are symmetric" in share.why
    assert mean.ours == pytest.approx((1.5 * 1.005 * 0.5 * 2.0) ** 0.25)
    assert "2.00x over equal shares" in mean.why
    assert most.ours == 2.0
    scenario = Scenario("{8,4}", NICS, "8,4", "uplink=1GB/s")
    points[-1] = replace(points[-1], seconds={**points[-1].seconds, FLEX: 4.0})
    overall = {row.claim: row for row in summary_rows([(scenario, "PCIe", points)])}
    beats = "beats conventional algorithms on asymmetric structures"
    assert overall[f"{beats}: how often"].ours == 25.0
    assert overall[f"{beats}: how often"].claim_id == "flexreduce-asymmetric"
    assert overall[f"{beats}, with the best of all plans of FlexReduce: how often"].ours == 50.0
    assert "at most 1.50x, on {8,4}, PCIe at 1MiB" in overall[f"{beats}: on average"].why
    assert not any("symmetric structures" in claim and "asym" not in claim for claim in overall)


@pytest.mark.parametrize("name", ["{4,3,1} NIC each"])
def test_the_page_has_the_numbers_that_come_out(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "papers" / "flexreduce.md").read_text("utf-8")
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    points = measure(BY_NAME[name].topology("NVLink"), flexreduce.Effort().sizes)
    shown = re.findall(r"[0-9.]+(?=x)", cells[2])
    assert shown == [f"{point.speedup:.2f}" for point in points]
    fractions = [f"{100 * points[-1].fraction(one):.1f}" for one in (*NAMES, EQUAL)]
    assert cells[3:] == fractions


def test_the_page_shows_every_chart_and_no_other() -> None:
    docs = Path(__file__).parents[2] / "docs"
    shown = re.findall(r"\]\(\.\./images/(.*?)\)", (docs / "papers" / "flexreduce.md").read_text("utf-8"))
    drawn = {path.name for path in (docs / "images").glob("flexreduce-*.svg")}
    assert set(shown) == drawn == {f"flexreduce-{name}.svg" for name in (*PICTURES, "placements")}
