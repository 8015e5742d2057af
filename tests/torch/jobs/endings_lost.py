"""What cannot be finished raises where it is waited for.

A rank that another waits for is killed while that one destroys the group.

Run by tests/torch/test_endings.py.
"""

import json
import time
import warnings

import torch
import torch.distributed as dist
from support.torch_rank import R

import weft

dist.barrier()
if R == 1:
    print("ready", flush=True)
    time.sleep(60)
x, y = torch.ones(1000), torch.ones(1000)
works = {"all_reduce": dist.all_reduce(x, async_op=True), "recv": dist.irecv(y, 1)}
print("ready", flush=True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    dist.destroy_process_group()
told = {}
for name, work in works.items():
    try:
        work.wait()
    except weft.PeerLost as error:
        told[name] = error.rank
print(json.dumps([told, str(said[0].message), bool(x.isnan().all()), bool(y.isnan().all())]), flush=True)
