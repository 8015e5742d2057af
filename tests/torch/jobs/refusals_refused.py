"""A wrong argument is refused at the call and the group lives on.

Run by tests/torch/test_refusals.py.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from refusals_cases import (
    CASES,
    LONG,
    MESSAGES,
    P,
    check_alive,
    irecv,
    isend,
    ones,
    refused,
    world,
    wrong,
)
from support.torch_rank import R

for name, case in CASES.items():
    for later in (False, True):
        refused(name, case, later)
        check_alive(name, later)
for way in (isend, irecv):
    for name, case in MESSAGES.items():
        refused(f"{way.__name__}: {name}", case, way)
        check_alive(way.__name__, name)
for method in (world.send, world.recv):
    refused(f"{method.__name__} of two", method, [ones(4), ones(4)], P, 0)
    refused(f"{method.__name__} of none", method, [], P, 0)
check_alive("two")
for value in (timedelta(0), timedelta(seconds=-1), LONG):
    refused(f"set_timeout({value})", world.set_timeout, value)
assert not wrong, wrong

here, there = torch.full((4,), float(R)), ones(4)
works = [dist.isend(here, P), dist.irecv(there, P)]
for work in works:
    work.wait()
assert (there == P).all()
dist.destroy_process_group()
