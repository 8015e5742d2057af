"""How soon every rank knows that one has died in the middle of a backward pass.

    python benchmarks/torch/losses.py [TIMES]      # results/losses.json

Four ranks train on one machine; the third kills itself (SIGKILL) within a backward pass. Each of the others
notes when it raises `weft.PeerLost`, and for which rank. Seconds from the kill to the last of them.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

RANKS, VICTIM = 4, 2
WAYS = ("dear gradients", "dear parameters", "wfbp gradients", "hook", "group")

JOB = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
import weft, weft.torch
torch.set_num_threads(1)
way, last = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo" if way == "hook" else "weft")
rank = dist.get_rank()
model = nn.Sequential(*(nn.Linear(600, 600) for _ in range(8)))
words = way.split()
if words[0] in ("dear", "wfbp"):
    optimizer = weft.torch.DeAR(model, torch.optim.SGD, policy=words[0], mode=words[1], fusion="2MB", lr=1e-3)
    net = model
else:
    net = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if way == "hook":
        net.register_comm_hook(None, weft.torch.ddp_hook(timeout=60))
x = torch.randn(64, 600)
step = 0
try:
    while True:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if rank == VICTIM and step == last:
            def die(_):
                print("<killed", time.time(), ">", flush=True)
                os.kill(os.getpid(), 9)
            loss.register_hook(die)
        loss.backward()
        optimizer.step()
        step += 1
except weft.PeerLost as error:
    print("<lost", error.rank, time.time(), step, ">", flush=True)
os._exit(0)
"""


def run_once(way: str, last: int, folder: Path) -> float:
    """Seconds until all survivors knew; checks that all name the victim and none stepped afterwards."""
    script = folder / "job.py"
    script.write_text(JOB.replace("VICTIM", str(VICTIM)), "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), way, str(last)],
            env={**os.environ, **job, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        said = [process.communicate(timeout=100)[0] for process in ranks]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
    assert ranks[VICTIM].returncode == -signal.SIGKILL, said[VICTIM]
    killed = float(re.findall(r"<killed ([\d.]+)", said[VICTIM])[0])
    times = []
    for rank in set(range(RANKS)) - {VICTIM}:
        assert ranks[rank].returncode == 0, (rank, ranks[rank].returncode, said[rank])
        lost, when, step = re.findall(r"<lost (\d+) ([\d.]+) (\d+)", said[rank])[0]
        assert int(lost) == VICTIM, said[rank]
        # DeAR's step only queues; what it queued is never applied.
        assert int(step) <= last + (way == "dear gradients"), said[rank]
        times.append(float(when) - killed)
    return max(times)


def main() -> None:
    """Kill, in every way, several times."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    started = result_files.start()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(times):
            for way in WAYS:
                found[way].append(round(run_once(way, 5 + turn, Path(folder)), 4))
                print(way, found[way][-1], flush=True)
    rows = [
        {"way": way, "median_s": statistics.median(some), "worst_s": max(some), "all_s": some}
        for way, some in found.items()
    ]
    result_files.write(
        Path(__file__).with_name("results") / "losses.json",
        started,
        parameters={"ranks": RANKS, "victim": VICTIM, "times": times},
        results=rows,
    )


if __name__ == "__main__":
    main()
