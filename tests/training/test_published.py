"""Published layer times: what the files say, what an endpoint costs each layer, and what the cycles imply."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError
from weft.training.devices import Device, find_device
from weft.training.endpoint_cost import layers_under
from weft.training.endpoints import ENDPOINTS, Endpoint, find_endpoint
from weft.training.layers import (
    Layer,
    backward_seconds,
    check_layers,
    forward_seconds,
    slow_down,
    total_bytes,
)
from weft.training.workloads import PUBLISHED, WORKLOADS, PublishedWorkload, load_workload
from weft.training.workloads.published import resnet50_grouped

TOTALS = {
    # Layers; cycles forward, of inputs' and of weights' gradients; bytes all-reduced: the source's own sums.
    "resnet50-published": (54, 380_038, 377_463, 337_813, 102_011_648),
    "dlrm-published": (8, 19_020, 19_014, 13_644, 3_191_808),
}


def npu() -> Device:
    device = find_device("ace-npu")
    assert isinstance(device, Device)
    return device


def published(name: str) -> PublishedWorkload:
    workload = load_workload(name)
    assert isinstance(workload, PublishedWorkload)
    return workload


@pytest.mark.parametrize("name", PUBLISHED)
def test_layers_have_the_cycles_and_the_bytes_of_the_source(name: str) -> None:
    count, forward, inputs, weights, size_bytes = TOTALS[name]
    layers = published(name).layers(npu())
    check_layers(layers)
    assert len(layers) == count
    assert forward_seconds(layers) == pytest.approx(forward * 1e-9)
    assert backward_seconds(layers) == pytest.approx((inputs + weights) * 1e-9)
    assert sum(layer.weight_gradient_s or 0.0 for layer in layers) == pytest.approx(weights * 1e-9)
    assert total_bytes(layers) == size_bytes


def test_the_embeddings_of_dlrm_exchange_for_the_first_top_layer() -> None:
    layers = published("dlrm-published").layers(npu())
    exchange = layers[0].exchange
    assert exchange is not None
    assert exchange.size_bytes == 98_304
    assert layers[exchange.needed_by].name == "MLP_Top_0"


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_layer_sends_four_bytes_for_each_weight_of_its_operator(name: str) -> None:
    workload = published(name)
    for layer, group in zip(workload.published, workload.groups, strict=True):
        assert layer.size_bytes == 4 * sum(product.weights for product in group[0].products)


def test_most_convolutions_take_the_cycles_of_one_picture_on_an_array_of_256() -> None:
    # Hence the batch behind these times is 1, whatever batch the paper says that it trains with.
    side, exact = 256, 0
    workload = published("resnet50-published")
    for layer, group in zip(workload.published, workload.groups, strict=True):
        product = group[0].products[0]
        depth = product.kernel_height * product.kernel_width * product.channels
        pixels = product.out_height * product.out_width
        folds = ceil(depth / side) * ceil(product.filters / side)
        exact += round(layer.forward_s * 1e9) == folds * (pixels + side + min(depth, side))
    assert exact == 41
    assert round(workload.published[-1].forward_s * 1e9) == 8 * 4 * (1 + 2 * side)  # one row for fc1000


def test_the_layers_of_dlrm_take_the_cycles_of_512_samples_on_the_same_array() -> None:
    workload = published("dlrm-published")
    for layer, group in zip(workload.published[1:], workload.groups[1:], strict=True):
        product = group[0].products[0]
        folds = ceil(product.channels / 256) * ceil(product.filters / 256)
        assert round(layer.forward_s * 1e9) == folds * (512 + 256 + 2 * min(product.filters, 256))


def test_no_batch_but_the_published_one_has_times() -> None:
    assert published("resnet50-published").layers(npu(), 32) == published("resnet50-published").published
    with pytest.raises(InputError, match="leave it at 32"):
        load_workload("resnet50-published").layers(npu(), 64)
    assert not set(PUBLISHED) & set(WORKLOADS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_layer_is_slowed_by_its_own_operators(name: str) -> None:
    workload = published(name)
    slow, none = layers_under(workload, npu(), ENDPOINTS["comm-opt"])
    assert none is None
    left = ENDPOINTS["comm-opt"].leaves(npu())
    factors = set()
    for layer, slower, group in zip(workload.published, slow, workload.groups, strict=True):
        whole, less = (
            [
                sum(times)
                for times in zip(
                    *(one.seconds(operator, workload.batch, "fp16") for operator in group), strict=True
                )
            ]
            for one in (npu(), left)
        )
        assert slower.forward_s / layer.forward_s == pytest.approx(less[0] / whole[0])
        assert slower.backward_s / layer.backward_s == pytest.approx(less[1] / whole[1])
        assert slower.size_bytes == layer.size_bytes
        factors.add(round(less[0] / whole[0], 6))
    assert len(factors) > 1  # it is not one factor for the whole model


shares = st.integers(0, 79)
bandwidths = st.integers(1, 899).map(lambda gbs: gbs * 10**9)


@given(shares, bandwidths)
def test_no_layer_is_slowed_by_more_than_what_was_taken(processors: int, memory_bandwidth: int) -> None:
    endpoint = Endpoint("mine", "", processors, memory_bandwidth)
    workload = published("dlrm-published")
    most = max(80 / (80 - processors), 900e9 / (900e9 - memory_bandwidth))
    for layer, slower in zip(workload.published, layers_under(workload, npu(), endpoint)[0], strict=True):
        assert layer.forward_s <= slower.forward_s * (1 + 1e-12)
        assert slower.forward_s <= most * layer.forward_s * (1 + 1e-12)
        assert layer.backward_s <= slower.backward_s * (1 + 1e-12)
        assert slower.backward_s <= most * layer.backward_s * (1 + 1e-12)


def test_what_takes_nothing_leaves_the_published_times() -> None:
    workload = published("resnet50-published")
    for name in ("free", "ideal", "no-overlap"):
        assert layers_under(workload, npu(), ENDPOINTS[name]) == (workload.published, None)


def test_a_batch_normalisation_is_bound_by_memory_and_slows_its_convolution() -> None:
    seconds = []
    for grouping in ("convolution", "normalised", "layer"):
        layers, _ = layers_under(resnet50_grouped(grouping), npu(), ENDPOINTS["comm-opt"])
        seconds.append(forward_seconds(layers) + backward_seconds(layers))
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[1]


@pytest.mark.parametrize("name", ["resnet50", "resnet50-published"])
def test_while_sending_keeps_the_whole_times_and_gives_the_factors_beside_them(name: str) -> None:
    workload = load_workload(name)
    whole, factors = layers_under(workload, npu(), find_endpoint("ace:while-sending"), dtype="fp16")
    always, _ = layers_under(workload, npu(), find_endpoint("ace"), dtype="fp16")
    assert whole == workload.layers(npu(), dtype="fp16")
    assert factors is not None
    for number, (layer, slower) in enumerate(zip(whole, always, strict=True)):
        assert layer.forward_s * factors["forward", number] == pytest.approx(slower.forward_s)
        assert layer.backward_s * factors["backward", number] == pytest.approx(slower.backward_s)


def test_a_part_of_backward_is_not_more_than_backward() -> None:
    layer = Layer("a", 8, 1.0, 2.0, weight_gradient_s=0.5)
    assert slow_down(layer, 1.0, 3.0).weight_gradient_s == 1.5
    with pytest.raises(InputError, match="that is a part of it"):
        replace(layer, weight_gradient_s=2.5)
