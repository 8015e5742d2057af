"""A group that is aborted cancels what is under way.

Run by tests/torch/test_endings.py.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from support.torch_rank import BACKEND, WORDS, N, R

import weft

began = time.monotonic()
aborted = Path(f"{WORDS[0]}-aborted")
groups = [dist.new_group() for _ in range(2)]
dist.barrier()
x, y, z = (torch.ones(100_000) for _ in range(3))
if R == 0:
    works = [dist.all_reduce(x, group=groups[0], async_op=True) for _ in range(2)]
    works += [dist.irecv(y, 1, group=groups[0]), dist.isend(z, 2, group=groups[0])]
    time.sleep(0.2)
    groups[0].abort()
    aborted.touch()
    for work in works:
        assert work.is_completed()
        try:
            work.wait()
        except weft.RuntimeFailure as error:
            assert "aborted" in str(error), error
        else:
            raise AssertionError
    assert x.isnan().all()
    assert y.isnan().all()
    assert (z == 1).all()
    try:
        dist.all_reduce(x, group=groups[0])
    except weft.RuntimeFailure:
        pass
    else:
        raise AssertionError
else:
    while R == 2 and not aborted.exists():  # so that no operation can be over before it is cancelled
        assert time.monotonic() - began < 60
        time.sleep(0.02)
    try:
        dist.all_reduce(x, group=groups[0])
    except weft.PeerLost as error:
        assert error.rank == 0
    else:
        raise AssertionError
assert time.monotonic() - began < 60
dist.all_reduce(x.fill_(1), group=groups[1])  # another group of the same ranks is as it was
assert (x == N).all()
dist.distributed_c10d._abort_process_group()
assert not dist.is_initialized()
dist.init_process_group(BACKEND, store=dist.FileStore(WORDS[0], N), rank=R, world_size=N)
dist.destroy_process_group()
