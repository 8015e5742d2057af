"""Every Python block of the pages on training is run by two ranks; of a diff, what it becomes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.groups import start_group
from support.jobs import finish
from support.ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": 1,
    "docs/dear.md": 4,
    "docs/migration.md": 4,
    "docs/pytorch.md": 3,
}  # with so many blocks at least
BLOCK = re.compile(r"```(python|diff)\n(.*?)```\n", re.DOTALL)

# A block has what its reader has: a model, some data, and a group of ranks if it does not make one itself.
JOB = """
import contextlib, json, os, sys
import torch
import torch.distributed as dist
from torch import nn
import weft.torch

torch.set_num_threads(1)
os.chdir(sys.argv[2])
for number, (block, port) in enumerate(json.loads(sys.argv[1])):
    os.environ["MASTER_PORT"] = str(port)
    torch.manual_seed(number)
    given = [(torch.randn(4, 12), torch.randn(4, 5)) for _ in range(8)]
    names = {
        "contextlib": contextlib, "torch": torch, "dist": dist, "weft": weft,
        "model": nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 5)),
        "loader": given, "criterion": nn.MSELoss(), "inputs": given[0][0], "targets": given[0][1],
    }
    if "init_process_group" not in block:
        dist.init_process_group("weft")
    try:
        exec(compile(block, f"block {number}", "exec"), names)
    except BaseException:
        print(block, flush=True)
        raise
    if isinstance(names.get("optimizer"), weft.torch.DeAR):
        names["optimizer"].close()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    print("done", number, flush=True)
"""


def new_side(diff: str) -> str:
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] != "-") + "\n"


def blocks(page: str) -> list[str]:
    """Return the blocks for PyTorch, for two ranks; surviving a loss has a test of its own."""
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    texts = [text if kind == "python" else new_side(text) for kind, text in found]
    chosen = [text for text in texts if "torch" in text and "shrink()" not in text]
    return [text.replace("torus:2x4", "ring:2") for text in chosen]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert len(found) >= PAGES[page]
    given = json.dumps([(text, free_port()) for text in found])
    ended = finish(start_group(tmp_path, 2, JOB, given, str(tmp_path)), 100)
    assert [code for code, _ in ended] == [0, 0], "\n".join(output[-3000:] for _, output in ended)
    for _, output in ended:
        assert re.findall(r"^done (\d+)$", output, re.MULTILINE) == [str(n) for n in range(len(found))]
