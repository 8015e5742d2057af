"""What would be kept without bound is refused and harms nothing.

What would be kept without end is refused, and can be received then.

Run by tests/torch/test_messages.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import R

import weft
from weft import limits

limits.MAX_UNEXPECTED_BYTES = 10_000
if R == 0:
    works = [dist.isend(torch.full((1000,), float(tag)), 1, tag=tag) for tag in range(5)]
    for work in works:
        work.wait()
else:
    room = torch.zeros(1000)
    for work in (lambda: dist.recv(room, 0, tag=4), lambda: dist.irecv(room, 0, tag=4).wait()):
        try:
            work()
        except weft.LimitError as error:
            assert "2 messages of 8,000 bytes" in str(error) and "tag 2 next" in str(error), error
        else:
            raise AssertionError
    for tag in (2, 0, 4, 3, 1):
        dist.recv(room, 0, tag=tag)
        assert (room == tag).all(), (tag, room)
dist.barrier()
dist.destroy_process_group()
