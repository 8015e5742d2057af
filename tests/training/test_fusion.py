"""Groups: whole layers, in the order of their gradients, as large as allowed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.models import costs, models, uniform

from weft.errors import InputError
from weft.training import Layer, Linear, digest, fuse
from weft.training.fusion import condense, distinct_thresholds
from weft.training.layers import LayerExchange
from weft.training.policies import find
from weft.training.single_channel import run


def model(*sizes: int) -> tuple[Layer, ...]:
    return tuple(Layer(f"layer{number}", size, 0.0, 0.0) for number, size in enumerate(sizes))


def test_groups_begin_with_the_last_layer() -> None:
    assert fuse(uniform(5, 1.0, 1.0), 2000) == ((4, 3), (2, 1), (0,))


def test_a_group_may_have_exactly_the_threshold_and_not_a_byte_more() -> None:
    assert fuse(model(5, 5), 10) == ((1, 0),)
    assert fuse(model(5, 5), 9) == ((1,), (0,))


def test_a_layer_larger_than_the_threshold_is_alone() -> None:
    assert fuse(model(1, 1, 50, 1, 1), 4) == ((4, 3), (2,), (1, 0))


def test_layers_without_parameters_are_in_no_group() -> None:
    assert fuse(model(1, 0, 1, 0), 10) == ((2, 0),)
    assert fuse(model(0, 0), 10) == ()


@given(models, st.integers(1, 400_000))
def test_every_layer_with_parameters_is_in_one_group_and_none_could_have_taken_another(
    layers: tuple[Layer, ...], threshold: int
) -> None:
    groups = fuse(layers, threshold)
    sent = [index for group in groups for index in group]
    assert sent == [index for index in range(len(layers) - 1, -1, -1) if layers[index].size_bytes]
    sizes = [sum(layers[index].size_bytes for index in group) for group in groups]
    assert all(size <= threshold or len(group) == 1 for size, group in zip(sizes, groups, strict=True))
    for (size, _), (_, after) in pairwise(zip(sizes, groups, strict=True)):
        assert size + layers[after[0]].size_bytes > threshold


@given(models, st.integers(1, 99_999), costs, st.sampled_from(["serial", "wfbp", "zero", "dear"]))
def test_condensed_layers_take_as_long(
    layers: tuple[Layer, ...], threshold: int, prices: Linear, name: str
) -> None:
    groups = fuse(layers, threshold)
    few = condense(layers, groups)
    assert [few[group[0]].size_bytes for group in fuse(few, threshold)] == [
        sum(layers[index].size_bytes for index in group) for group in groups
    ]
    graphs = [find(name).build(model, threshold_bytes=threshold) for model in (layers, few)]
    one, other = (run(graph, prices) for graph in graphs)
    assert one.seconds == pytest.approx(other.seconds, rel=1e-9, abs=1e-9)
    assert one.exposed_s == pytest.approx(other.exposed_s, rel=1e-9, abs=1e-6)


def test_layers_with_an_exchange_are_not_condensed() -> None:
    layers = (Layer("a", 0, 1.0, 1.0, exchange=LayerExchange(5, 2)), *model(1, 1))
    assert condense(layers, fuse(layers, 10)) == layers


@given(models)
def test_the_distinct_thresholds_are_all_there_are(layers: tuple[Layer, ...]) -> None:
    found = distinct_thresholds(layers, 1000)
    fusions = [fuse(layers, threshold) for threshold in found]
    assert len(set(fusions)) == len(fusions)
    total = sum(layer.size_bytes for layer in layers)
    anything = {fuse(layers, threshold) for threshold in range(1, total + 2, max(1, total // 300))}
    assert anything <= set(fusions)


def test_too_many_thresholds_are_thinned_in_even_ratios() -> None:
    layers = model(*[size * size + 1 for size in range(60)])
    found = distinct_thresholds(layers, 20)
    assert len(found) == 20
    assert len(fuse(layers, found[0])) == 60
    assert len(fuse(layers, found[-1])) == 1


def test_a_digest_is_that_of_the_groups() -> None:
    assert digest(((2, 1), (0,))) == digest(fuse(model(1, 1, 1), 2))
    assert len({digest(groups) for groups in [((1, 0),), ((1,), (0,)), ((10,),), ()]}) == 4


def test_a_threshold_of_nothing_says_what_to_give() -> None:
    with pytest.raises(InputError, match="give at least 1"):
        fuse(model(1), 0)


@pytest.mark.parametrize(
    "wrong", [{"size_bytes": -1}, {"forward_s": -1.0}, {"backward_s": float("nan")}, {"size_bytes": 1 << 60}]
)
def test_a_layer_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    good = {"name": "conv1", "size_bytes": 1, "forward_s": 0.0, "backward_s": 0.0}
    with pytest.raises(InputError, match="conv1"):
        Layer(**(good | wrong))  # type: ignore[arg-type]


def test_a_model_has_layers() -> None:
    with pytest.raises(InputError, match="at least one layer"):
        fuse((), 1)
