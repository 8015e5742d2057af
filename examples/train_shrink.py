"""A model trained with DeAR whose job goes on when it loses a rank, with those that are left.

weft run -n 4 --keep-going examples/train_shrink.py --kill 3 --at 100
weft run -n 4 examples/train_shrink.py --leave 3 --at 100

Both print the same loss, to the last bit: in the first rank 3 kills itself in step 100, and the survivors
repeat that step without it; in the second it leaves before that step on purpose.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
import time
from typing import Any

import numpy as np
import torch

import weft
import weft.torch

WIDTH, BATCH = 64, 32


def parse() -> argparse.Namespace:
    """Words of the command line."""
    parser = argparse.ArgumentParser(description="Train with DeAR, and go on without ranks that are lost.")
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--kill", type=int, metavar="RANK", help="kills itself in the middle of a step")
    add("--leave", type=int, metavar="RANK", help="leaves before a step")
    add("--at", type=int, default=100, metavar="STEP")
    return parser.parse_args()


class Training:
    """A model, its optimizer, and the states that the survivors can go back to.

    Parameters
    ----------
    comm
        Of the ranks that train together.
    """

    def __init__(self, comm: weft.Communicator) -> None:
        torch.manual_seed(0)
        self.comm = comm
        layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()] * 3
        self.model = torch.nn.Sequential(*copy.deepcopy(layers), torch.nn.Linear(WIDTH, 1))
        self.saved: dict[int, dict[str, Any]] = {}
        self.open()

    def open(self) -> None:
        """Make the optimizer, on the ranks that there are now."""
        how = {"group": self.comm, "policy": "dear", "tune": False}
        self.optimizer = weft.torch.DeAR(self.model, torch.optim.SGD, lr=0.05, momentum=0.9, **how)

    def save(self, step: int) -> None:
        """Keep what the model is before a step; two of them, because ranks differ by a step at most."""
        self.optimizer.synchronize()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        self.saved = {old: kept for old, kept in self.saved.items() if old >= step - 1}
        self.saved[step] = copy.deepcopy(state)

    def step(self, number: int, *, dies: bool) -> float:
        """Train on this rank's part of a batch; the mean loss of all."""
        chance = np.random.default_rng([number, self.comm.rank])
        inputs = torch.from_numpy(chance.standard_normal((BATCH, WIDTH), np.float32))
        self.optimizer.zero_grad()
        loss = (self.model(inputs) - inputs.sum(dim=1, keepdim=True).sin()).square().mean()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        self.optimizer.step()
        return float(self.comm.all_reduce(np.array([loss.item()]), "avg")[0])

    def go_on(self) -> int:
        """Connect the survivors and go back to the latest step that all of them have kept; its number."""
        self.optimizer.close(apply=False)
        self.comm = self.comm.shrink()
        step = int(self.comm.all_reduce(np.array([max(self.saved)]), "min")[0])
        self.model.load_state_dict(self.saved[step]["model"])
        self.open()
        self.optimizer.load_state_dict(self.saved[step]["optimizer"])
        return step


def main() -> None:
    """Train, whoever is lost meanwhile."""
    words = parse()
    comm = weft.init()
    born = comm.rank
    training = Training(comm)
    step, loss = 0, 0.0
    while step < words.steps:
        try:
            training.save(step)
            if words.leave is not None and step == words.at and training.comm.size == comm.size:
                if born == words.leave:
                    training.optimizer.close()
                    comm.close()
                    sys.exit()
                comm.barrier()  # which the one that leaves does not come to
            loss = training.step(step, dies=born == words.kill and step == words.at)
            step += 1
        except weft.PeerLost as lost:
            began = time.monotonic()
            step = training.go_on()
            left = f"{training.comm.size} ranks go on at step {step} after {time.monotonic() - began:.1f} s"
            print(f"rank {born}: rank {lost.rank} was lost; {left}", flush=True)
    training.optimizer.close()
    if training.comm.rank == 0:
        print(f"loss {loss:.6f}, exactly {loss.hex()}")


if __name__ == "__main__":
    main()
