"""The choice of policy and fusion, and the reason that is given for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from support.examples import examples
from training.models import costing, costs, models, uniform

from weft.errors import InputError
from weft.training import FORMULAS, AlphaBeta, Layer, Linear, best, fuse
from weft.training.choice import MARGIN, MOST_CANDIDATES


def test_dear_is_taken_where_communication_is_twice_backward() -> None:
    layers = uniform(40, 0.1, 0.2)
    choice = best(layers, costing(layers, 0.4))
    assert choice.policy == "dear"
    assert [option.policy for option in choice.others] == ["wfbp"]
    gain = choice.others[0].timeline.seconds / choice.timeline.seconds
    assert 1.15 < gain < 1.25
    assert choice.reason.startswith("dear: ")
    assert choice.reason.endswith("times as long, 1.25 times with ideal overlap)")


def test_wfbp_is_taken_where_communication_is_shorter_than_backward() -> None:
    layers = uniform(40, 0.12, 0.24)
    choice = best(layers, costing(layers, 0.12))
    assert choice.policy == "wfbp"
    assert choice.reason == (
        "wfbp: communication (120 ms in one piece) is shorter than backward (240 ms), so dear cannot win"
    )


def test_wfbp_is_taken_where_reduce_scatter_is_a_whole_all_reduce() -> None:
    layers = uniform(40, 0.1, 0.2)
    fair = costing(layers, 0.4)
    choice = best(layers, Linear(fair.all_reduce, fair.all_gather, fair.all_reduce))
    assert choice.policy == "wfbp"
    assert "together (600 ms) take too much longer than an all-reduce (400 ms)" in choice.reason


def test_a_gain_within_the_margin_is_not_worth_dear() -> None:
    layers = uniform(200, 0.1, 0.2)
    prices = costing(layers, 0.206)
    assert best(layers, prices, margin=0.0).policy == "dear"
    choice = best(layers, prices)
    assert choice.policy == "wfbp"
    assert choice.reason.startswith("wfbp: ")
    assert "dear" in choice.reason


def test_latency_makes_groups_larger() -> None:
    layers = uniform(60, 0.1, 0.2)
    counts = []
    for alpha in (0.0, 1e-3, 1e-2, 1.0):
        half = AlphaBeta(alpha, 0.2 / 60_000)
        counts.append(len(best(layers, Linear.in_halves(half, half)).groups))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 30
    assert counts[-1] == 1


def test_only_the_candidates_given_are_tried() -> None:
    layers = uniform(10, 0.1, 0.2)
    choice = best(layers, costing(layers, 0.4), candidates=[3000])
    assert choice.groups == fuse(layers, 3000)
    assert choice.threshold_bytes == 3000


@examples(30)
@given(models, costs)
def test_no_fusion_and_no_policy_is_better_than_the_choice(layers: tuple[Layer, ...], prices: Linear) -> None:
    choice = best(layers, prices)
    assert choice.groups == fuse(layers, choice.threshold_bytes)
    total = sum(layer.size_bytes for layer in layers)
    for threshold in range(1, total + 2, max(1, total // 40)):
        groups = fuse(layers, threshold)
        for policy in ("dear", "wfbp"):
            seconds = FORMULAS[policy](layers, groups, prices).seconds
            assert choice.timeline.seconds <= seconds * (1 + MARGIN) + 2e-9


def test_some_hundred_fusions_are_enough_for_hundreds_of_layers() -> None:
    layers = tuple(Layer(str(number), 1000 + number**3, 1e-3, 2e-3) for number in range(300))
    prices = Linear.ring(8, 1e-4, 1e-9)
    choice = best(layers, prices)
    total = sum(layer.size_bytes for layer in layers)
    finely = {fuse(layers, round(total ** (step / 1500))) for step in range(1500)}
    assert len(finely) > 2 * MOST_CANDIDATES
    fastest = min(FORMULAS[choice.policy](layers, groups, prices).seconds for groups in finely)
    assert choice.timeline.seconds <= 1.005 * fastest


def test_one_policy_needs_no_reason() -> None:
    layers = uniform(4, 0.1, 0.2)
    choice = best(layers, costing(layers, 0.1), policies=["serial"])
    assert choice.others == ()
    assert choice.reason == "serial: nothing else was asked for"


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"policies": ["horovod"]}, "'horovod' is unknown; expected some of serial, wfbp, dear"),
        ({"policies": []}, "no policies"),
        ({"candidates": []}, "no candidates"),
    ],
)
def test_a_choice_among_nothing_is_refused(given_: dict[str, list[str]], says: str) -> None:
    layers = uniform(4, 0.1, 0.2)
    with pytest.raises(InputError, match=says):
        best(layers, costing(layers, 0.1), **given_)  # type: ignore[arg-type]
