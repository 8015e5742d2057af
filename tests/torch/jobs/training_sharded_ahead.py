"""FSDP2 whose collectives run behind computing gives the same bits as plain FSDP2.

Run by tests/torch/test_training.py.
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from training_model import data, loss, mine, model, wanted

import weft
import weft.torch

_BFLOAT16 = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.float32)


def sharded(**options):
    net = copy.deepcopy(model)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    fully_shard(net, **options)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2)


def train(net, optimizer, *, parts=1, synchronized=True, clip=None, evaluate=False):
    """Return the losses of some steps, and the parameters at the end."""
    losses = []
    for x, y in zip(data, wanted, strict=True):
        optimizer.zero_grad()
        for part in range(parts):
            net.set_requires_gradient_sync(synchronized or part == parts - 1)
            found = loss(net, x[mine][part::parts], y[mine][part::parts])
            found.backward()
        if clip is not None:
            losses.append(torch.nn.utils.clip_grad_norm_(net.parameters(), clip).full_tensor().item())
        optimizer.step()
        losses.append(found.item())
        if evaluate:
            with torch.no_grad():
                losses.append(loss(net, x[mine], y[mine]).item())
    return losses, [parameter.full_tensor() for parameter in net.parameters()]


CASES: dict[str, tuple[dict, dict]] = {
    "plain": ({}, {}),
    "whole between the passes": ({"reshard_after_forward": False}, {}),
    "accumulated shards": ({}, {"parts": 2}),
    "accumulated here": ({}, {"parts": 2, "synchronized": False}),
    "clipped": ({}, {"clip": 0.1}),
    "evaluated": ({}, {"evaluate": True}),
    "bfloat16": ({"mp_policy": _BFLOAT16}, {}),
}
for name, (options, how) in CASES.items():
    expected = train(*sharded(**options), **how)
    net, optimizer = sharded(**options)
    overlap = weft.torch.overlap_fsdp(net, optimizer, ahead=1, in_flight=1)
    found = train(net, optimizer, **how)
    assert found[0] == expected[0], f"{name}: {found[0]}, expected {expected[0]}"
    assert all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True)), name
    first = [] if how.get("evaluate") else [net[0], net[2]]  # the model itself has no parameters of its own
    assert [unit for unit in overlap.gathered if unit is not net][:1] == first[:1], name
    overlap.close()
    assert not overlap.gathered

net, optimizer = sharded()
overlap = weft.torch.overlap_fsdp(net, optimizer)
train(net, optimizer)
state = {name: value.clone() for name, value in net.state_dict().items()}
net.load_state_dict(state)  # drops what was gathered before
assert not overlap.gathered
x, y = data[0][mine], wanted[0][mine]
before = loss(net, x, y)
before.backward()
optimizer.step()
assert overlap.gathered
overlap.discard()
with torch.no_grad():
    for parameter in net.parameters():
        parameter.zero_()
assert not net(x).any()
loss(net, x, y).backward()
optimizer.step()
with torch.no_grad():
    for parameter in net.parameters():
        parameter.zero_()
try:
    net(x)
except weft.InputError as refused:
    assert "discard()" in str(refused)
else:
    raise AssertionError("ran with parameters as they were before")
assert not isinstance(model, FSDPModule)
for wrong in (
    lambda: weft.torch.overlap_fsdp(model, optimizer),
    lambda: weft.torch.overlap_fsdp(net, optimizer, ahead=0),
):
    try:
        wrong()
    except weft.InputError:
        continue
    raise AssertionError("taken")
overlap.close()
dist.barrier()
dist.destroy_process_group()
