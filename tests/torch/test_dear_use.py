"""DeAR in use: checkpoints, loss scaling, other groups, and what must not go unnoticed."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from support.groups import PRELUDE, run_group, start_group
from support.jobs import finish

MODEL = """
from torch import nn
torch.set_num_threads(1)

def make(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 5))

def batch(step, dtype=torch.float32):
    torch.manual_seed(1000 + 10 * step + R)
    return torch.randn(4, 12), torch.randn(4, 5)

def train(model, optimizer, first, last):
    for step in range(first, last):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

def refused(call, text, kind=weft.InputError):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError("not refused: " + text)

def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
"""

RESUME = """
import copy
mode, kind = WORDS[0], getattr(torch.optim, WORDS[1])
words = dict(lr=0.05, momentum=0.9) if kind is torch.optim.SGD else dict(lr=0.01)
folder = WORDS[2]
model = make(R)
optimizer = weft.torch.DeAR(model, kind, mode=mode, tune=False, **words)
train(model, optimizer, 0, 7)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/{R}.pt")
full = copy.deepcopy(optimizer.full_state_dict())
train(model, optimizer, 7, 12)
optimizer.synchronize()

saved = torch.load(f"{folder}/{R}.pt", weights_only=True)
other = make(99)
again = weft.torch.DeAR(other, kind, mode=mode, tune=False, **words)
other.load_state_dict(saved["model"])
again.load_state_dict(saved["optimizer"])
assert again.fusion.digest == optimizer.fusion.digest
train(other, again, 7, 12)
again.synchronize()
assert torch.equal(flat(model), flat(other)), (flat(model) - flat(other)).abs().max()

# The same in the other mode, and in one process: the full state is torch's own.
third = make(98)
opposite = "gradients" if mode == "parameters" else "parameters"
turned = weft.torch.DeAR(third, kind, mode=opposite, policy="dear", fusion="3kB", **words)
third.load_state_dict(saved["model"])
turned.load_state_dict(full)
train(third, turned, 7, 12)
turned.synchronize()
assert (flat(model) - flat(third)).abs().max() < 1e-6
plain = kind(make().parameters(), **words)
plain.load_state_dict(full)
dist.barrier()

shares = [torch.load(f"{folder}/{r}.pt", weights_only=True)["optimizer"] for r in range(N)]
if mode == "parameters":
    fourth = make(97)
    joined = weft.torch.DeAR(fourth, kind, mode=mode, policy="dear", fusion="2kB", **words)
    fourth.load_state_dict(saved["model"])
    joined.load_state_dict(shares)
    train(fourth, joined, 7, 12)
    joined.synchronize()
    assert (flat(model) - flat(fourth)).abs().max() < 1e-6
    refused(lambda: again.load_state_dict(shares[1 - R]), "another rank's share", weft.FormatError)
    refused(lambda: turned.load_state_dict(shares[R]), "one rank's share", weft.FormatError)
    refused(lambda: again.load_state_dict(shares[:1]), "expected 0 to 1", weft.FormatError)
"""


@pytest.mark.parametrize("mode", ["gradients", "parameters"])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_checkpoint_goes_on_bit_by_bit(tmp_path: Path, mode: str, kind: str) -> None:
    run_group(tmp_path, 2, MODEL + RESUME, mode, kind, str(tmp_path))


SCALED = """
model, twin = make(), make()
optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=WORDS[0], lr=0.1, fusion="3kB")
scaler = weft.torch.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
other = torch.optim.SGD(twin.parameters(), lr=0.1)
for step in range(8):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    if step == 3 and R == 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        optimizer.clip_grad_norm_(0.3)
    scaler.step(optimizer)
    scaler.update()
    other.zero_grad()
    for rank in range(N):
        torch.manual_seed(1000 + 10 * step + rank)
        x, y = torch.randn(4, 12), torch.randn(4, 5)
        (nn.functional.mse_loss(twin(x), y) / N).backward()
    if step % 2:
        nn.utils.clip_grad_norm_(twin.parameters(), 0.3)
    if step != 3:
        other.step()
assert scaler.get_scale() == 512.0
optimizer.synchronize()
assert (flat(model) - flat(twin)).abs().max() < 1e-6
# torch's own changes gradients that are under way.
stock = torch.amp.GradScaler("cpu")
optimizer.zero_grad()
stock.scale(nn.functional.mse_loss(model(x), y)).backward()
def step():
    stock.step(optimizer)
refused(step, "GradScaler")
dist.barrier()  # who leaves earlier takes what is under way with it
"""


@pytest.mark.parametrize("mode", ["gradients", "parameters"])
def test_all_ranks_skip_a_step_that_is_not_finite_anywhere(tmp_path: Path, mode: str) -> None:
    run_group(tmp_path, 2, MODEL + SCALED, mode)


MISUSE = """
import copy
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
"""


STATES = """
SGD = torch.optim.SGD
x, y = batch(0)

def fresh(**words):
    model = make()
    return model, weft.torch.DeAR(model, SGD, **{"policy": "dear", "fusion": "3kB", "lr": 0.1, **words})

def loss(model):
    return nn.functional.mse_loss(model(x), y)

# What is loaded stays, although an update was under way.
model, optimizer = fresh()
kept = {name: value.clone() for name, value in model.state_dict().items()}
loss(model).backward()
optimizer.step()
model.load_state_dict(kept)
optimizer.synchronize()
assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())

# A policy that this mode does not have is not taken from a checkpoint.
model, optimizer = fresh(policy="wfbp")
saved = optimizer.state_dict()
model, optimizer = fresh(mode="parameters")
optimizer.load_state_dict(saved)
before = flat(model).clone()
loss(model).backward()
optimizer.step()
optimizer.synchronize()
assert optimizer.fusion.policy == "dear" and not torch.equal(flat(model), before)
refused(lambda: weft.torch.DeAR(model, SGD, mode="parameters", lr=0.1), "another DeAR")
model[0].weight.data = model[0].weight.data.clone()
optimizer.zero_grad()
loss(model).backward()
refused(optimizer.step, "moved in memory")
other = weft.torch.DeAR(nn.Linear(3, 3, bias=False), torch.optim.AdamW, lr=0.1).full_state_dict()
wide = weft.torch.DeAR(nn.Linear(9, 9, bias=False), torch.optim.AdamW, mode="parameters", lr=0.1)
other["state"] = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(9), "exp_avg_sq": torch.zeros(9)}}
refused(lambda: wide.load_state_dict(other), "of another model", weft.FormatError)

# A single number is a parameter too, in both modes.
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.layer = nn.Linear(12, 5)
    def forward(self, x):
        return self.layer(x) * self.scale + self.nothing.sum()

scaled = Scaled()
optimizer = weft.torch.DeAR(scaled, torch.optim.AdamW, mode="parameters", fusion=1, lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss(scaled).backward()
    optimizer.clip_grad_norm_(0.5, float("inf"))
    optimizer.step()
optimizer.load_state_dict(optimizer.full_state_dict())
optimizer.zero_grad()
loss(scaled).backward()
optimizer.step()
optimizer.synchronize()

# One rank without any gradient is as good as zeros; all of them are a mistake.
model, optimizer = fresh()
if R == 0:
    loss(model).backward()
optimizer.step()
optimizer.synchronize()

# Ranks whose models differ find out at once, also by names alone.
named = nn.ModuleDict({"ab"[R]: nn.Linear(4, 4)})
refused(lambda: weft.torch.DeAR(named, SGD, lr=0.1), "fusion plan", weft.DesyncError)
dist.barrier()
"""


def test_states_and_odd_parameters_are_right_or_refused(tmp_path: Path) -> None:
    run_group(tmp_path, 2, MODEL + STATES)


def test_what_would_be_silently_wrong_is_refused(tmp_path: Path) -> None:
    said = run_group(tmp_path, 2, MODEL + MISUSE)
    assert all("differs: DesyncError" in output for output in said), said


OVER_GLOO = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = make(R)
    optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=WORDS[0], policy=WORDS[1], lr=0.1)
    assert any("gloo's reduce-scatter" in str(one.message) for one in caught) == (BACKEND == "gloo")
twin = make()
other = torch.optim.SGD(twin.parameters(), lr=0.1)
for step in range(12):
    train(model, optimizer, step, step + 1)
    other.zero_grad()
    for rank in range(N):
        torch.manual_seed(1000 + 10 * step + rank)
        x, y = torch.randn(4, 12), torch.randn(4, 5)
        (nn.functional.mse_loss(twin(x), y) / N).backward()
    other.step()
optimizer.synchronize()
assert (flat(model) - flat(twin)).abs().max() < 1e-6
optimizer.close()
"""


@pytest.mark.parametrize("backend", ["gloo", "weft"])
@pytest.mark.parametrize(
    ("mode", "policy"), [("gradients", "dear"), ("gradients", "auto"), ("parameters", "dear")]
)
def test_any_group_will_do(tmp_path: Path, backend: str, mode: str, policy: str) -> None:
    run_group(tmp_path, 3, MODEL + OVER_GLOO, mode, policy, backend=backend, own=True)


WORKERS = """
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.full((12,), float(i)), torch.zeros(5)

model = make()
optimizer = weft.torch.DeAR(model, torch.optim.SGD, lr=1e-4)
loader = torch.utils.data.DataLoader(Numbers(), 4, num_workers=2)
seen = 0
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        seen += 1
optimizer.synchronize()
total = flat(model).sum().double().reshape(1)
everybody = [torch.zeros_like(total) for _ in range(N)]
dist.all_gather(everybody, total)
assert seen == 20 and all(torch.equal(one, total) for one in everybody)
"""


def test_workers_of_a_loader_do_no_harm(tmp_path: Path) -> None:
    run_group(tmp_path, 2, MODEL + WORKERS)


KILLED = """
model = nn.Sequential(*(nn.Linear(600, 600) for _ in range(8)))
optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=WORDS[0], policy=WORDS[1], lr=1e-3)
x = torch.randn(64, 600)
done = 0
try:
    while True:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if R == 2 and done == 12:
            loss.register_hook(lambda _: os.kill(os.getpid(), 9))
            print("<now", time.time(), ">", flush=True)
        loss.backward()
        optimizer.step()
        done += 1
except weft.PeerLost as error:
    print("<lost", error.rank, time.time(), done, ">", flush=True)
    optimizer.close()
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("mode", "policy"), [("gradients", "dear"), ("gradients", "wfbp"), ("parameters", "dear")]
)
def test_a_rank_that_dies_is_named_by_all_others(tmp_path: Path, mode: str, policy: str) -> None:
    ended = finish(start_group(tmp_path, 4, PRELUDE + MODEL + KILLED, "weft", mode, policy), 100)
    assert ended[2][0] == -signal.SIGKILL, ended[2]
    killed = float(re.findall(r"<now ([\d.]+)", ended[2][1])[0])
    for rank in (0, 1, 3):
        code, output = ended[rank]
        assert code == 0, output
        lost, when, done = re.findall(r"<lost (\d+) ([\d.]+) (\d+)", output)[0]
        assert lost == "2"
        assert float(when) - killed < 20, time.time()  # a wait would take 60
        assert int(done) <= 12
