"""A script that was written for torchrun: a group of the backend that is named, and then a communicator."""

import os

import torch

import weft
import weft.torch
from weft.runtime import find_place

torch.distributed.init_process_group(os.environ["BACKEND"])
total = torch.ones(3)
torch.distributed.all_reduce(total)
assert total.tolist() == [2.0] * 3
assert torch.distributed.get_rank() == int(os.environ["LOCAL_RANK"])
assert os.environ["LOCAL_WORLD_SIZE"] == "2"
torch.distributed.destroy_process_group()
place = find_place()
assert place.launcher == "weft" and place.secret is not None
assert str(place.port) == os.environ["WEFT_PORT"] != os.environ["MASTER_PORT"]
with weft.init() as comm:
    print("done", comm.rank, flush=True)
