"""A rank that runs blocks of a page, with what a reader has: a model, data, a group if a block makes none."""

import contextlib
import json
import os
import sys

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
        "contextlib": contextlib,
        "torch": torch,
        "dist": dist,
        "weft": weft,
        "model": nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 5)),
        "loader": given,
        "criterion": nn.MSELoss(),
        "inputs": given[0][0],
        "targets": given[0][1],
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
