"""A small GPT on text that is made up: DeAR, or DistributedDataParallel to compare.

torchrun --nproc-per-node 4 examples/train_gpt.py
torchrun --nproc-per-node 4 examples/train_gpt.py --mode parameters --checkpoint gpt.pt
torchrun --nproc-per-node 4 examples/train_gpt.py --way ddp --backend gloo
"""

from __future__ import annotations

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import weft.torch

BATCH, LENGTH, SYMBOLS, HEADS = 8, 64, 64, 4


class Block(nn.Module):
    """Attention to what came before, and a small network for each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.before_network = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        batch, length, width = x.shape
        heads = self.attention(self.before_attention(x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class GPT(nn.Module):
    """Symbols in, symbols out, by one table; 0.8 million parameters at width 128 and depth 4."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.positions = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, SYMBOLS, bias=False)
        nn.init.normal_(self.symbols.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.output.weight = self.symbols.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """What may follow each symbol."""
        x = self.symbols(text) + self.positions(torch.arange(text.shape[1]))
        return self.output(self.norm(self.blocks(x)))


def make_batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for the same step and rank, as a resumed job needs it: a rule, broken every tenth time."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    text = torch.randint(SYMBOLS, (BATCH, LENGTH + 1), generator=chance)
    broken = torch.rand(BATCH, LENGTH + 1, generator=chance) < 0.1
    for place in range(1, LENGTH + 1):
        text[:, place] = torch.where(broken[:, place], text[:, place], (5 * text[:, place - 1] + 3) % SYMBOLS)
    return text[:, :-1], text[:, 1:]


def main() -> None:
    """Train."""
    words = common.parse("Train a small GPT.", width=128, depth=4, steps=60)
    torch.manual_seed(0)
    model = GPT(words.width, words.depth)
    recipe = {"lr": 3e-3, "weight_decay": 0.1}

    # What a script needs of Weft: the import above, the group, the optimizer. The loop is the usual one.
    dist.init_process_group(words.backend)
    optimizer: torch.optim.Optimizer
    if words.way == "dear":
        optimizer = weft.torch.DeAR(
            model,
            torch.optim.AdamW,
            mode=words.mode,
            policy=words.policy,
            fusion=words.fusion,
            max_norm=1.0,
            **recipe,
        )
        network: nn.Module = model
    else:
        network = DistributedDataParallel(model)
        if words.backend == "weft":
            network.register_comm_hook(None, weft.torch.ddp_hook())
        optimizer = torch.optim.AdamW(model.parameters(), **recipe)

    training = common.Training(words, model, optimizer, BATCH * LENGTH, "tokens")
    for step in training.steps():
        text, following = make_batch(step, dist.get_rank())
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(text).flatten(0, 1), following.flatten())
        loss.backward()
        if words.way == "ddp":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # DeAR does it in its step, on the sums
        optimizer.step()
        training.report(step, loss)

    if isinstance(optimizer, weft.torch.DeAR):
        optimizer.close()  # the last update is applied, and the model is as it should be
    # If DDP were the last to let go of a gloo group, this process could hang: the end of the group waits for
    # gloo's threads while it holds the interpreter, and these wait for the interpreter.
    del network
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
