"""Workloads have the parameters of the real models, and their work follows from their shapes."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError, LimitError
from weft.training import Layer, LayerExchange
from weft.training.devices import find_device
from weft.training.layers import check_layers
from weft.training.workloads import WORKLOADS, Workload, load_workload
from weft.training.workloads.operators import (
    Product,
    convolution,
    embedding,
    linear,
    lstm,
    normalisation,
    pointwise,
    spread_embeddings,
)

COUNTS = {
    # tensors and parameters: of DeAR's five models as its code has them, of the others as published
    "resnet50": (161, 25_557_032),
    "densenet201": (604, 20_013_928),
    "inception-v4": (449, 42_679_816),
    "bert-base": (206, 110_111_042),
    "bert-large": (398, 336_232_258),
    "vgg16": (32, 138_357_544),
    "gpt2-medium": (292, 354_823_168),
    # MultiTree's seven
    "multitree-alexnet": (5, 3_745_824),
    "multitree-alphagozero": (8, 1_573_620),
    "multitree-fasterrcnn": (46, 13_258_944),
    "multitree-googlenet": (58, 6_854_208),
    "multitree-ncf": (8, 11_042_704),
    "multitree-resnet50": (54, 25_502_912),
    "multitree-transformer": (891, 77_418_328),
}
PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
GPU = find_device("v100")


@pytest.mark.parametrize(("name", "counts"), COUNTS.items())
def test_tensors_and_parameters_are_those_of_the_real_model(name: str, counts: tuple[int, int]) -> None:
    workload = load_workload(name)
    assert (workload.tensors, workload.parameters) == counts


@pytest.mark.parametrize(
    ("name", "multiplications"),
    [("resnet50", 4.09e9), ("densenet201", 4.29e9), ("vgg16", 15.47e9)],
)
def test_multiplications_are_those_that_torchvision_publishes(name: str, multiplications: float) -> None:
    workload = load_workload(name)
    flops = sum(operator.forward(1, 4).flops for operator in workload.operators)
    assert flops / 2 == pytest.approx(multiplications, rel=0.002)


def test_gnmt_with_four_layers_has_the_160_million_parameters_of_mlperf() -> None:
    assert load_workload("gnmt", layers=4).parameters == pytest.approx(160e6, rel=0.005)


def test_inception_has_the_modules_that_dear_counts() -> None:
    assert len(load_workload("inception-v4").layers(GPU)) == 299


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_becomes_layers_in_forward_order(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    device = find_device("multitree-array" if name.startswith("multitree") else "v100")
    layers = workload.layers(device)
    check_layers(layers)
    assert sum(layer.size_bytes for layer in layers) == 4 * workload.parameters
    assert sum(len(layer.tensors) for layer in layers) == workload.tensors
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in layers)
    names = [layer.name for layer in layers]
    assert len(set(names)) == len(names)
    heads = [operator.name for operator in workload.operators if operator.starts_layer]
    assert names == heads


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_operator_is_lost_between_layers(name: str) -> None:
    workload = load_workload(name)
    operators = [operator for module in workload.modules() for operator in module]
    assert operators == list(workload.operators)


@pytest.mark.parametrize("name", ["resnet50", "bert-large", "gnmt"])
def test_backward_of_products_is_twice_forward_but_for_what_reads_the_data(name: str) -> None:
    for operator in load_workload(name).operators:
        passes = 2 if operator.input_gradient else 1
        assert operator.backward(8, 4).flops == passes * operator.forward(8, 4).flops


def test_only_the_first_convolution_goes_without_the_gradient_of_its_input() -> None:
    operators = load_workload("resnet50").operators
    assert [operator.name for operator in operators if not operator.input_gradient] == ["conv1"]


def test_half_as_large_numbers_make_half_as_large_gradients() -> None:
    workload = load_workload("resnet50")
    whole, half = workload.layers(GPU), workload.layers(GPU, dtype="fp16")
    assert [layer.size_bytes for layer in whole] == [2 * layer.size_bytes for layer in half]


@given(st.integers(1, 200))
def test_a_larger_batch_takes_longer_but_less_than_in_proportion(batch: int) -> None:
    workload = load_workload("dlrm")
    once, twice = (workload.layers(GPU, batch=size) for size in (batch, 2 * batch))
    for one, two in zip(once, twice, strict=True):
        assert one.forward_s <= two.forward_s <= 2 * one.forward_s
        assert one.backward_s <= two.backward_s <= 2 * one.backward_s


def test_the_lookups_of_dlrm_are_exchanged_for_the_top_mlp_while_the_bottom_one_computes() -> None:
    layers = load_workload("dlrm").layers(find_device("ace-npu"))
    exchange = layers[0].exchange
    assert exchange is not None
    assert exchange.size_bytes == 512 * 26 * 128 * 2
    assert layers[exchange.needed_by].name == "top_l.0"
    assert layers[exchange.needed_by - 1].name == "bot_l.4"
    assert [layer.size_bytes for layer in layers if layer.exchange] == [0]


def test_what_multiplies_the_exchanged_vectors_belongs_to_the_layer_that_waits_for_them() -> None:
    modules = load_workload("dlrm").modules()
    (top,) = [module for module in modules if any(operator.name == "top_l.0" for operator in module)]
    assert [operator.name for operator in top[:2]] == ["interaction", "top_l.0"]


def test_longer_sequences_cost_attention_more_than_in_proportion() -> None:
    short, long = (load_workload("bert-base", sequence=length) for length in (64, 512))
    flops = [sum(op.forward(1, 4).flops for op in workload.operators) for workload in (short, long)]
    assert flops[1] > 8 * flops[0]
    assert long.parameters == short.parameters


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet5", {}, "did you mean resnet50"),
        ("?", {}, "known: resnet50"),
        ("resnet50", {"sequence": 3}, "no option 'sequence'; it has image"),
        ("multitree-ncf", {"image": 3}, "it has none"),
        ("resnet50", {"image": 0}, "at least 1"),
        ("resnet50", {"image": "224"}, "at least 1"),
        ("resnet50", {"image": True}, "at least 1"),
        ("inception-v4", {"image": 20}, "does not fit"),
        ("bert-base", {"sequence": 513}, "1 to its 512 positions"),
        ("gpt2-medium", {"sequence": 1025}, "1 to its 1024 positions"),
        ("gnmt", {"layers": 2}, "at least 3"),
    ],
)
def test_what_cannot_be_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        load_workload(name, **options)


def test_a_batch_has_samples_within_reason() -> None:
    workload = load_workload("resnet50")
    with pytest.raises(InputError, match="at least one sample"):
        workload.layers(GPU, batch=0)
    with pytest.raises(LimitError, match="samples of a batch"):
        workload.layers(GPU, batch=10**9)


def test_a_number_format_that_the_device_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(InputError, match=r"ace-npu does not compute in 'fp32'; expected one of fp16"):
        load_workload("resnet50").layers(find_device("ace-npu"), dtype="fp32")


def test_a_workload_without_parameters_is_none() -> None:
    with pytest.raises(InputError, match="nothing to train"):
        Workload("empty", "", (pointwise("relu", 10),), 1, "")


def test_options_are_bounded_before_anything_is_built() -> None:
    with pytest.raises(LimitError, match="layers of workload gnmt"):
        load_workload("gnmt", layers=10**8)


def test_an_exchange_is_for_an_operator_of_the_workload() -> None:
    lookups = spread_embeddings("tables", 2, 3, 1, needed_by="top")
    with pytest.raises(InputError, match="exchanged for top, which it lacks"):
        Workload("partial", "", (lookups, linear("bottom", 3, 3)), 1, "")


def test_operators_have_the_tensors_of_their_modules() -> None:
    assert convolution("conv", (8, 8, 4), 6, (3, 3), groups=2, bias=True).tensors == (6 * 2 * 9, 6)
    assert linear("tied", 3, 5, tied=True).tensors == (5,)
    assert lstm("lstm", 3, 5, 7, directions=2).tensors == (60, 100, 20, 20) * 2
    assert embedding("table", 10, 4, 3).tensors == (40,)
    assert normalisation("norm", 100, 4, over_batch=True).tensors == (4, 4)


def test_bytes_of_a_linear_layer_are_operands_and_results() -> None:
    operator = linear("fc", 3, 5, rows=2, bias=False)
    assert operator.forward(7, 4).bytes == 4 * (7 * (2 * 3 + 2 * 5) + 15)
    assert operator.backward(7, 4).bytes == 2 * operator.forward(7, 4).bytes


def test_groups_must_divide_channels_and_filters() -> None:
    with pytest.raises(InputError, match="multiples of its 3 groups"):
        convolution("conv", (8, 8, 4), 6, (3, 3), groups=3)


def test_a_product_without_a_size_is_none() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Product(0, 1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensors": (1, 2)}, "3 bytes and not 8"),
        ({"tensors": (9, -1)}, "a tensor of -1 bytes"),
        ({"exchange": LayerExchange(8, 1)}, "only one can be"),
    ],
)
def test_a_layer_does_not_contradict_itself(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layer("layer", 8, 0.1, 0.2, **arguments)  # type: ignore[arg-type]


def test_an_exchange_is_needed_by_a_later_layer() -> None:
    layers = [Layer("one", 0, 1.0, 1.0, exchange=LayerExchange(8, 2)), Layer("two", 8, 1.0, 1.0)]
    with pytest.raises(InputError, match="expected a later layer, 1 to 1"):
        check_layers(layers)
    with pytest.raises(InputError, match="neither is below 0"):
        LayerExchange(-1, 1)


def test_a_layer_that_does_not_name_its_tensors_is_one() -> None:
    assert Layer("layer", 8, 0.1, 0.2).tensor_bytes == (8,)
    assert Layer("layer", 0, 0.1, 0.2).tensor_bytes == ()
    assert Layer("layer", 8, 0.1, 0.2, tensors=(6, 2)).tensor_bytes == (6, 2)


def test_the_page_shows_what_is_computed() -> None:
    page = PAGE.read_text("utf-8")
    for name in WORKLOADS:
        workload = load_workload(name)
        layers = workload.layers(find_device("multitree-array" if name.startswith("multitree") else "v100"))
        flops = sum(operator.forward(1, 4).flops for operator in workload.operators)
        forward, backward = (
            sum(layer.forward_s for layer in layers),
            sum(layer.backward_s for layer in layers),
        )
        row = (
            f"| `{name}` | {len(layers)} | {workload.tensors} | {workload.parameters:,} | {workload.batch} "
            f"| {flops / 1e9:.3g} | {forward * 1e3:.3g} + {backward * 1e3:.3g} |"
        )
        assert row in page


def test_the_example_of_the_page_runs() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert (failed, tried > 5) == (0, True)
