"""torchrun starts a job again in which a rank has died, and it goes on from its checkpoint, on backend weft.

torchrun --nproc-per-node 2 --max-restarts 1 examples/frameworks/train_elastic.py --kill-at 9

Without ``--kill-at`` it prints the same loss, to the last bit.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from job import average, make_data, make_model, make_parser, report
from torch.nn.parallel import DistributedDataParallel

import weft.torch  # noqa: F401 - registers the backend

BATCH, SAVE = 8, 4


def save(file: Path, state: dict[str, object]) -> None:
    """Leave a whole file or none: a rank that is killed while it writes leaves the one before as it is."""
    new = file.with_name(f"{file.name}.new")
    torch.save(state, new)
    new.replace(file)


def main() -> None:
    """Train."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="rank 1 kills itself there, once")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="of torchrun's run, by default")
    words = parser.parse_args()
    run, attempt = os.environ["TORCHELASTIC_RUN_ID"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    file = words.checkpoint or Path(tempfile.gettempdir()) / f"train_elastic-{run}.pt"

    dist.init_process_group(words.backend)  # torchrun has another store in each attempt: the ranks meet anew
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = make_model()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    first = 0
    if file.exists():
        state = torch.load(file, weights_only=True)
        first = state["step"]
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if rank == 0:
            print(f"attempt {attempt} goes on at step {first}", flush=True)
    data = make_data()
    loss = torch.tensor(0.0)
    for step in range(first, words.steps):
        if step == words.kill_at and rank == 1 and attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        start = (step * ranks + rank) * BATCH % len(data)
        inputs, wanted = data[start : start + BATCH]
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % SAVE == 0 and rank == 0:
            save(file, {"step": step + 1, "model": net.state_dict(), "optimizer": optimizer.state_dict()})
    report(average(loss))
    dist.barrier()
    if rank == 0:
        file.unlink(missing_ok=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
