"""What the examples share and what is not about Weft: words of the command line, checkpoints, progress."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import weft.torch


def parse(description: str, *, width: int, depth: int, steps: int) -> argparse.Namespace:
    """Words of the command line, of an example whose model is so wide and deep by default."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--way", choices=("dear", "ddp"), default="dear", help="DeAR, or DistributedDataParallel to compare")
    add("--backend", choices=("weft", "gloo"), default="weft", help="process group")
    add("--mode", choices=("gradients", "parameters"), default="gradients", help="what DeAR gathers")
    add("--policy", choices=("auto", "dear", "wfbp"), default="auto", help="pins what DeAR would choose")
    add("--fusion", help="pins how much travels together, such as 25MB")
    add("--steps", type=int, default=steps)
    add("--width", type=int, default=width, help="of the model")
    add("--depth", type=int, default=depth, help="blocks of the model, or of each stage")
    add("--report", type=int, default=10, metavar="STEPS", help="print the loss every so many steps")
    add("--checkpoint", type=Path, metavar="FILE", help="save to it, and go on from it if it is there")
    add("--save", type=int, default=10, metavar="STEPS", help="save every so many steps")
    add("--profile", type=Path, metavar="FILE", help="write a trace for ui.perfetto.dev, print a summary")
    words = parser.parse_args()
    if words.profile and words.way == "ddp":
        parser.error("--profile looks at DeAR; leave out --way ddp")
    return words


class Training:
    """Steps of a training loop: from the checkpoint, if there is one, to the last.

    Parameters
    ----------
    words
        Of the command line.
    model, optimizer
        What a checkpoint holds.
    count, unit
        What one rank trains on in a step, for the speed that is printed: 16 samples.
    """

    def __init__(
        self,
        words: argparse.Namespace,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        count: int,
        unit: str,
    ) -> None:
        self._words, self._model, self._optimizer = words, model, optimizer
        self._count, self._unit = count, unit
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        # In mode parameters every rank holds the state of its own share, so that each has a file.
        self._shares = words.way == "dear" and words.mode == "parameters"

    def steps(self) -> Iterator[int]:
        """Numbers of the steps, saving in between."""
        first = self._resume() if self._words.checkpoint else 0
        self._clock, self._reported = time.perf_counter(), first
        with self._profiled():
            for step in range(first, self._words.steps):
                yield step
                if self._words.checkpoint and (step + 1) % self._words.save == 0:
                    self._save(step + 1)

    def report(self, step: int, loss: torch.Tensor) -> None:
        """Print the mean loss of all ranks, and the speed since the last report; every rank calls this."""
        done = step + 1
        if done % self._words.report and done != self._words.steps:
            return
        mean = loss.detach() / self._ranks
        dist.all_reduce(mean)
        now = time.perf_counter()
        speed = (done - self._reported) * self._count * self._ranks / (now - self._clock)
        if self._rank == 0:
            print(f"step {done:4}  loss {mean.item():.6f}  {speed:8,.0f} {self._unit}/s", flush=True)
        self._clock, self._reported = now, done

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[None]:
        if not self._words.profile:
            yield
            return
        with weft.torch.profile(self._optimizer, self._words.profile) as seen:
            yield
        if self._rank == 0:
            print(seen.summary())

    def _save(self, step: int) -> None:
        """Leave a whole file or none, and keep the one before until all ranks have this one."""
        state = {"step": step, "model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        if self._shares or self._rank == 0:
            file = self._file(step)
            torch.save(state, file.with_name(f"{file.name}.new"))
            file.with_name(f"{file.name}.new").replace(file)
        if self._shares:
            dist.barrier()
            self._file(step - self._words.save).unlink(missing_ok=True)

    def _resume(self) -> int:
        """Step to go on with."""
        step = self._newest() if self._shares else 0
        file = self._file(step)
        if not file.exists():
            return 0
        state: dict[str, Any] = torch.load(file, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rank == 0:
            print(f"goes on from {file} at step {state['step']}", flush=True)
        return int(state["step"])

    def _newest(self) -> int:
        """Newest step of which every rank has its share: one may have died before it had saved the last."""
        found: list[Any] = [None] * self._ranks
        mine = self._words.checkpoint.parent.glob(
            f"{self._words.checkpoint.name}.rank{self._rank}.step*[0-9]"
        )
        dist.all_gather_object(found, [int(file.name.rpartition("step")[2]) for file in mine])
        return max(set.intersection(*map(set, found)), default=0)

    def _file(self, step: int) -> Path:
        file: Path = self._words.checkpoint
        return file.with_name(f"{file.name}.rank{self._rank}.step{step}") if self._shares else file
