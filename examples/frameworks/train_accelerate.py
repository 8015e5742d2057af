"""A training loop of Accelerate's on backend weft.

torchrun --nproc-per-node 2 examples/frameworks/train_accelerate.py

Accelerate takes a backend by name only where it finds a GPU: on CPUs it knows gloo and mpi, and refuses
``InitProcessGroupKwargs(backend="weft")``. It uses a group that is there already, so make one before.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate import Accelerator
from job import average, make_data, make_model, make_parser, report

import weft.torch  # noqa: F401 - registers the backend


def main() -> None:
    """Train."""
    words = make_parser(__doc__.splitlines()[0]).parse_args()
    dist.init_process_group(words.backend)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(make_data(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _, (inputs, wanted) in zip(range(words.steps), loader, strict=False):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    # Two of its own ways, which must agree with the plain collective.
    gathered = accelerator.gather_for_metrics(loss.detach()).mean().item()
    reduced = accelerator.reduce(loss.detach(), reduction="mean").item()
    mean = average(loss)
    if max(abs(gathered - mean), abs(reduced - mean)) > 1e-6:
        message = f"rank {dist.get_rank()}: gathered {gathered}, reduced {reduced}, but the mean is {mean}"
        raise RuntimeError(message)
    report(mean)
    accelerator.end_training()  # this destroys the group as well


if __name__ == "__main__":
    main()
