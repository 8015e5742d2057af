"""Training on a group of backend weft, and with the hook, gives what one process alone gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.groups import run_group

MODEL = """
import copy, json
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
alone = copy.deepcopy(model)
data, wanted = torch.randn(5, 8 * N, 20), torch.randn(5, 8 * N, 5)
mine = slice(8 * R, 8 * (R + 1))

def loss(net, x, y):
    return (net(x) - y).pow(2).mean()

def reference(make):
    optimizer = make(alone.parameters())
    for x, y in zip(data, wanted):
        optimizer.zero_grad()
        loss(alone, x, y).backward()
        optimizer.step()

def compare(parameters, tolerance=2e-6):
    for found, expected in zip(parameters, alone.parameters(), strict=True):
        assert torch.allclose(found, expected, atol=tolerance, rtol=0), (found - expected).abs().max()
        everybody = [torch.empty_like(found) for _ in range(N)]
        dist.all_gather(everybody, found.detach())
        assert all(torch.equal(found, other) for other in everybody)

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
"""

DDP = """
named = ("static_graph", "gradient_as_bucket_view", "find_unused_parameters")
for options in ({}, {"bucket_cap_mb": 0.005}, *({name: True} for name in named)):
    net = copy.deepcopy(model)
    ddp = DDP(net, **options)
    if WORDS:
        ddp.register_comm_hook(None, weft.torch.ddp_hook(**json.loads(WORDS[0])))
    optimizer = sgd(net.parameters())
    for x, y in zip(data, wanted):
        optimizer.zero_grad()
        loss(ddp, x[mine], y[mine]).backward()
        optimizer.step()
    alone.load_state_dict(model.state_dict())
    reference(sgd)
    compare(net.parameters(), TOLERANCE)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, MODEL + "TOLERANCE = 2e-6\n" + DDP)


@pytest.mark.parametrize(
    ("backend", "options", "tolerance"),
    [
        ("gloo", "{}", 2e-6),
        ("weft", "{}", 2e-6),
        ("weft", '{"algorithm": "ring", "transport": "tcp"}', 2e-6),
        ("gloo", '{"wire": "fp16"}', 1e-3),
        ("gloo", '{"wire": "bf16"}', 1e-2),
    ],
)
def test_ddp_with_the_hook(tmp_path: Path, backend: str, options: str, tolerance: float) -> None:
    run_group(tmp_path, 2, f"{MODEL}TOLERANCE = {tolerance}\n{DDP}", options, backend=backend)


# Buckets are taken for an accelerator's, whose work is done at once; each step is recorded.
ELSEWHERE = """
import contextlib
import weft.torch.hook

done = []

class Module:
    class Event:
        def record(self, stream):
            done.append("recorded")
        def synchronize(self):
            done.append("waited")

    class Stream:
        def __init__(self, device=None):
            pass
        def synchronize(self):
            done.append("back")

    stream = staticmethod(lambda stream: contextlib.nullcontext())
    current_stream = staticmethod(lambda device: None)

weft.torch.hook._on_host = lambda buffer: False
torch.get_device_module = lambda device=None: Module
empty = torch.empty
torch.empty = lambda *sizes, pin_memory=False, **options: empty(*sizes, **options)
"""


@pytest.mark.parametrize(("options", "tolerance"), [("{}", 2e-6), ('{"wire": "bf16"}', 1e-2)])
def test_the_hook_takes_buckets_of_an_accelerator_to_the_host_and_back(
    tmp_path: Path, options: str, tolerance: float
) -> None:
    check = """
assert done.count("recorded") == done.count("waited") == done.count("back") > 0, done
"""
    run_group(
        tmp_path, 2, f"{ELSEWHERE}{MODEL}TOLERANCE = {tolerance}\n{DDP}{check}", options, backend="gloo"
    )


SHARDED = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)

reference(adam)
net = copy.deepcopy(model)
ddp = DDP(net)
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
for x, y in zip(data, wanted):
    optimizer.zero_grad()
    loss(ddp, x[mine], y[mine]).backward()
    optimizer.step()
compare(net.parameters(), 1e-5)

net = copy.deepcopy(model)
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(net)
optimizer = adam(net.parameters())
for x, y in zip(data, wanted):
    optimizer.zero_grad()
    loss(net, x[mine], y[mine]).backward()
    optimizer.step()
compare([parameter.full_tensor() for parameter in net.parameters()], 1e-5)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_zero_and_fsdp2(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, MODEL + SHARDED)


HOOK = """
from torch.nn.parallel import DistributedDataParallel as DDP
try:
    weft.torch.ddp_hook(wire="fp8")
except weft.InputError as error:
    assert "expected 'fp16', 'bf16' or None" in str(error)
else:
    raise AssertionError
half = [dist.new_group([0, 1]), dist.new_group([2, 3])][R // 2]
net = torch.nn.Linear(3, 3).to(torch.bfloat16)
ddp = DDP(net, process_group=half)
ddp.register_comm_hook(None, weft.torch.ddp_hook(group=half))
ddp(torch.full((1, 3), float(R), dtype=torch.bfloat16)).sum().backward()
assert (net.weight.grad == (0.5 if R < 2 else 2.5)).all(), net.weight.grad
dist.barrier()  # rank 0 serves the store that the others still meet through
"""


@pytest.mark.parametrize("backend", ["gloo", "weft"])
def test_the_hook_on_some_of_the_ranks(tmp_path: Path, backend: str) -> None:
    run_group(tmp_path, 4, HOOK, backend=backend)
