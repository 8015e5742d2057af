"""Plans: the best choice at every size, verified, explained, and there at once when time is short."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import weft
from weft.collective_names import Collective
from weft.errors import InputError, TopologyError, UnsupportedError, VerificationError
from weft.planning import Plan, compare, plan, plan_steps
from weft.planning.candidates import PROMPT, Candidate
from weft.planning.fastest_by_size import CUTS, RANGE_TOLERANCE
from weft.planning.plan_text import human_size
from weft.planning.plans import Contender
from weft.planning.segment_shares import SEGMENT_TOLERANCE, segment_share, segment_size
from weft.schedule import COLLECTIVES
from weft.simulation import simulate
from weft.topology import load_topology

FEW = ("multitree", "ring", "recursive_doubling", "bucket", "direct")


@pytest.fixture(scope="module")
def torus() -> Plan:
    """Over all sizes, from a few algorithms."""
    return plan("torus:4x4", algorithms=FEW)


def test_the_headline_is_the_largest_size(torus: Plan) -> None:
    assert torus.headline.size_bytes == 1 << 30
    assert torus.algorithm == "bucket"
    assert torus.bound_seconds <= torus.seconds < 1.001 * torus.bound_seconds
    assert torus.fraction_of_bound == torus.bound_seconds / torus.seconds
    assert torus.complete


def test_ranges_cover_all_sizes_without_gaps(torus: Plan) -> None:
    assert torus.ranges[0].first_bytes == 0
    assert torus.ranges[-1].last_bytes is None
    assert all(two.first_bytes == (one.last_bytes or 0) + 1 for one, two in pairwise(torus.ranges))
    assert len({planned.algorithm for planned in torus.schedules}) > 1
    digests = [planned.schedule.digest for planned in torus.schedules]
    assert len(set(digests)) == len(digests)


def test_points_are_simulated_and_choose_repeats_them(torus: Plan) -> None:
    assert [point.size_bytes for point in torus.points] == [4**k << 10 for k in range(1, 11)]
    for point in torus.points:
        assert point.simulated
        choice = torus.choose(point.size_bytes)
        run = simulate(choice.schedule, point.size_bytes, segment_bytes=choice.segment_bytes)
        assert run.seconds == point.seconds
        assert choice.schedule == torus.schedules[torus.ranges[point.range].schedule].schedule
        assert point.bound_seconds <= point.seconds
        assert point.runner_up_seconds is not None
        # The plan may take what is a little slower, to have fewer ranges.
        assert point.runner_up_seconds > point.seconds / RANGE_TOLERANCE


def test_a_size_is_chosen_for_whatever_it_is(torus: Plan) -> None:
    assert torus.choose(0).algorithm == torus.choose("4KiB").algorithm == "recursive_doubling"
    assert torus.choose("1TiB").algorithm == "bucket"
    cut = next(span for span in torus.ranges if span.segment_share is not None)
    choice = torus.choose(cut.first_bytes)
    assert choice.segment_bytes is not None
    assert 0 < choice.segment_bytes < choice.size_bytes


def test_a_crossover_is_where_the_times_meet(torus: Plan) -> None:
    for one, two in pairwise(torus.ranges):
        size = two.first_bytes
        times = [
            simulate(choice.schedule, size, segment_bytes=choice.segment_bytes).seconds
            for choice in (torus.choose(size - 1), torus.choose(size))
        ]
        # Times jump here and there, and what is only fast at round sizes is not taken.
        assert times[1] <= 1.05 * times[0], (one, two)


def test_one_size_gives_one_range() -> None:
    found = plan("ring:8", "64MiB", algorithms=["ring", "bidirectional_ring"])
    assert found.algorithm == "bidirectional_ring"
    assert len(found.ranges) == len(found.schedules) == len(found.points) == 1
    assert (found.ranges[0].first_bytes, found.ranges[0].last_bytes) == (0, None)
    assert found.headline.size_bytes == 64 << 20
    assert found.headline.runner_up is not None
    assert found.headline.runner_up.startswith("ring")


def test_several_sizes_are_points_of_one_plan() -> None:
    found = plan("ring:4", ["1MiB", 4096, "1MiB"], algorithms=["ring", "recursive_doubling"])
    assert [point.size_bytes for point in found.points] == [4096, 1 << 20]
    assert found.headline.size_bytes == 1 << 20


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_can_be_planned(collective: str) -> None:
    found = plan("hosts:2,2", ["64KiB", "16MiB"], collective=collective, root=3)
    assert found.collective == collective
    for planned in found.schedules:
        assert planned.schedule.collective == collective
        weft.verify(planned.schedule)
    if collective == "broadcast":
        assert set(found.choose("1MiB").schedule.source.tolist()) == {3}


def test_what_does_not_apply_is_listed_once_with_its_reason() -> None:
    found = plan("ring:6", "1MiB", algorithms=["swing", "ring", "hierarchical"])
    assert [skipped.algorithm for skipped in found.skipped] == ["swing", "hierarchical"]
    assert "power of two" in found.skipped[0].reason
    with pytest.raises(UnsupportedError, match=r"swing: needs a power of two.*; name no algorithm, and all"):
        plan("ring:6", "1MiB", algorithms=["swing"])
    with pytest.raises(UnsupportedError, match=r"swing: needs a power of two.*; hdrm cannot either; name no"):
        plan("ring:6", "1MiB", algorithms=["swing", "hdrm"])


def test_a_cluster_in_pieces_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_nothing(*_: object) -> None:
        pytest.fail("nothing should be built")

    monkeypatch.setattr("weft.planning.planner.build", build_nothing)
    monkeypatch.setattr("weft.planning.planner.lower_bound", build_nothing)
    with pytest.raises(TopologyError, match="rank 0 cannot reach rank 1"):
        plan("ring:4+fail=0-1,2-3")
    with pytest.raises(InputError, match="collective 'gossip' is unknown"):
        plan("ring:4", collective="gossip")


@pytest.mark.parametrize("size", ["0", [], [0, "1MiB"]])
def test_nothing_to_send_is_refused(size: str | list[str | int]) -> None:
    with pytest.raises(InputError, match="nothing to plan"):
        plan("ring:4", size)


def test_a_root_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"root 9: ring:4 has ranks 0..3"):
        plan("ring:4", "1MiB", root=9, collective="broadcast")


def test_a_wrong_schedule_ends_planning_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(_: object, **_options: object) -> None:
        raise VerificationError("semantics", "the sum lacks rank 2", transfer=7)

    monkeypatch.setattr("weft.planning.candidates.verify", reject)
    with pytest.raises(
        VerificationError, match=r"transfer 7: ring on ring:4 made a wrong schedule: the sum lacks"
    ):
        plan("ring:4", "1MiB", algorithms=["ring"])


def test_no_time_still_gives_a_verified_plan() -> None:
    found = plan("torus:4x4", algorithms=FEW, time_limit=0)
    assert not found.complete
    assert [planned.algorithm for planned in found.schedules] == ["multitree"]
    assert (found.ranges[0].first_bytes, found.ranges[0].last_bytes) == (0, None)
    weft.verify(found.schedules[0].schedule)
    assert "cut short" in found.explain()


def test_plans_get_better_and_the_last_is_the_plan() -> None:
    plans = list(plan_steps("torus:4x4", ["64KiB", "64MiB"], algorithms=FEW))
    assert len(plans) > 1
    assert [found.complete for found in plans] == [False] * (len(plans) - 1) + [True]
    for one, two in pairwise(plans):
        assert two.seconds <= 1.011 * one.seconds
    assert plans[-1].seconds < plans[0].seconds


def test_a_warm_start_tries_first_what_was_chosen_before(torus: Plan) -> None:
    tried: list[str] = []
    first = next(
        plan_steps(
            "torus:4x4+fail=rank:5",
            algorithms=["double_binary_tree", *FEW],
            warm_start=torus,
            progress=lambda what, _done, _total: tried.append(what),
        )
    )
    large = torus.schedules[torus.ranges[-1].schedule]
    assert large.algorithm == "bucket"
    assert tried[0] == large.label
    assert first.algorithm in {planned.algorithm for planned in torus.schedules}
    weft.verify(first.schedules[0].schedule)


def test_what_was_slow_to_build_does_not_hold_up_the_first_plan(torus: Plan) -> None:
    slow = replace(
        torus, schedules=tuple(replace(planned, synthesis_seconds=9.0) for planned in torus.schedules)
    )
    tried: list[str] = []
    for _ in plan_steps(
        "torus:4x4+fail=rank:5",
        "1MiB",
        warm_start=slow,
        progress=lambda what, _done, _total: tried.append(what),
    ):
        pass
    assert tried[: len(PROMPT)] == list(PROMPT)
    assert tried[len(PROMPT)] in {planned.label for planned in torus.schedules}


def test_the_plan_is_the_same_every_time() -> None:
    one, two = (plan("mesh:2x3", ["16KiB", "1MiB"]) for _ in range(2))
    assert one.ranges == two.ranges
    assert one.points == two.points
    assert one.schedules[0].schedule == two.schedules[0].schedule


def test_equal_schedules_of_two_variants_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Candidate] = []

    def keep(self: object, candidate: Candidate) -> None:
        built.append(candidate)
        original(self, candidate)  # type: ignore[arg-type]

    from weft.planning.fastest_by_size import PlanSearch

    original = PlanSearch.add
    monkeypatch.setattr(PlanSearch, "add", keep)
    # A mesh has no ring to go half round, so both variants of bucket are one.
    plan("mesh:2x3", "1MiB", algorithms=["bucket"])
    assert [candidate.label for candidate in built] == ["bucket"]


def test_another_topology_is_refused_with_both_names(torus: Plan) -> None:
    torus.check_topology(load_topology("torus:4x4"))
    with pytest.raises(
        TopologyError, match=r"for torus:4x4 \(16 ranks.*not for torus:4x4\+fail=0-1 \(16 ranks"
    ):
        torus.check_topology(load_topology("torus:4x4+fail=0-1"))


def test_the_explanation_is_one_screen_and_says_it_all(torus: Plan) -> None:
    text = torus.explain()
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0] == "all_reduce on torus:4x4: 16 ranks, 64 links"
    sentence = " ".join(lines[1:4])
    assert "recursive_doubling below" in sentence
    assert "bucket above" in sentence
    assert f"{100 * torus.fraction_of_bound:.1f} % of the proven bound at 1GiB" in sentence
    assert "bottleneck link" in sentence
    for word in ("runner-up", "bound  ", "bottleneck  ", "others  ", "CPU seconds", "all verified"):
        assert word in text


def test_times_that_were_not_simulated_are_marked_and_the_mark_is_explained(torus: Plan) -> None:
    assert "~" not in torus.explain()
    early = plan("torus:4x4", algorithms=["ring"], time_limit=0).explain()
    assert " ~" in early
    assert "\n~           estimated from simulations of other sizes\n" in early


def test_a_short_name_of_a_topology_is_not_taken_out_of_words() -> None:
    topology = replace(load_topology("hosts:4,2"), name="a")
    text = plan(topology, "1MiB", algorithms=["ring", "ring2d"]).explain()
    assert "needs a mesh or torus, and a is none" in " ".join(text.split())


def test_equal_reasons_for_being_skipped_are_told_once() -> None:
    text = plan("hosts:4,2", "1MiB", algorithms=["ring", "ring2d", "bucket"]).explain()
    assert "skipped     ring2d, bucket: needs a mesh or torus, and this is none\n" in text


@pytest.mark.parametrize("sizes", [["64KiB", "1MB", "10MB"], ["300KB"]])
def test_nothing_is_faster_than_the_plan_at_a_size_that_was_named(sizes: list[str]) -> None:
    found = plan("torus:4x4", sizes, algorithms=FEW)
    for point in found.points:
        assert point.runner_up_seconds is not None
        assert point.seconds <= point.runner_up_seconds
    assert all(found.seconds <= contender.seconds for contender in found.contenders)


@pytest.mark.parametrize("spec", ["hosts:4,3,1", "hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s"])
def test_segments_are_the_largest_that_cost_at_most_a_percent(spec: str) -> None:
    size = 64 << 20
    found = plan(spec, size, algorithms=["flexreduce"])
    choice = found.choose(size)
    longest = Candidate("", "", choice.schedule, 0.0).longest
    sizes = [segment_size(segment_share(longest, cuts), size) for cuts in CUTS if cuts == 1 or cuts >= 2]
    times = [simulate(choice.schedule, size, segment_bytes=one).seconds for one in sizes]
    coarse_enough = next(i for i, time in enumerate(times) if time <= SEGMENT_TOLERANCE * min(times))
    assert choice.segment_bytes == sizes[coarse_enough]
    assert min(times) < times[coarse_enough], "this is about a cluster where finer cuts promise a little more"


def test_sizes_are_shown_in_the_units_in_which_they_are_exact() -> None:
    sizes = [10_000_000, 1_048_576, 1_500_000, 256_000, 3_276_800]
    assert [human_size(size) for size in sizes] == ["10MB", "1MiB", "1.5MB", "256KB", "3.12MiB"]


def test_one_algorithm_needs_no_list_and_a_warm_start_may_be_a_file(tmp_path: Path) -> None:
    found = plan("ring:4", "1MiB", algorithms="ring")
    assert found.algorithm == "ring"
    assert [row.algorithm for row in compare("ring:4", "1MiB", algorithms="ring").results] == ["ring"]
    found.save(tmp_path / "plan.weft")
    for name in (tmp_path / "plan.weft", str(tmp_path / "plan.weft")):
        assert plan("ring:4", "1MiB", algorithms="ring", warm_start=name).algorithm == "ring"


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_time_limit_is_not_negative(seconds: float) -> None:
    with pytest.raises(InputError, match="give 0 or more, or None for no limit"):
        plan("ring:4", "1MiB", algorithms="ring", time_limit=seconds)


def test_the_document_has_every_choice(torus: Plan) -> None:
    found = torus.to_dict()
    assert found["algorithm"] == "bucket"
    assert found["topology_digest"] == torus.topology.digest
    assert [span["first_bytes"] for span in found["ranges"]] == [span.first_bytes for span in torus.ranges]
    assert len(found["points"]) == 10
    assert all(schedule["verified"] for schedule in found["schedules"])
    assert {contender["algorithm"] for contender in found["contenders"]} == set(FEW)


def test_plans_only_get_better() -> None:
    """A curve that was caught jumping at small sizes is still believed to be what it was at large ones."""
    sizes = [1 << 16, 1 << 20, 1 << 22, 1 << 26, 1 << 29]
    steps = plan_steps("mesh:4x6@bw=12GB/s,lat=300ns+fail=8-9", algorithms=["multitree", "forest"])
    best = [float("inf")] * len(sizes)
    for found in steps:
        choices = [found.choose(size) for size in sizes]
        times = [
            simulate(choice.schedule, size, segment_bytes=choice.segment_bytes).seconds
            for choice, size in zip(choices, sizes, strict=True)
        ]
        # Between simulated sizes times are estimates until the search is over: a few per cent either way.
        assert all(time <= 1.08 * before for time, before in zip(times, best, strict=True)), found
        best = [min(pair) for pair in zip(times, best, strict=True)]


def test_what_takes_too_long_for_the_engine_is_passed_over() -> None:
    found = plan("ring:4@bw=1000B/s", "1GiB")
    assert found.skipped
    assert any("the engine counts" in one.reason for one in found.skipped)


def test_the_largest_size_can_be_planned() -> None:
    assert plan("ring:4", "1PiB", algorithms=["ring", "bucket"]).points[0].size_bytes == 1 << 50


@pytest.mark.parametrize(
    ("spec", "size"), [("torus:3x3@bw=1B/s", 8), ("mesh:2x3@bw=1B/s", 4), ("switch:6@lat=1ps", 1)]
)
def test_a_few_bytes_are_planned_as_they_are(spec: str, size: int) -> None:
    found, best = plan(spec, size), weft.compare(spec, size).best
    assert found.seconds <= 1.02 * best.seconds


def test_a_time_limit_is_kept_on_many_ranks() -> None:
    found = plan("switch:512", "1MB", time_limit=0.2)
    assert not found.complete
    assert any(one.reason.startswith("not tried, the time limit") for one in found.skipped)


def test_a_warm_start_of_another_collective_is_refused(torus: Plan) -> None:
    with pytest.raises(InputError, match="that plan is for all_reduce, this one for broadcast"):
        plan("torus:4x4", collective="broadcast", warm_start=torus)


def test_a_comparison_introduces_itself_in_one_line() -> None:
    found = compare(
        "ring:4@bw=1GB/s,lat=0s", "4MB", algorithms=["ring", "bidirectional_ring"], segment_bytes="none"
    )
    what = "all_reduce of 4MB on ring:4@bw=1GB/s,lat=0s"
    good = "bidirectional_ring is the fastest of 2; 3 ms, 100.0 % of the bound"
    assert repr(found) == f"<Comparison {what}: {good}>"


def test_a_plan_introduces_itself_in_one_line() -> None:
    found = plan("ring:4", "1MiB", algorithms=["ring"])
    assert repr(found) == "<Plan all_reduce on ring:4: ring; 49.2 % of the bound>"


def test_a_simulation_introduces_itself_in_one_line() -> None:
    ring = weft.algorithms.ring.all_reduce(load_topology("ring:4@bw=1GB/s,lat=1us"))
    found = simulate(ring, "4MB", segment_bytes=None)
    assert repr(found) == "<SimulationResult ring all_reduce of 4MB: 6.006 ms, 0.67 GB/s>"


@pytest.mark.parametrize(
    ("spec", "sizes", "collective"),
    [("hosts:3x2", ("4KiB", "64MiB"), "all_reduce"), ("switch:3", ("2MiB", "16MiB"), "reduce")],
)
def test_the_contenders_begin_with_the_choice_and_the_runner_up(
    spec: str, sizes: tuple[str, ...], collective: Collective
) -> None:
    found = plan(spec, sizes, collective=collective)
    last, (first, *others) = found.points[-1], found.contenders
    second = next(other for other in others if other.algorithm != first.algorithm)
    assert (first.algorithm, first.seconds) == (found.algorithm, last.seconds)
    assert (second.label, second.seconds) == (last.runner_up, last.runner_up_seconds)


def test_contenders_that_are_shown_are_simulated_and_none_is_faster_than_the_winner() -> None:
    found = plan("hosts:4,4,2@uplink=25GB/s/12GB/s/6GB/s", "8MiB")
    best: dict[str, Contender] = {}
    for contender in found.contenders:
        best.setdefault(contender.algorithm, contender)
    shown = list(best.values())[:4]
    assert all(contender.simulated for contender in shown)
    assert shown[0].seconds >= found.seconds
    others = next(line for line in found.explain().splitlines() if line.startswith("others"))
    assert "~" not in others


def test_contenders_that_were_not_simulated_are_marked() -> None:
    found = plan("ring:8", "64MiB", algorithms=["ring", "bidirectional_ring"])
    guessed = tuple(replace(one, simulated=False) for one in found.contenders)
    assert "ring ~+99.4 % at 64MiB" in replace(found, contenders=guessed).explain()


def test_a_runner_up_that_is_faster_is_explained_and_taken_where_its_size_is_asked_for() -> None:
    found = plan("fullmesh:8", algorithms=["multitree", "flexreduce"])
    faster = [
        point
        for point in found.points
        if point.runner_up_seconds is not None and point.runner_up_seconds < point.seconds
    ]
    assert faster, "this is about a cluster where ranges are merged"
    assert all(point.seconds < RANGE_TOLERANCE * (point.runner_up_seconds or 0) for point in faster)
    text = " ".join(found.explain().split())
    assert "switching a runner-up that is faster is so by less than 1.5 %" in text
    asked = plan("fullmesh:8", faster[0].size_bytes, algorithms=["multitree", "flexreduce"])
    assert asked.seconds < faster[0].seconds
    assert asked.headline.runner_up_seconds is not None
    assert asked.seconds <= asked.headline.runner_up_seconds
    assert "switching" not in asked.explain()


def test_a_plan_for_several_sizes_is_as_fast_as_a_comparison_at_each() -> None:
    """FlexReduce chooses for a size, so a plan for several sizes has to ask it for each of them."""
    spec = "hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s"
    sizes = ["64KiB", "1MiB", "64MiB"]
    found = plan(spec, sizes, algorithms=["flexreduce"])
    for size, point in zip(sizes, found.points, strict=True):
        row = compare(spec, size, algorithms=["flexreduce"]).results[0]
        # Both take the largest segments that cost no more than this, out of different ones.
        assert point.seconds <= SEGMENT_TOLERANCE * row.seconds


def test_a_collective_that_does_not_look_at_the_size_is_planned_for_several() -> None:
    found = plan("switch:4", ["64KiB", "1MiB"], collective="all_gather", algorithms=["gloo_ring"])
    assert {planned.label for planned in found.schedules} == {"gloo_ring"}


def test_a_runner_up_that_is_an_estimate_is_marked() -> None:
    first = next(plan_steps("torus:4x4", algorithms=["multitree", "ring", "bidirectional_ring"]))
    several = list(plan_steps("torus:4x4", algorithms=["multitree", "ring", "bidirectional_ring"]))
    assert not first.complete
    cut_short = next(found for found in several if any(not one.runner_up_simulated for one in found.points))
    assert not cut_short.complete
    guessed = next(one for one in cut_short.points if not one.runner_up_simulated)
    assert guessed.runner_up is not None
    row = next(
        line
        for line in cut_short.explain().splitlines()
        if line.split()[:1] == [human_size(guessed.size_bytes)]
    )
    assert f"{guessed.runner_up.partition(' (')[0]} ~" in row
    assert f"{guessed.runner_up}, ~" in cut_short._repr_html_()
    assert "estimated from simulations of other sizes" in cut_short.explain()
    points = {one["size_bytes"]: one for one in cut_short.to_dict()["points"]}
    assert points[guessed.size_bytes]["runner_up_simulated"] is False
    done = several[-1]
    assert done.complete
    assert all(one.runner_up_simulated for one in done.points)


def test_a_simulated_time_of_a_plan_is_what_a_comparison_says() -> None:
    spec, algorithms = "leafspine:16x8@oversub=3", ["blueconnect", "nccl_tree"]
    planned = plan(spec, "64MiB", algorithms=algorithms)
    compared = {row.algorithm: row.seconds for row in compare(spec, "64MiB", algorithms=algorithms).results}
    point = planned.headline
    assert point.simulated
    assert point.runner_up_simulated
    assert {planned.algorithm, point.runner_up} == set(algorithms)
    for name, seconds in ((planned.algorithm, point.seconds), (point.runner_up, point.runner_up_seconds)):
        assert seconds == pytest.approx(compared[name or ""], rel=0.001), name
