"""What a job keeps in the memory of a device follows from published formulas, and advice from what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft import train
from weft.errors import InputError
from weft.training import policies
from weft.training.device_memory import advise_on_memory, count_memory, zero_stage
from weft.training.devices import find_device
from weft.training.workloads import load_workload

H100 = find_device("h100")
LLAMA = load_workload("llama2-7b")


@pytest.mark.parametrize(("dtype", "sizes"), [("bf16", (2, 2, 12)), ("fp32", (4, 4, 8)), ("tf32", (4, 4, 8))])
def test_the_model_takes_sixteen_bytes_a_parameter_with_adam(dtype: str, sizes: tuple[int, ...]) -> None:
    found = count_memory(LLAMA, H100, 1, dtype, 64)
    parts = (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes)
    assert parts == tuple(size * LLAMA.parameters for size in sizes)


def test_zero_divides_state_then_gradients_then_parameters() -> None:
    stages = [count_memory(LLAMA, H100, 1, None, 64, stage) for stage in range(4)]
    one = LLAMA.parameters
    assert [found.optimizer_bytes for found in stages] == [12 * one] + [12 * one // 64] * 3
    assert [found.gradient_bytes for found in stages] == [2 * one] * 2 + [2 * one // 64] * 2
    assert [found.parameter_bytes for found in stages] == [2 * one] * 3 + [2 * one // 64]


def test_activations_of_a_gpt_layer_are_those_of_the_formula() -> None:
    # Korthikanti et al.: a layer keeps sbh (34 + 5 a s / h) bytes; behind the layers come 4 sbh (1 + v / h).
    sequence, width, heads, batch, words = 512, 1024, 16, 3, 50_257
    found = count_memory(load_workload("gpt2-medium", sequence=sequence), H100, batch, "fp16", 1)
    layer = sequence * batch * width * 34 + 5 * heads * sequence**2 * batch
    assert found.activation_bytes == 24 * layer + 4 * sequence * batch * (width + words)
    assert "2205.05198" in found.activation_source


def test_activations_grow_with_batch_and_sequence() -> None:
    one = count_memory(LLAMA, H100, 1, None, 8).activation_bytes
    assert one is not None
    assert one == pytest.approx(20.7e9, rel=0.01)
    assert count_memory(LLAMA, H100, 4, None, 8).activation_bytes == 4 * one
    half = count_memory(load_workload("llama2-7b", sequence=2048), H100, 1, None, 8).activation_bytes
    assert half == one // 2


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    resnet = load_workload("resnet50")
    assert count_memory(resnet, find_device("ace-npu"), 1, None, 4).fits is None
    assert count_memory(resnet, H100, 64, None, 4).fits is None  # its activations are not counted
    assert count_memory(LLAMA, H100, 1, None, 4).fits is False
    assert count_memory(load_workload("bert-base"), H100, 64, None, 4).fits is True
    tiny = replace(H100, memory_bytes=10**8)
    assert count_memory(resnet, tiny, 64, None, 4).fits is False  # whatever its activations take


def test_advice_names_the_first_stage_that_fits() -> None:
    assert advise_on_memory(LLAMA, H100, 1, None, 64, 0).endswith("needs 35.7 GB: --policy zero")
    small = replace(H100, memory_bytes=25 * 10**9)
    assert advise_on_memory(LLAMA, small, 1, None, 64, 0).endswith("--policy zero --option stage=3")
    assert advise_on_memory(LLAMA, small, 1, None, 64, 2).endswith("--policy zero --option stage=3")
    assert "a smaller --batch" in advise_on_memory(LLAMA, small, 8, None, 64, 0)
    assert "--batch" not in advise_on_memory(LLAMA, replace(H100, memory_bytes=10**9), 1, None, 64, 0)
    assert advise_on_memory(load_workload("bert-base"), H100, 64, None, 4, 0) == ""


def test_a_job_under_zero_counts_its_own_stage() -> None:
    zero = policies.find("zero")
    assert [zero_stage(zero, options) for options in ({}, {"stage": 3})] == [2, 3]
    assert zero_stage(policies.find("ddp"), {}) == 0
    whole = train("bert-base", "switch:4", policy="ddp", algorithm="ring").memory
    divided = train("bert-base", "switch:4", policy="zero", algorithm="ring").memory
    assert divided.optimizer_bytes == -(-whole.optimizer_bytes // 4)


def test_every_gpu_has_a_memory_and_none_is_empty() -> None:
    assert {name: getattr(find_device(name), "memory_bytes", None) for name in ("v100", "a100", "h100")} == {
        "v100": 32 * 10**9,
        "a100": 80 * 10**9,
        "h100": 80 * 10**9,
    }
    with pytest.raises(InputError, match="a memory of 0 bytes"):
        replace(H100, memory_bytes=0)
