"""What a profile finds in recorded spans: those of imagined iterations, whose numbers are known."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from weft import limits
from weft.errors import InputError, LimitError
from weft.export.chrome_trace import write_events
from weft.torch.profiling.expected_times import Prediction, match, predict
from weft.torch.profiling.figures import RankFigures, compute_figures, rank_figures, stragglers
from weft.torch.profiling.profile_trace import events, rank_spans
from weft.torch.profiling.recording import Recorder, Recording
from weft.torch.profiling.summary import summarize
from weft.training import FORMULAS, AlphaBeta, Layer, Linear, fuse


class Span(NamedTuple):
    kind: str
    group: int
    start: float
    end: float


@dataclass(frozen=True)
class Group:
    size_bytes: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Fusion:
    groups: tuple[Group, ...]
    policy: str
    digest: str = "0123456789abcdef"


HALF = AlphaBeta(0.001, 1e-8)
COSTS = Linear.in_halves(HALF, HALF)
LAYERS = tuple(Layer(f"block{number}.conv", 1_000_000, 0.01, 0.02) for number in range(6))
GROUPS = fuse(LAYERS, 2_000_000)
UPDATE_S = 0.003


def fusion(policy: str) -> Fusion:
    groups = [
        Group(
            sum(LAYERS[index].size_bytes for index in group),
            tuple(f"{LAYERS[index].name}.{part}" for index in group for part in ("bias", "weight")),
        )
        for group in GROUPS
    ]
    return Fusion(tuple(groups), policy)


def imagined(policy: str, iterations: int = 5, rank: int = 0, **known: Any) -> Recording:
    """Record iterations exactly as the model has them, each with an update at the end of its forward pass."""
    timeline = FORMULAS[policy](LAYERS, GROUPS, COSTS)
    spans = [Span("step", -1, 99.0, 100.0)]
    for number in range(iterations):
        begin = 100.0 + number * (timeline.seconds + UPDATE_S)
        forward_end = begin + max(span.end_s for span in timeline.spans if span.kind == "forward") + UPDATE_S
        spans += [Span("forward", -1, begin, forward_end)]
        spans += [Span("update", 0, forward_end - UPDATE_S, forward_end)]
        computed = forward_end + sum(layer.backward_s for layer in LAYERS)
        spans += [Span("backward", -1, forward_end, computed)]
        for kind, group, start, end in timeline.spans:
            if kind not in ("forward", "backward"):
                late = UPDATE_S if begin + end > forward_end - UPDATE_S else 0.0
                spans.append(Span(kind, group, begin + start + late, begin + end + late))
        over = begin + timeline.seconds + UPDATE_S
        spans.append(Span("step", -1, computed, over))
    spans.sort(key=lambda span: span.end)
    known = {"layers": LAYERS, "costs": COSTS} | known
    return Recording(rank, 4, fusion(policy), tuple(spans), **known)


@pytest.mark.parametrize("policy", ["dear", "wfbp"])
def test_the_parts_of_imagined_iterations_are_found(policy: str) -> None:
    timeline = FORMULAS[policy](LAYERS, GROUPS, COSTS)
    figures = compute_figures(imagined(policy))
    assert figures.iterations == 5
    assert figures.whole.median_s == pytest.approx(timeline.seconds + UPDATE_S)
    assert figures.parts["forward"].median_s == pytest.approx(0.06)
    assert figures.parts["backward"].median_s == pytest.approx(0.12)
    assert figures.parts["update"].median_s == pytest.approx(UPDATE_S)
    assert figures.parts["wait"].median_s == pytest.approx(timeline.exposed_s)
    assert figures.parts["other"].median_s == pytest.approx(0, abs=1e-6)
    assert figures.computing_s == pytest.approx(0.18 + UPDATE_S)
    assert figures.communication_s == pytest.approx(timeline.communication_s)
    assert figures.hidden == pytest.approx(timeline.hidden)


def test_every_group_has_its_times_and_rates() -> None:
    figures = compute_figures(imagined("dear"))
    assert [group.number for group in figures.groups] == [0, 1, 2]
    for group in figures.groups:
        assert (group.size_bytes, group.parameters) == (2_000_000, 4)
        assert list(group.seconds) == ["reduce_scatter", "all_gather"]
        assert group.seconds["all_gather"].median_s == pytest.approx(0.021)
        assert group.rate("reduce_scatter") == pytest.approx(2_000_000 / 0.021)


def test_the_prediction_of_what_the_model_made_is_right() -> None:
    for policy in ("dear", "wfbp"):
        recording = imagined(policy)
        found = predict(recording, compute_figures(recording))
        assert isinstance(found, Prediction)
        assert found.deviation == pytest.approx(0, abs=0.02)
        assert found.timeline.seconds >= (found.ideal_dear_s if policy == "dear" else found.ideal_wfbp_s)


def test_without_measured_layers_there_is_a_reason_instead_of_a_prediction() -> None:
    recording = imagined("dear", layers=None)
    reason = predict(recording, compute_figures(recording))
    assert isinstance(reason, str)
    assert "no prediction: DeAR measured neither" in summarize(
        recording, compute_figures(recording), [], reason
    )
    strange = imagined("dear", layers=LAYERS[:2])
    assert (
        predict(strange, compute_figures(strange))
        == "the groups are not made of the layers that were measured"
    )


def test_parameters_are_matched_to_the_nearest_module_above_them() -> None:
    layers = [Layer(name, 8, 0.0, 0.0) for name in ("model", "a", "a.b", "list")]
    names = [["list.0.deep"], ["a.b.weight", "a.weight"], ["top"]]
    assert match(layers, names) == ((3,), (2, 1), (0,))
    assert match(layers[1:], names) is None
    assert match(layers, names[:2]) is None


def test_a_layer_in_several_groups_counts_in_the_last() -> None:
    layers = [Layer("a", 8, 0.0, 0.0), Layer("b", 8, 0.0, 0.0)]
    assert match(layers, [["b.half"], ["b.full", "a.full"]]) == ((1, 0),)


def test_one_screen_says_it_all() -> None:
    recording = imagined("dear", left_out=12)
    figures = compute_figures(recording)
    ranks = [rank_figures(recording, figures), RankFigures(1, "slow", 0.227, 0.225, 0.001, 0.001)]
    text = summarize(recording, figures, ranks, predict(recording, figures))
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[0] == "rank 0 of 4: 5 iterations by dear, 6 MB in 3 groups (plan 01234567)"
    assert lines[1] == "left out: 12 iterations with other fusions, before this one"
    for words in (
        ["iteration", "100 %"],
        ["forward", "60 ms"],
        ["backward", "120 ms"],
        ["wait", "not hidden"],
    ):
        assert any(all(word in line for word in words) for line in lines), words
    assert any("reduce-scatter" in line and "MB/s" in line for line in lines)
    assert any(line.startswith("predicted: ") and "measured" in line for line in lines)
    assert any(line.startswith("the difference: computing +") for line in lines)
    assert any(line.startswith("ideal lines: wfbp ") for line in lines)
    assert lines[-1] == "stragglers: rank 1; rank 0 waits for it"


def test_many_groups_and_ranks_still_fit_a_screen() -> None:
    groups = tuple(Group(number + 1, (f"layer{number}." + "x" * 200,)) for number in range(300))
    spans = [Span("step", -1, 0.0, 1.0), Span("step", -1, 1.0, 2.0)]
    recording = Recording(0, 200, Fusion(groups, "wfbp"), tuple(spans))
    figures = compute_figures(recording)
    ranks = [RankFigures(rank, "host", 1.0, 0.5, 0.0, 0.5) for rank in range(200)]
    text = summarize(recording, figures, ranks, "none")
    assert len(text.splitlines()) <= 45
    assert max(map(len, text.splitlines())) <= 100
    assert "the largest 12 of 300 groups" in text
    assert "the slowest 8 of 200 ranks" in text
    assert "no stragglers" in text


def test_the_rank_that_waits_least_is_the_straggler_whatever_keeps_it_busy() -> None:
    usual = [RankFigures(rank, "a", 1.0, 0.6, 0.0, 0.4) for rank in range(3)]
    assert stragglers([*usual, RankFigures(3, "b", 1.0, 0.6, 0.35, 0.05)]) == [3]
    assert stragglers([*usual, RankFigures(3, "b", 1.0, 0.62, 0.0, 0.38)]) == []
    assert stragglers([usual[0], RankFigures(1, "b", 1.0, 0.9, 0.0, 0.1)]) == [1]


def test_too_few_steps_say_how_to_get_more() -> None:
    recording = Recording(0, 2, fusion("dear"), (Span("step", -1, 0.0, 1.0),))
    with pytest.raises(InputError, match=r"1 steps were recorded .* wait until optimizer.tuning is False"):
        compute_figures(recording)


def test_a_recorder_begins_anew_with_another_fusion() -> None:
    plans = [fusion("wfbp"), fusion("dear")]
    now = plans[0]
    recorder = Recorder(lambda: now, None)
    for number in range(4):
        recorder.add(Span("all_reduce", 0, number, number + 0.5))
        if number == 2:
            now = plans[1]
        recorder.add(Span("step", -1, number + 0.5, number + 1))
    assert recorder.plan is plans[1]
    assert recorder.left_out == 2
    assert recorder.spans == (
        Span("step", -1, 2.5, 3),
        Span("all_reduce", 0, 3, 3.5),
        Span("step", -1, 3.5, 4),
    )


def test_a_recorder_stops_after_the_iterations_asked_for() -> None:
    plan = fusion("dear")
    recorder = Recorder(lambda: plan, 2)
    for number in range(9):
        recorder.add(Span("step", -1, number, number + 1))
    assert recorder.full
    assert Recording(0, 1, plan, recorder.spans).iterations == 2


def test_a_recorder_keeps_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PROFILE_SPANS", 10)
    plan = fusion("dear")
    recorder = Recorder(lambda: plan, None)
    for number in range(30):
        recorder.add(Span("wait", 0, number, number + 1))
    assert recorder.full
    assert len(recorder.spans) == 10


def test_a_trace_has_a_process_per_rank_and_no_spans_over_each_other(tmp_path: Path) -> None:
    recordings = [imagined("dear", rank=rank) for rank in range(2)]
    prediction = predict(recordings[0], compute_figures(recordings[0]))
    write_events(events([rank_spans(one) for one in recordings], prediction), tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    assert [names[pid].split(" (")[0] for pid in (0, 1, 2)] == ["rank 0", "rank 1", "predicted"]
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for one in found:
        if one["ph"] == "X":
            tracks[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for spans in tracks.values():
        free = -1.0
        for start, end in sorted(spans):
            assert start >= free - 1.0  # microseconds: times of day have no more digits
            free = end
    threads = {one["args"]["name"] for one in found if one["name"] == "thread_name" and one["pid"] == 0}
    assert threads == {"compute", "update", "step", "communication", "waiting"}
    gathers = [one for one in found if one.get("cat") == "all_gather" and one["pid"] == 0]
    assert len(gathers) == 5 * 3
    assert all(one["args"]["bytes"] == 2_000_000 for one in gathers)
    assert gathers[0]["args"]["MB/s"] == pytest.approx(95.2, abs=0.2)


def test_collectives_that_overlap_are_on_several_tracks() -> None:
    spans = (Span("all_reduce", 0, 0.0, 2.0), Span("all_reduce", 1, 1.0, 3.0), Span("step", -1, 3.0, 4.0))
    recording = Recording(0, 1, fusion("wfbp"), spans)
    found = list(events([rank_spans(recording)], "none"))
    assert len({one["tid"] for one in found if one.get("cat") == "all_reduce"}) == 2


def test_a_trace_too_long_for_viewers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", 10)
    with pytest.raises(LimitError, match="profile fewer steps"):
        events([rank_spans(imagined("dear"))], "none")
