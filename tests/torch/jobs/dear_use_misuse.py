"""What would be silently wrong is refused.

Run by tests/torch/test_dear_use.py.
"""

import torch
import torch.distributed as dist
from dear_use_model import batch, flat, make, refused
from support.torch_rank import R
from torch import nn

import weft
import weft.torch

SGD = torch.optim.SGD


def fresh(**words):
    model = make()
    words = {"policy": "dear", "fusion": "3kB", "lr": 0.1, **words}
    return model, weft.torch.DeAR(model, SGD, **words)


x, y = batch(0)


def loss(model):
    return nn.functional.mse_loss(model(x), y)


model, optimizer = fresh()
loss(model).backward()
nn.utils.clip_grad_norm_(model.parameters(), 0.1)
refused(optimizer.step, "clip_grad_norm_")

# Also while it still measures, without overlap.
model = make()
optimizer = weft.torch.DeAR(model, SGD, lr=0.1)
loss(model).backward()
nn.utils.clip_grad_norm_(model.parameters(), 0.1)
refused(optimizer.step, "clip_grad_norm_")
optimizer.close()
model = make()
optimizer = weft.torch.DeAR(model, SGD, lr=0.1)
loss(model).backward()
refused(lambda: loss(model).backward(), "no_sync")
optimizer.close()
refused(lambda: weft.torch.DeAR(nn.parallel.DistributedDataParallel(make()), SGD, lr=0.1), "model.module")
refused(lambda: weft.torch.DeAR(make().parameters(), SGD, lr=0.1), "expected the model first")
refused(lambda: weft.torch.DeAR(model, SGD(model.parameters()), lr=0.1), "give the class SGD")
refused(lambda: weft.torch.DeAR(make(), SGD, fusion=4.5, lr=0.1), "expected bytes as a whole number")

model, optimizer = fresh()
loss(model).backward()
refused(lambda: loss(model).backward(), "no_sync")

# A batch is left out on all ranks.
before = flat(model).clone()
optimizer.zero_grad()
loss(model).backward()
optimizer.zero_grad()
refused(optimizer.step, "call backward() first")
loss(model).backward()
optimizer.step()
optimizer.synchronize()
assert not torch.equal(flat(model), before)

model, optimizer = fresh()
refused(optimizer.step, "call backward() first")

model = make()
model[0].requires_grad_(False)
optimizer = weft.torch.DeAR(model, SGD, policy="dear", fusion="3kB", lr=0.1)
model[0].requires_grad_(True)
loss(model).backward()
refused(optimizer.step, "thawed")
refused(lambda: weft.torch.DeAR(nn.Linear(3, 3, dtype=torch.complex64), SGD, lr=0.1), "complex64")

model, optimizer = fresh()
loss(model).backward()
optimizer.step()
model.zero_grad(set_to_none=False)
refused(optimizer.synchronize, "clear with zero_grad")

model, optimizer = fresh()
loss(model).backward()
optimizer.step()


def elsewhere():
    # Weights are used although no module of theirs is called.
    h = x
    for layer in model:
        h = layer(h) if not hasattr(layer, "weight") else nn.functional.linear(h, layer.weight, layer.bias)
    nn.functional.mse_loss(h, y).backward()


refused(elsewhere, "used before its update")

model, optimizer = fresh(mode="parameters")
for _ in range(2):
    loss(model).backward()
    optimizer.step()
    if _ == 0:
        optimizer.zero_grad()
refused(lambda: loss(model).backward(), "was not cleared")

compiled = make()
compiled[2].compile(backend="eager")
refused(lambda: weft.torch.DeAR(compiled, SGD, lr=0.1), "compiled already")
refused(lambda: weft.torch.DeAR(torch.compile(make(), backend="eager"), SGD, lr=0.1), "compiled already")
refused(lambda: weft.torch.DeAR(make(), make().parameters(), SGD, lr=0.1), "not the model's")
refused(lambda: weft.torch.DeAR(make(), torch.optim.LBFGS), "LBFGS")
refused(lambda: weft.torch.DeAR(make(), torch.optim.Adafactor, mode="parameters"), "element by element")
refused(lambda: weft.torch.DeAR(make(), 3), "class of an optimizer")
refused(lambda: fresh(policy="magic"), "policy 'magic'")
refused(lambda: fresh(mode="magic"), "mode 'magic'")
refused(lambda: fresh(fusion=0), "fusion=0")
refused(lambda: fresh(mode="parameters", policy="wfbp"), "no use")
refused(lambda: fresh()[1].add_param_group({"params": [nn.Parameter(torch.ones(1))]}), "further parameters")
refused(lambda: weft.torch.DeAR(make().requires_grad_(False), SGD, lr=0.1), "no parameter requires")

sparse = nn.Embedding(5, 4, sparse=True)
optimizer = weft.torch.DeAR(sparse, SGD, lr=0.1)
refused(lambda: sparse(torch.tensor([1])).sum().backward(), "sparse")

# Ranks whose models differ find out at once.
odd = nn.Linear(4, 4 + R)
try:
    weft.torch.DeAR(odd, SGD, lr=0.1, timeout=20)
except weft.RuntimeFailure as error:
    print("differs:", type(error).__name__, flush=True)
else:
    raise AssertionError("another model was taken")
dist.destroy_process_group()
