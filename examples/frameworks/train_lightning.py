"""Lightning's Trainer on backend weft.

torchrun --nproc-per-node 2 examples/frameworks/train_lightning.py
"""

from __future__ import annotations

import os
from typing import Any

import lightning
import torch
import torch.distributed as dist
from job import average, make_data, make_model, make_parser, report
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.strategies import DDPStrategy

import weft.torch  # noqa: F401 - registers the backend

EPOCHS = 2


class Network(lightning.LightningModule):
    """A model whose loss is logged as the mean over ranks, in each step and each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()
        self.last = torch.tensor(0.0)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Loss of a batch."""
        loss = self._loss(batch)
        self.last = loss.detach()
        self.log("loss", loss, sync_dist=True, on_step=True, on_epoch=True, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """The same, and numbers that are no floats."""
        self.log("validation", self._loss(batch), sync_dist=True, batch_size=len(batch[0]))
        self.log("samples", len(batch[0]), sync_dist=True, reduce_fx="sum", batch_size=len(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Lightning asks for it."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.net(inputs), wanted)


def main() -> None:
    """Train."""
    words = make_parser(__doc__.splitlines()[0]).parse_args()
    network, data = Network(), make_data()

    def load(**options: Any) -> torch.utils.data.DataLoader[Any]:
        return torch.utils.data.DataLoader(data, batch_size=16, **options)

    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy=DDPStrategy(process_group_backend=words.backend),
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=EPOCHS,
        max_steps=words.steps,
        callbacks=[EarlyStopping("validation", patience=EPOCHS)],  # its decision is all-reduced as well
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        log_every_n_steps=1,
    )
    trainer.fit(network, load(), load())
    logged = {name: float(value) for name, value in sorted(trainer.callback_metrics.items())}
    loss = average(network.last)
    if dist.get_rank() == 0:
        print("logged", *(f"{name}={value:.9f}" for name, value in logged.items()))
    report(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
