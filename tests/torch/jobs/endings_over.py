"""A group over a communicator that is there ends like any other.

Groups over communicators that are there already, of which a part has no list of its processes.

Run by tests/torch/test_endings.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import BACKEND, WORDS, N, R

import weft
import weft.torch

x, whole = torch.ones(10), weft.torch.connect()
part = whole.split(0)
for communicator in (part, whole):
    weft.torch.init_process_group(communicator)
    received = torch.zeros(10)
    works = [dist.isend(x.fill_(R), 1 - R), dist.irecv(received, 1 - R)]
    work = dist.all_reduce(x.clone(), async_op=True)
    waiting = dist.irecv(received, 1 - R)
    dist.destroy_process_group()
    for one in (*works, work):
        one.wait()
    try:
        waiting.wait()
    except weft.PeerLost as error:
        assert error.rank == 1 - R
    else:
        raise AssertionError
dist.init_process_group(BACKEND, store=dist.FileStore(WORDS[0], N), rank=R, world_size=N)
dist.destroy_process_group()
