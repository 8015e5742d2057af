"""Who leaves after a monitored barrier takes nobody along.

Rank 0 leaves as soon as it has passed: the others have passed as well.

Run by tests/torch/test_compatibility.py.
"""

from datetime import timedelta

import support.torch_rank  # noqa: F401 - joins
import torch.distributed as dist

for _ in range(15):
    other = dist.new_group(backend="weft")
    other.monitored_barrier(timedelta(seconds=30))
    dist.destroy_process_group(other)
dist.destroy_process_group()
