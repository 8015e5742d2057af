"""Devices: a roofline whose parts can be told apart, and an accelerator counted cycle by cycle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError
from weft.topology import load_topology
from weft.topology.kinds import KINDS
from weft.training.devices import DEVICES, Device, default_device, find_device
from weft.training.systolic_array import SystolicArray
from weft.training.workloads import Operator, Product, load_workload
from weft.training.workloads.operators import linear, pointwise

CYCLES = {
    # forward, gradient of inputs, gradient of weights: the authors' simulator, one sample
    "alexnet": (25_217_015, 44_522_651, 25_196_426),
    "alphagozero": (398_990, 487_396, 362_380),
    "fasterrcnn": (3_715_357, 9_848_211, 3_462_852),
    "googlenet": (1_468_034, 6_527_530, 1_391_290),
    "resnet50": (3_745_827, 10_216_586, 3_453_223),
    "ncf": (552_265, 345_297, 552_352),
    "transformer": (3_561_312, 3_559_925, 3_561_104),
}
MEASURED = (
    # Device, format, model, options, samples per second of one GPU: the best that docs/workloads.md has for
    # convolutional networks, with sources. Nothing as good is known to us for transformers.
    ("rtx2080ti", "fp32", "resnet50", {}, 294),
    ("v100", "fp32", "resnet50", {}, 405),
    ("rtx2080ti", "fp32", "inception-v4", {"image": 299}, 79),
    ("v100", "fp32", "inception-v4", {"image": 299}, 112),
    ("v100", "fp16", "resnet50", {}, 1270),
    ("a100", "fp16", "resnet50", {}, 2600),
)


def array() -> SystolicArray:
    device = find_device("multitree-array")
    assert isinstance(device, SystolicArray)
    return device


def gpu() -> Device:
    device = find_device("v100")
    assert isinstance(device, Device)
    return device


def total(device: SystolicArray, name: str) -> tuple[int, ...]:
    operators = load_workload(f"multitree-{name}").operators
    counts = [device.cycles(product) for operator in operators for product in operator.products]
    return tuple(sum(column) for column in zip(*counts, strict=True))


@pytest.mark.parametrize(("name", "cycles"), CYCLES.items())
def test_cycles_of_multitrees_networks_equal_its_authors_simulator(
    name: str, cycles: tuple[int, int, int]
) -> None:
    assert total(array(), name) == cycles


@pytest.mark.parametrize(("name", "cycles"), CYCLES.items())
def test_layers_take_the_seconds_of_those_cycles(name: str, cycles: tuple[int, int, int]) -> None:
    layers = load_workload(f"multitree-{name}").layers(array())
    assert sum(layer.forward_s for layer in layers) == pytest.approx(cycles[0] / 1e9)
    assert sum(layer.backward_s for layer in layers) == pytest.approx((cycles[1] + cycles[2]) / 1e9)


@pytest.mark.parametrize("name", CYCLES)
def test_the_short_formula_is_within_one_percent(name: str) -> None:
    short = total(replace(array(), exact=False), name)
    assert sum(short) == pytest.approx(sum(CYCLES[name]), rel=0.01)


def test_samples_beyond_one_per_processing_element_take_another_round() -> None:
    workload = load_workload("multitree-ncf")
    (first, *_), (full, *_), (more, *_) = (workload.layers(array(), batch=batch) for batch in (1, 16, 17))
    assert first.forward_s == full.forward_s
    assert more.forward_s == 2 * full.forward_s


shapes = st.builds(
    Product,
    st.integers(3, 20),
    st.integers(3, 20),
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
)


@given(shapes)
def test_an_array_is_never_faster_than_all_its_multipliers(product: Product) -> None:
    forward, inputs, weights = array().cycles(product)
    multipliers = 32 * 32
    window = product.kernel_height * product.kernel_width
    assert forward * multipliers >= product.flops / 2
    assert weights * multipliers >= product.flops / 2
    pixels = product.height * product.width
    assert inputs * multipliers >= pixels * product.channels * window * product.filters


def test_an_operator_takes_what_is_longer_of_computing_and_moving_and_its_launches() -> None:
    device = replace(gpu(), core_efficiency=0.5, memory_efficiency=0.25, launch_s=1e-6)
    heavy = Operator("heavy", products=(Product(1000, 1, 1000, 1000),), forward_elements=1)
    forward, backward = device.seconds(heavy, 1, "fp32")
    assert forward == pytest.approx(2e9 / (15.7e12 * 0.5) + 1e-6)
    assert backward == pytest.approx(4e9 / (15.7e12 * 0.5) + 1e-6)
    wide = pointwise("wide", 10**6)
    forward, backward = device.seconds(wide, 1, "fp16")
    assert forward == pytest.approx(4e6 / (900e9 * 0.25) + 1e-6)
    assert backward == pytest.approx(6e6 / (900e9 * 0.25) + 1e-6)


def test_tensor_cores_count_for_every_format_but_fp32() -> None:
    device = replace(gpu(), core_efficiency=0.5, tensor_efficiency=0.25, launch_s=0.0)
    heavy = Operator("heavy", products=(Product(1000, 1, 1000, 1000),))
    assert device.seconds(heavy, 1, "fp16")[0] == pytest.approx(2e9 / (125e12 * 0.25))


def test_an_operator_without_work_takes_no_time() -> None:
    assert gpu().seconds(pointwise("add", 10, 2, 0), 1, "fp32")[1] == 0


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_a_share_of_a_device_is_slower_by_what_was_taken(compute: float, memory: float) -> None:
    device = replace(gpu(), launch_s=0.0)
    less = device.share(compute=compute, memory_bandwidth=memory)
    busy = linear("busy", 4096, 4096, rows=4096)
    wide = pointwise("wide", 10**6)
    assert less.seconds(wide, 1, "fp32")[0] == pytest.approx(device.seconds(wide, 1, "fp32")[0] / memory)
    longer = less.seconds(busy, 1, "fp32")[0] / device.seconds(busy, 1, "fp32")[0]
    assert 1 / compute - 1e-9 <= longer or longer == pytest.approx(1 / compute)
    assert longer <= max(1 / compute, 1 / memory) + 1e-9


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1, float("nan")])
def test_a_share_is_above_nothing_and_at_most_all(share: float) -> None:
    with pytest.raises(InputError, match="above 0 to 1"):
        gpu().share(compute=share)
    with pytest.raises(InputError, match="above 0 to 1"):
        gpu().share(memory_bandwidth=share)


def test_the_array_has_no_memory_to_share() -> None:
    assert array().share() == array()
    with pytest.raises(InputError, match="such as ace-npu"):
        array().share(memory_bandwidth=0.5)


@pytest.mark.parametrize(("device", "dtype", "name", "options", "rate"), MEASURED)
def test_rates_of_real_gpus_are_within_40_percent(
    device: str, dtype: str, name: str, options: dict[str, int], rate: float
) -> None:
    workload = load_workload(name, **options)
    layers = workload.layers(find_device(device), dtype=dtype)
    seconds = sum(layer.forward_s + layer.backward_s for layer in layers)
    assert workload.batch / seconds == pytest.approx(rate, rel=0.4)


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_says_where_its_figures_are_from(name: str) -> None:
    device = find_device(name)
    assert device.name == name
    assert device.source


def test_an_unknown_device_is_named_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match=r"did you mean v100.*Known: v100"):
        find_device("v10")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flops_per_s": ()}, "no number format"),
        ({"flops_per_s": (("fp7", 1.0),)}, "'fp7' is unknown"),
        ({"memory_bytes_per_s": 0.0}, "above 0"),
        ({"units": 0}, "above 0"),
        ({"tensor_efficiency": 1.5}, "at most 1"),
        ({"launch_s": -1.0}, "at least 0 s"),
    ],
)
def test_figures_that_cannot_be_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(gpu(), **change)  # type: ignore[arg-type]


PRESETS = {
    "dgx-a100": "a100",
    "dgx-h100": "h100",
    "dgx-b200": "b200",
    "gb200-nvl72": "gb200",
    "mi300x": "mi300x",
    "tpu-v4": "tpu-v4",
    "tpu-v5p": "tpu-v5p",
    "trn2": "trainium2",
    "spark-ring": "gb10",
}

GENERAL = {"rails", "leafspine", "threetier", "nvlink", "xgmi", "pcie"}
"""Kinds with rated links that name no product."""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_its_own_device_with_a_source(preset: str) -> None:
    device = default_device(load_topology(f"{preset}:{KINDS[preset].example}").name)
    assert isinstance(device, Device)
    assert device.name == PRESETS[preset]
    assert device.source
    assert device.memory_bytes


def test_every_preset_with_rated_links_has_a_device_or_says_why_not() -> None:
    rated = {
        name for name, kind in KINDS.items() if "speed" in kind.options.split(", ") and name not in GENERAL
    }
    assert rated == {*PRESETS, "mac-mesh"}
    with pytest.raises(InputError, match=r"mac-mesh has no device of its own.*give --device, one of v100"):
        default_device("mac-mesh:4")
