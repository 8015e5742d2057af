"""Different operations do not pass for equal.

Run by tests/torch/test_desync.py.
"""

import torch.distributed as dist
from desync_cases import CASES
from support.torch_rank import R

import weft

passed = []
for name, calls in CASES.items():
    group = dist.new_group()
    try:
        calls[R](group)
    except weft.DesyncError as error:
        assert error.rank == 1 - R, (name, error)
    else:
        passed.append(name)
    dist.destroy_process_group(group)
assert not passed, passed
dist.destroy_process_group()
