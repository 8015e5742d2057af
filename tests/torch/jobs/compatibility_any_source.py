"""Receives from any source.

Run by tests/torch/test_compatibility.py.
"""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from compatibility_check import check, group
from support.torch_rank import N, R

import weft

if R == 0:
    found = []
    for _ in range(2 * (N - 1)):
        box = torch.zeros(2)
        source = dist.recv(box)
        found.append((source, *box.tolist()))
    assert sorted(found) == sorted((r, r, k) for r in range(1, N) for k in range(2)), found
    # Of one rank, they come in the order in which they were sent.
    assert [k for r, _, k in found if r == 1] == [0, 1], found
else:
    for k in range(2):
        dist.send(torch.tensor([R, k], dtype=torch.float32), 0)
dist.barrier()

# Tags select, also among those of any rank.
if R == 0:
    later, now = torch.zeros(1), torch.zeros(1)
    source = dist.recv(now, tag=2)
    assert dist.recv(later, tag=1) == source == 1
    check(now, [2.0])
    check(later, [1.0])
elif R == 1:
    works = [dist.isend(torch.full((1,), float(tag)), 0, tag=tag) for tag in (1, 2)]
    for work in works:
        work.wait()
dist.barrier()

# A connection that is listened to still serves receives that name their sender, and gives them up in time.
if R == 0:
    box = torch.zeros(1)
    dist.recv(box, 1)
    check(box, [7.0])
    group.set_timeout(timedelta(seconds=0.5))
    late = [dist.irecv(box, source) for source in (None, 1)]
    for work, missing in zip(late, ((1, 2), (1,)), strict=False):
        with pytest.raises(weft.TimedOut, match=r"Timed out waiting 500ms: ranks? 1"):
            work.wait()
        assert work.exception().missing == missing, work.exception()
    group.get_group_store().set("ended", "")
else:
    if R == 1:
        dist.send(torch.full((1,), 7.0), 0)
    group.get_group_store().wait(["ended"])
dist.destroy_process_group()
