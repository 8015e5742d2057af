"""A small network trained with numpy, which goes on from its checkpoint when ``weft run`` starts it again.

weft run -n 2 examples/train_restart.py
weft run -n 2 --restarts 1 examples/train_restart.py --checkpoint state.npz --kill-at 100

Both print the same loss, to the last bit: the second loses rank 1 at step 100 and goes on from step 90.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import numpy as np

import weft

INPUTS, HIDDEN, BATCH = 8, 32, 64
RATE, MOMENTUM = 0.05, 0.9


def parse() -> argparse.Namespace:
    """Words of the command line."""
    parser = argparse.ArgumentParser(description="Train a small network, with checkpoints.")
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--checkpoint", type=Path, metavar="FILE", help="save to it, and go on from it if it is there")
    add("--save", type=int, default=30, metavar="STEPS", help="save every so many steps")
    add("--kill-at", type=int, metavar="STEP", help="in the first attempt, rank 1 kills itself at this step")
    return parser.parse_args()


def make_batch(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for the same step and rank, as a job that goes on needs it."""
    chance = np.random.default_rng([step, rank])
    inputs = chance.standard_normal((BATCH, INPUTS), np.float32)
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def compute_gradient(weights: np.ndarray, step: int, rank: int) -> tuple[np.ndarray, float]:
    """Gradient of one batch, flat like the weights, and its loss."""
    first, second = weights[: INPUTS * HIDDEN].reshape(INPUTS, HIDDEN), weights[INPUTS * HIDDEN :, None]
    inputs, wanted = make_batch(step, rank)
    hidden = np.tanh(inputs @ first)
    wrong = hidden @ second - wanted
    to_second = hidden.T @ wrong
    to_first = inputs.T @ (wrong @ second.T * (1 - hidden**2))
    return np.concatenate([to_first, to_second], axis=None) / BATCH, float(np.mean(wrong**2))


def save(file: Path, step: int, weights: np.ndarray, speed: np.ndarray) -> None:
    """Leave a whole file or none: whoever is killed while writing leaves the one before as it is."""
    new = file.with_name(f"{file.name}.new")
    with new.open("wb") as stream:
        np.savez(stream, step=step, weights=weights, speed=speed)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)


def main() -> None:
    """Train."""
    words = parse()
    comm = weft.init()
    weights = np.random.default_rng(0).standard_normal(INPUTS * HIDDEN + HIDDEN, np.float32) / 4
    speed = np.zeros_like(weights)
    first = 0
    if words.checkpoint and words.checkpoint.exists():
        # All ranks read the same file: none is saved before all of them have come through a step.
        with np.load(words.checkpoint) as state:
            first, weights, speed = int(state["step"]), state["weights"], state["speed"]
        if comm.rank == 0:
            print(f"attempt {os.environ['WEFT_ATTEMPT']} goes on at step {first}", flush=True)
    mean = np.zeros(1)
    for step in range(first, words.steps):
        if step == words.kill_at and comm.rank == 1 and os.environ["WEFT_ATTEMPT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        gradient, loss = compute_gradient(weights, step, comm.rank)
        comm.all_reduce(gradient, "avg")
        speed = MOMENTUM * speed - RATE * gradient
        weights = weights + speed
        mean = comm.all_reduce(np.array([loss]), "avg")
        if words.checkpoint and comm.rank == 0 and (step + 1) % words.save == 0:
            save(words.checkpoint, step + 1, weights, speed)
    if comm.rank == 0:
        print(f"loss {mean[0]:.6f}, exactly {float(mean[0]).hex()}")


if __name__ == "__main__":
    main()
