"""A job: some steps of DeAR under a profile. Rank 0 leaves what it found in the folder that it is given."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import weft
from weft.errors import InputError
from weft.torch import DeAR, profile

torch.set_num_threads(1)
FOLDER, POLICY = Path(sys.argv[1]), sys.argv[2]
STEPS = 8
comm = weft.init(timeout=60)
torch.manual_seed(1)
model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(6)))
optimizer = DeAR(model, torch.optim.SGD, group=comm, policy=POLICY, tune=False, lr=0.01)


def train(steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 400)).square().mean().backward()
        if comm.rank == 1:
            time.sleep(0.01)
        optimizer.step()


with profile(optimizer) as early:
    train(1)
with pytest.raises(InputError, match="profile more"):
    early.summary()
train(4)
assert not optimizer.tuning
with profile(optimizer, FOLDER / "trace.json") as seen:
    train(STEPS)
    with pytest.raises(InputError, match="after its with block"):
        seen.summary()

with profile(optimizer, steps=2) as short:
    train(STEPS)
assert short.figures.iterations == 2, short.figures

broken = profile(optimizer)


def break_off() -> None:
    with broken:
        train(4)
        raise KeyError("the user's own")


with pytest.raises(KeyError):
    break_off()
assert [one.rank for one in broken.ranks] == [comm.rank]
assert broken.summary().startswith(f"rank {comm.rank} of 2: 3 iterations")
with pytest.raises(InputError, match="for one block"), broken:
    pass
if comm.rank == 0:
    with (
        pytest.raises(InputError, match="there is no directory"),
        profile(optimizer, FOLDER / "nowhere" / "trace.json"),
    ):
        pass

seen.write(FOLDER / f"rank{comm.rank}.json")
found = seen.to_json()
(FOLDER / f"figures{comm.rank}.json").write_text(json.dumps(found), "utf-8")
(FOLDER / f"summary{comm.rank}.txt").write_text(seen.summary(), "utf-8")
optimizer.close()
comm.close()
