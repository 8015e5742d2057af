"""Messages without another half end when both ranks leave.

Nobody sends what these receive, and nobody receives what these send: whoever leaves says so.

Run by tests/torch/test_endings.py.
"""

import warnings

import torch
import torch.distributed as dist
from support.torch_rank import R

import weft

P = 1 - R


def ended(works):
    for work in works:
        try:
            work.wait()
        except weft.PeerLost as error:
            assert error.rank == P, error
        else:
            raise AssertionError("is over")


for connected in (False, True):
    for kind in ("receives", "sends", "receives with a tag"):
        group, x = dist.new_group(), torch.ones(1000)
        if connected:
            works = [dist.isend(x, P, group=group), dist.irecv(torch.ones(1000), P, group=group)]
            for work in works:
                work.wait()
        if kind == "sends":
            works = [dist.isend(x, P, group=group)]
        else:
            works = [dist.irecv(x, P, group=group, tag=9 if "tag" in kind else 0)]
        if "tag" in kind:  # this one is received, but not asked for
            dist.isend(torch.ones(5), P, group=group)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            dist.destroy_process_group(group)
        lost = f"messages of rank {P} with tags that were never received are lost: [0]"
        assert [lost in str(one.message) for one in said].count(True) == ("tag" in kind), said
        ended(works)
dist.destroy_process_group()
