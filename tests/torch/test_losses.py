"""A rank is killed in the middle of its work: every other rank hears of it as PeerLost, and steps no more."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from support.groups import PRELUDE, start_group
from support.jobs import end, finish

RANKS = 4
VICTIM = 2

# Each step of training changes the weight; who has seen the loss must not have stepped since.
WORKING = """
import json, threading

heard, steps = None, 0
print("ready", flush=True)
began = time.monotonic()
try:
    while time.monotonic() < began + 60:
        work()
        steps += 1
        if steps == 3:
            print("working", flush=True)
except weft.PeerLost as error:
    heard = {"at": time.monotonic(), "rank": error.rank, "pid": error.pid}
    try:
        again()
    except weft.PeerLost as error:
        heard["again"] = error.rank
print(json.dumps(heard), flush=True)
os._exit(0)
"""

TRAINING = """
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(6)])
ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(16, 200)

def work():
    optimizer.zero_grad()
    ddp(x).pow(2).mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters()), "backward returned without gradients"
    optimizer.step()

def again():
    before = [p.detach().clone() for p in model.parameters()]
    try:
        optimizer.step()
    finally:
        assert all(map(torch.equal, before, model.parameters())), "an optimizer stepped"
"""

JOBS = {
    "DDP on a weft group": ("weft", TRAINING),
    "DDP on a gloo group with the hook": (
        "gloo",
        TRAINING.replace("optimizer =", "ddp.register_comm_hook(None, weft.torch.ddp_hook())\noptimizer ="),
    ),
    "a collective that waits": (
        "weft",
        "x = torch.ones(300_000)\nagain = work = lambda: dist.all_reduce(x)\n",
    ),
    "a collective that does not wait": (
        "weft",
        """
x = torch.ones(300_000)

def work():
    x.fill_(1)
    work = dist.all_reduce(x, async_op=True)
    work.get_future().wait()
    try:
        work.wait()
    except weft.PeerLost:
        assert x.isnan().all()
        raise
    assert (x == N).all()

again = lambda: dist.barrier()
""",
    ),
    "a functional collective": (
        "weft",
        """
import torch.distributed._functional_collectives as fc

def work():
    assert (fc.all_reduce(torch.ones(300_000), "sum", dist.group.WORLD) == N).all()

again = work
""",
    ),
    "reduce-scatter and all-gather": (
        "weft",
        """
share, whole = torch.ones(100_000), torch.ones(100_000 * N)

def work():
    dist.reduce_scatter_tensor(share, whole)
    dist.all_gather_into_tensor(whole, share)
    whole.fill_(1)

again = work
""",
    ),
    "messages": (
        "weft",
        """
here, there = torch.ones(100_000), torch.ones(100_000)

def work():
    dist.barrier()
    works = [dist.isend(here, (R + 1) % N), dist.irecv(there, (R - 1) % N)]
    for one in works:
        one.wait()

again = lambda: dist.barrier()
""",
    ),
}


def said(line: str) -> bool:
    """Whether the job said this; torch warns on the same stream, and 2.10 tells what gloo connected."""
    return re.match(r"(\[rank\d+\]:)?\[W|\[Gloo\]", line) is None


def read(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while not said(line := process.stdout.readline()):
        pass
    assert line == f"{word}\n", line + process.stdout.read()


@pytest.mark.parametrize("name", JOBS)
def test_every_other_rank_raises_that_the_rank_is_lost(tmp_path: Path, name: str) -> None:
    backend, source = JOBS[name]
    processes = start_group(tmp_path, RANKS, PRELUDE + source + WORKING, backend, finalise=True)
    try:
        for word in ("ready", "working"):
            for process in processes:
                read(process, word)
        began = time.monotonic()
        processes[VICTIM].kill()
        survivors = [process for rank, process in enumerate(processes) if rank != VICTIM]
        ended = finish(survivors)
    finally:
        for process in processes:
            end(process)
    for code, output in ended:
        assert code == 0, output
        heard = json.loads(next(filter(said, reversed(output.splitlines()))))
        assert heard is not None, output
        assert (heard["rank"], heard["pid"], heard["again"]) == (VICTIM, processes[VICTIM].pid, VICTIM), (
            output
        )
        assert heard["at"] - began < 20, output
