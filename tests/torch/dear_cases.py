"""A job: DeAR beside the same training in one process, case by case. Each rank prints the largest error."""

from __future__ import annotations

import copy
import sys
import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import weft
import weft.torch
from weft.torch.dear import DeAR

torch.set_num_threads(1)
warnings.filterwarnings("error", module="weft")
MODE, POLICY, *ASKED = sys.argv[1:]
COMM = weft.init(timeout=60)
R, N = COMM.rank, COMM.size
BATCH = 4


class Tied(nn.Module):
    """An embedding whose weight is also the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.body = nn.Linear(16, 16)
        self.out = nn.Linear(16, 30, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.body(self.embed((x[:, :1].abs() * 29 % 30).long().squeeze(1)))))


class Parts(nn.Module):
    """One branch that only some ranks use, one that nobody uses, and weights that are used without a call."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.sometimes = nn.Linear(16, 16)
        self.never = nn.Linear(16, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))])
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.last = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, use: bool = True) -> torch.Tensor:
        h = self.frozen(torch.relu(self.first(x))) * self.listed[0] + self.listed[1]
        h = self.attention(h[:, None], h[:, None], h[:, None])[0][:, 0]
        if use:
            h = h + self.sometimes(h)
        return self.last(h)


class Norms(nn.Module):
    """Convolution and normalisation, as in a ResNet, with activations that are computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv1d(1, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.b = nn.Conv1d(6, 6, 3, padding=1)
        self.c = nn.Linear(6 * 12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.a(x[:, None])))
        h = checkpoint(lambda y: torch.relu(self.b(y)), h, use_reentrant=False)
        return self.c(h.flatten(1))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 40),
        nn.Tanh(),
        nn.Linear(40, 40),
        nn.Tanh(),
        nn.Linear(40, 40),
        nn.Tanh(),
        nn.Linear(40, 5),
    )


def two_groups(model: nn.Module) -> list[dict[str, Any]]:
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if "weight" in name], "weight_decay": 0.1},
        {"params": [p for name, p in named if "weight" not in name], "lr": 0.005},
    ]


SGD = (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01})
ADAMW = (torch.optim.AdamW, {"lr": 0.01})
CASES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": SGD},
    "adam": {"optimizer": (torch.optim.Adam, {"lr": 0.01})},
    "adamw in two groups": {"optimizer": ADAMW, "groups": two_groups},
    "a learning rate that changes": {"optimizer": SGD, "schedule": True},
    "clipping": {"optimizer": SGD, "clip": 0.05},
    "clipping in every step": {"optimizer": ADAMW, "max_norm": 0.05},
    "accumulation": {"optimizer": SGD, "accumulate": 3},
    "gradients that are never cleared": {"optimizer": SGD, "clear": False, "modes": ["gradients"]},
    "clearing after the step": {"optimizer": ADAMW, "clear": "after"},
    "tied weights": {"optimizer": ADAMW, "model": Tied, "classes": 30},
    "unused, frozen and listed parameters": {"optimizer": ADAMW, "model": Parts, "branches": True},
    "momentum of what nobody used": {"optimizer": SGD, "model": Parts, "branches": True},
    "recomputed activations": {"optimizer": SGD, "model": Norms},
    "bfloat16 autocast": {"optimizer": SGD, "autocast": True, "most": 5e-3},
    "evaluation in between": {"optimizer": ADAMW, "evaluate": True},
    "blocks compiled afterwards": {"optimizer": ADAMW, "compile": True},
    "one group": {"optimizer": SGD, "options": {"fusion": "100MB"}},
    "every layer by itself": {"optimizer": SGD, "options": {"fusion": 1}},
    "float64": {"optimizer": ADAMW, "dtype": torch.float64, "most": 1e-12},
    "two types": {"optimizer": SGD, "mixed": True, "most": 2e-2},
}


def loss_of(
    case: dict[str, Any], model: nn.Module, x: torch.Tensor, y: torch.Tensor, rank: int
) -> torch.Tensor:
    words = {"use": rank % 2 == 0} if case.get("branches") else {}
    with torch.autocast("cpu", torch.bfloat16) if case.get("autocast") else nullcontext():
        out = model(x, **words)
    if "classes" in case:
        return nn.functional.cross_entropy(out, (y[:, 0].abs() * 29 % 30).long())
    return nn.functional.mse_loss(out.to(y.dtype), y)


def run(case: dict[str, Any]) -> float:
    dtype = case.get("dtype", torch.float32)
    torch.manual_seed(R)  # rank 0's parameters count
    model = case.get("model", mlp)().to(dtype)
    torch.manual_seed(0)
    twin = case.get("model", mlp)().to(dtype)
    if case.get("mixed"):
        for one in (model, twin):
            one[2].to(torch.bfloat16).register_forward_pre_hook(lambda _, args: (args[0].bfloat16(),))
            one[2].register_forward_hook(lambda *args: args[2].float())
    kind, words = case["optimizer"]
    groups = case.get("groups", lambda one: list(one.parameters()))
    options = {"policy": POLICY, **case.get("options", {})}
    optimizer = DeAR(
        model, groups(model), kind, group=COMM, mode=MODE, max_norm=case.get("max_norm"), **options, **words
    )
    other = kind(groups(twin), **words)
    if case.get("compile"):
        for place in (2, 4):
            model[place].compile(backend="aot_eager")
    schedules = [
        torch.optim.lr_scheduler.StepLR(one, 3, 0.5) for one in (optimizer, other) if case.get("schedule")
    ]
    for step in range(case.get("steps", 12)):
        advance(case, step, model, twin, optimizer, other)
        for schedule in schedules:
            schedule.step()
    optimizer.synchronize()
    error = max(
        float((a - b).detach().abs().max())
        for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )
    optimizer.close()
    return error


def advance(case: dict[str, Any], step: int, model: Any, twin: Any, optimizer: Any, other: Any) -> None:
    torch.manual_seed(1000 + step)
    rounds = case.get("accumulate", 1)
    clear = case.get("clear", True)
    if clear is True:
        optimizer.zero_grad()
        other.zero_grad()
    for turn in range(rounds):
        x = torch.randn(N * BATCH, 12, dtype=case.get("dtype"))
        y = torch.randn(N * BATCH, 5, dtype=case.get("dtype"))
        mine = slice(R * BATCH, (R + 1) * BATCH)
        with optimizer.no_sync() if turn < rounds - 1 else nullcontext():
            (loss_of(case, model, x[mine], y[mine], R) / rounds).backward()
        for rank in range(N):
            part = slice(rank * BATCH, (rank + 1) * BATCH)
            (loss_of(case, twin, x[part], y[part], rank) / rounds / N).backward()
    if "clip" in case:
        mine, whole = (
            optimizer.clip_grad_norm_(case["clip"]),
            nn.utils.clip_grad_norm_(twin.parameters(), case["clip"]),
        )
        assert abs(float(mine - whole)) < 1e-4 * float(whole), (mine, whole)
    if "max_norm" in case:
        nn.utils.clip_grad_norm_(twin.parameters(), case["max_norm"])
    optimizer.step()
    other.step()
    if clear == "after":
        optimizer.zero_grad(set_to_none=False)
        other.zero_grad()
    if case.get("evaluate") and step % 2:
        state = copy.deepcopy(model.state_dict())
        for name, value in twin.state_dict().items():
            assert (state[name] - value).abs().max() < 1e-4, name
        with torch.no_grad():
            assert (model(x) - twin(x)).abs().max() < 1e-3


for name, case in CASES.items():
    if MODE in case.get("modes", [MODE]) and name in (ASKED or CASES):
        error = run(case)
        most = case.get("most", 1e-5)
        print(f"<{R}|{name}|{error:.3g}|{'ok' if error <= most else 'WRONG'}>", flush=True)
COMM.close()
