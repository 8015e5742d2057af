"""Iterations against closed forms, limits that cannot be beaten, and cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.models import costing, costs, models, uniform

from weft.errors import InputError
from weft.training import (
    FORMULAS,
    AlphaBeta,
    IterationTimeline,
    Layer,
    Linear,
    dear,
    fuse,
    ideal_dear,
    ideal_wfbp,
    serial,
    wfbp,
)

SHARES = [0.5, 1, 2, 3, 4, 6, 8, 16]


@pytest.mark.parametrize("share", SHARES)
def test_many_small_layers_without_latency_come_to_the_closed_forms(share: float) -> None:
    layers = uniform(500, 1.0, 2.0)
    prices = costing(layers, share)
    groups = fuse(layers, 1)
    assert wfbp(layers, groups, prices).seconds == pytest.approx(1 + max(2, share), rel=0.01)
    expected = max(1, share / 2) + max(2, share / 2)
    assert dear(layers, groups, prices).seconds == pytest.approx(expected, rel=0.01)
    assert serial(layers, groups, prices).seconds == pytest.approx(3 + share, rel=1e-9)


def test_the_ideal_gain_peaks_at_a_quarter_where_backward_is_twice_forward() -> None:
    layers = uniform(10, 1.0, 2.0)

    def gain(share: float) -> float:
        prices = costing(layers, share)
        return ideal_wfbp(layers, prices) / ideal_dear(layers, prices)

    assert [round(gain(share), 3) for share in (1, 2, 3, 4, 8, 16)] == [1, 1, 1.143, 1.25, 1.125, 1.062]
    assert max(gain(step / 50) for step in range(1, 1000)) == pytest.approx(1.25)


def test_dear_loses_a_sixth_where_a_reduce_scatter_costs_a_whole_all_reduce() -> None:
    layers = uniform(500, 1.0, 2.0)
    fair = costing(layers, 4.0)
    prices = Linear(fair.all_reduce, fair.all_gather, fair.all_reduce)
    groups = fuse(layers, 1)
    ratio = wfbp(layers, groups, prices).seconds / dear(layers, groups, prices).seconds
    assert ratio == pytest.approx(5 / 6, rel=0.01)


def test_two_layers_by_hand() -> None:
    layers = (Layer("a", 100, 1.0, 3.0), Layer("b", 200, 2.0, 1.0))
    half = AlphaBeta(0.5, 0.01)
    prices = Linear.in_halves(half, half)
    groups = ((1,), (0,))
    # Gathers: a from 0 to 1.5, b to 4. Forward: a 1.5 to 2.5, b waits until 4 and takes until 6.
    # Backward: b until 7, a until 10. Scatters: b from 7 to 9.5, a from 10 to 11.5.
    timeline = dear(layers, groups, prices)
    assert [(kind, number, start, end) for kind, number, start, end in timeline.spans] == [
        ("all_gather", 1, 0.0, 1.5),
        ("wait", 1, 0.0, 1.5),
        ("all_gather", 0, 1.5, 4.0),
        ("forward", 0, 1.5, 2.5),
        ("wait", 0, 2.5, 4.0),
        ("forward", 1, 4.0, 6.0),
        ("backward", 1, 6.0, 7.0),
        ("backward", 0, 7.0, 10.0),
        ("reduce_scatter", 0, 7.0, 9.5),
        ("reduce_scatter", 1, 10.0, 11.5),
        ("wait", 1, 10.0, 11.5),
    ]
    assert (timeline.seconds, timeline.exposed_s, timeline.communication_s) == (11.5, 4.5, 8.0)
    assert timeline.hidden == pytest.approx(1 - 4.5 / 8)
    # All-reduces: b from 4 to 9, a (ready at 7) from 9 to 12.
    assert wfbp(layers, groups, prices).seconds == 12.0
    assert serial(layers, groups, prices).seconds == 7.0 + 5.0 + 3.0


@pytest.mark.parametrize(("policy", "collectives"), [("serial", 1), ("wfbp", 1), ("dear", 2)])
def test_an_overhead_is_paid_by_every_collective(policy: str, collectives: int) -> None:
    layers = uniform(4, 0.0, 0.0)
    groups = fuse(layers, 1)
    prices = costing(layers, 1.0)
    plain = FORMULAS[policy](layers, groups, prices).seconds
    assert FORMULAS[policy](layers, groups, prices, overhead_s=0.25).seconds == plain + 4 * 0.25 * collectives


@given(models, costs, st.integers(1, 300_000), st.sampled_from(sorted(FORMULAS)), st.floats(0, 1))
def test_nothing_is_better_than_the_ideal_lines_nor_worse_than_no_overlap(
    layers: tuple[Layer, ...], prices: Linear, threshold: int, policy: str, overhead_s: float
) -> None:
    groups = fuse(layers, threshold)
    timeline = FORMULAS[policy](layers, groups, prices, overhead_s=overhead_s)
    ideal = ideal_dear(layers, prices) if policy == "dear" else ideal_wfbp(layers, prices)
    assert timeline.seconds >= ideal * (1 - 1e-9)
    computing = sum(layer.forward_s + layer.backward_s for layer in layers)
    assert timeline.seconds <= (computing + timeline.communication_s) * (1 + 1e-9)
    assert timeline.seconds - timeline.exposed_s == pytest.approx(computing, abs=1e-9)
    check_order(timeline)


def check_order(timeline: IterationTimeline) -> None:
    """Assert that neither two computations nor two collectives ever happen at once."""
    for kinds in (("forward", "backward", "wait"), ("reduce_scatter", "all_gather", "all_reduce")):
        free = 0.0
        for span in timeline.spans:
            if span.kind in kinds:
                assert free <= span.start_s <= span.end_s <= timeline.seconds
                free = span.end_s


@given(models, costs)
def test_a_layer_is_never_computed_before_its_parameters_are_gathered(
    layers: tuple[Layer, ...], prices: Linear
) -> None:
    groups = fuse(layers, 8000)
    spans = dear(layers, groups, prices).spans
    gathered = {span.number: span.end_s for span in spans if span.kind == "all_gather"}
    forward = {span.number: span.start_s for span in spans if span.kind == "forward"}
    backward = {span.number: span.end_s for span in spans if span.kind == "backward"}
    scattered = {span.number: span.start_s for span in spans if span.kind == "reduce_scatter"}
    for number, group in enumerate(groups):
        for index in group:
            assert forward[index] >= gathered[number]
            assert scattered[number] >= backward[index]


def test_a_model_without_parameters_only_computes() -> None:
    layers = uniform(3, 1.0, 2.0, size_bytes=0)
    prices = Linear.ring(4, 1.0, 1.0)
    for policy in FORMULAS.values():
        timeline = policy(layers, (), prices)
        assert (timeline.seconds, timeline.exposed_s, timeline.hidden) == (pytest.approx(3.0), 0, 1)


@pytest.mark.parametrize("groups", [((0,),), ((1, 0), (0,)), ((1, 0), ()), ((2, 1, 0),), ()])
def test_groups_of_another_model_are_refused(groups: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InputError, match="every layer with parameters exactly once"):
        dear(uniform(2, 1.0, 1.0), groups, Linear.ring(2, 0.0, 0.0))
