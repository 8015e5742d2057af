"""Tracing a model: what is counted equals formulas, torch's own counter, and Weft's own workloads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from weft.errors import InputError
from weft.torch.internals import without_fused_kernels
from weft.torch.tracing import trace
from weft.training.devices import find_device
from weft.training.workloads import Operator, load_workload
from weft.training.workloads.operators import attention, convolution, linear, lstm

SCRIPT = """
import torch
from beside import WIDTH


def make_model():
    return torch.nn.Linear(WIDTH, 3), torch.zeros(5, WIDTH)


def alone():
    return make_model()[0]


def broken():
    model = make_model()
    raise RuntimeError("no such\\nluck")


def leaves():
    raise SystemExit(3)


def large():
    from weft.errors import LimitError

    raise LimitError("too large for me")


number = 3
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 7\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(autouse=True)
def _nothing_stays_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "beside", raising=False)


def flops(module: nn.Module, example: torch.Tensor) -> tuple[int, int]:
    """Forward and backward by torch's own counter; the input needs a gradient as inner layers' does."""
    example.requires_grad_()
    with sdpa_kernel(SDPBackend.MATH), without_fused_kernels():
        with FlopCounterMode(display=False) as forward:
            found = module(example)
            out = found[0] if isinstance(found, tuple) else found
        with FlopCounterMode(display=False) as backward:
            out.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


class Attending(nn.Module):
    """Attention's products alone; queries, keys and values are the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (4, 8)).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize(
    ("module", "shape", "operator", "skipped"),
    [
        (
            nn.Conv2d(6, 10, (3, 5), stride=2, padding=(1, 2)),
            (4, 6, 17, 19),
            convolution("conv", (17, 19, 6), 10, (3, 5), stride=2, padding=(1, 2), bias=True),
            0,
        ),
        (nn.Linear(12, 7), (4, 5, 12), linear("fc", 12, 7, rows=5), 0),
        # Nobody needs the gradient of the state that an LSTM begins with, and torch leaves it out.
        (nn.LSTM(6, 8, batch_first=True), (4, 9, 6), lstm("lstm", 6, 8, 9), 2 * 4 * 8 * 32),
        (
            nn.LSTM(6, 8, batch_first=True, bidirectional=True),
            (4, 9, 6),
            lstm("lstm", 6, 8, 9, directions=2),
            2 * 2 * 4 * 8 * 32,
        ),
        (Attending(), (4, 9, 32), attention("attention", 9, 32, 4), 0),
    ],
    ids=["convolution", "linear", "lstm", "lstm-both-ways", "attention"],
)
def test_flops_of_operators_are_those_that_torch_counts(
    module: nn.Module, shape: tuple[int, ...], operator: Operator, skipped: int
) -> None:
    forward, backward = flops(module, torch.randn(shape))
    assert operator.forward(4, 4).flops == forward
    assert operator.backward(4, 4).flops == backward + skipped
    assert operator.tensors == tuple(parameter.numel() for parameter in module.parameters())


def test_groups_divide_the_flops_of_a_convolution() -> None:
    # Forward only: torch's counter takes the gradient of weights in groups for one without groups.
    forward, _ = flops(nn.Conv2d(6, 10, 3, groups=2), torch.randn(4, 6, 17, 19))
    assert convolution("conv", (17, 19, 6), 10, (3, 3), groups=2).forward(4, 4).flops == forward


class Bottleneck(nn.Module):
    """The first block of ResNet-50, from the picture on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.inner = nn.Conv2d(64, 64, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.pool(torch.relu(self.bn1(self.conv1(x)))))


def test_traced_layers_agree_with_the_workload_of_the_same_model() -> None:
    traced = trace(lambda: (Bottleneck(), torch.zeros(2, 3, 224, 224)))
    known = load_workload("resnet50")
    device = find_device("v100")
    found = traced.layers(device, batch=64)
    expected = known.layers(device)[:3]
    assert [layer.name for layer in found] == ["conv1", "bn1", "inner"]
    assert [layer.tensors for layer in found] == [layer.tensors for layer in expected]
    assert found[0].forward_s == pytest.approx(expected[0].forward_s, rel=0.02)
    assert found[0].backward_s == pytest.approx(expected[0].backward_s, rel=0.02)
    assert found[1].forward_s == pytest.approx(expected[1].forward_s, rel=0.3)
    assert found[2].forward_s == pytest.approx(device.seconds(known.modules()[2][0], 64, "fp32")[0], rel=0.02)


def test_work_counts_per_sample_whatever_the_example_holds() -> None:
    one, many = (trace(lambda size=size: (nn.Linear(64, 32), torch.zeros(size, 64))) for size in (1, 8))
    assert one.operators[0].forward(8, 4) == many.operators[0].forward(8, 4)
    assert (one.batch, many.batch) == (1, 8)


def test_every_transformer_parameter_belongs_to_a_layer() -> None:
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    workload = trace(lambda: (model, torch.zeros(3, 5, 32)))
    assert workload.parameters == sum(parameter.numel() for parameter in model.parameters())
    names = [layer.name for layer in workload.layers(find_device("v100"))]
    assert names == ["self_attn", "norm1", "linear1", "linear2", "norm2"]
    forward, _ = flops(model, torch.zeros(3, 5, 32))
    assert sum(operator.forward(3, 4).flops for operator in workload.operators) == pytest.approx(
        forward, rel=0.01
    )


def test_a_layer_of_bert_has_the_flops_that_torch_counts_for_one() -> None:
    model = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    forward, backward = flops(model, torch.zeros(1, 64, 768))
    name = "encoder.layer.3."
    operators = [op for op in load_workload("bert-base").operators if op.name.startswith(name)]
    assert sum(operator.forward(1, 4).flops for operator in operators) == forward
    assert sum(operator.backward(1, 4).flops for operator in operators) == backward
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert sum(sum(operator.tensors) for operator in operators) == parameters


class Tied(nn.Module):
    """An output that is its own embedding, and a table that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(requires_grad=False)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.out(self.frozen(self.embedding(tokens))) * scale


def test_a_tied_tensor_counts_once_and_a_frozen_one_not_at_all() -> None:
    example = {"tokens": torch.zeros(2, 5, dtype=torch.long), "scale": 2.0}
    workload = trace(lambda: (Tied(), example))
    assert (workload.tensors, workload.parameters) == (1, 66)
    (layer,) = workload.layers(find_device("v100"))
    assert layer.name == "embedding"
    assert sum(operator.forward(2, 4).flops for operator in workload.operators) == 2 * 2 * 5 * (36 + 66)


def test_shapes_that_are_not_known_are_no_food_for_the_array() -> None:
    workload = trace(lambda: (nn.Linear(8, 4), torch.zeros(2, 8)))
    with pytest.raises(InputError, match="take another device"):
        workload.layers(find_device("multitree-array"))


def test_a_model_on_the_meta_device_is_traced_without_computing() -> None:
    def make(device: str) -> tuple[nn.Module, torch.Tensor]:
        with torch.device(device):
            model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8))
            return model, torch.zeros(4, 64)

    real, meta = (trace(lambda device=device: make(device)) for device in ("cpu", "meta"))
    assert real.operators == meta.operators
    assert real.operators[0].forward(1, 4).flops == 2 * 64 * 32


def test_tracing_leaves_no_hook_behind() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    trace(lambda: (model, torch.zeros(2, 8)))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_script_is_traced_with_what_lies_beside_it(script: Path) -> None:
    before = list(sys.path)
    workload = trace(f"{script}:make_model")
    assert (workload.batch, workload.parameters) == (5, 24)
    assert sys.path == before
    assert not [name for name in sys.modules if name.startswith("weft_traced")]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("script.py", "names no function"),
        ("nowhere.py:make_model", "there is no script nowhere.py"),
        ("{script}:other", "no function 'other'; it has make_model, alone, broken"),
        ("{script}:number", "no function 'number'"),
        ("{script}:alone", "returned a model alone.*return \\(model, example_input\\)"),
        ("{script}:broken", r"script\.py:16: RuntimeError: no such luck"),
        ("{script}:leaves", r"script\.py:20: SystemExit: 3"),
        ("{script}:large", r"script\.py:26: LimitError: too large for me"),
    ],
)
def test_what_a_script_gets_wrong_is_said_in_one_line(script: Path, target: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        trace(target.format(script=script))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n1 / 0\n", r"cannot be imported: .*wrong\.py:2: ZeroDivisionError"),
        ("def make_model(:\n", r"cannot be imported: .*wrong\.py:1: SyntaxError"),
        ("import nothing_of_this_name\n", r"wrong\.py:1: ModuleNotFoundError: No module named"),
    ],
)
def test_a_script_that_cannot_be_imported_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        trace(f"{path}:make_model")
    assert "weft_traced_wrong" not in sys.modules


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (3, "returned int; return"),
        ((torch.zeros(3), nn.Linear(3, 3)), "returned tuple; return"),
        ((nn.Linear(3, 3), torch.tensor(3.0)), "failed: "),
        ((nn.Linear(3, 3), torch.zeros(2, 4)), "forward of the model of .* failed: RuntimeError: .*shapes"),
        ((nn.Identity(), "text"), "no tensor with samples"),
        ((nn.ReLU(), torch.zeros(2, 3)), "ReLU has no parameters"),
    ],
)
def test_what_is_no_model_with_an_input_is_refused(made: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace(lambda: made)
