"""The Trainer of Hugging Face's transformers on backend weft, with a tiny GPT-2 that is made here.

torchrun --nproc-per-node 2 examples/frameworks/train_transformers.py

``TrainingArguments(ddp_backend="weft", use_cpu=True)`` is refused by Accelerate, which on CPUs takes gloo and
mpi only. The Trainer uses a group that is there already, so make one before.
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from job import make_parser, report
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import weft.torch  # noqa: F401 - registers the backend

WORDS, LENGTH, SAMPLES = 50, 12, 128


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Each word is the one before plus a step, so that there is something to learn."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(LENGTH) * (index % 5 + 1) + index) % WORDS
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    """Train."""
    words = make_parser(__doc__.splitlines()[0]).parse_args()
    dist.init_process_group(words.backend)
    set_seed(0)
    # Without dropout: it would draw other numbers on each rank, and runs could not be compared.
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    size = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**size, **quiet, **ends))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=words.steps,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=5e-3,
            logging_steps=words.steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
        trainer.train()
        evaluated = trainer.evaluate()["eval_loss"]
    if dist.get_rank() == 0:
        trained = next(entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry)
        print(f"logged train={trained:.9f}")
    report(evaluated)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
