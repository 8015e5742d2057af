"""What is under way when a group is destroyed is finished.

Run by tests/torch/test_endings.py.
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from endings_cases import STARTS, listed
from support.torch_rank import R

wrong = []
for first in range(4):
    group = dist.new_group(timeout=timedelta(seconds=30))
    time.sleep(0.1 * R)
    started = [(start, *start(group)) for start in STARTS[first::4] for _ in range(2)]
    dist.destroy_process_group(group)
    for start, works, found, expected in started:
        try:
            assert all(work.is_completed() for work in listed(works)), "is under way"
            for work in listed(works):
                work.wait()
            assert all(map(torch.equal, listed(found), listed(expected))), "differs"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            wrong.append(f"{start.__name__}: {type(error).__name__}: {error}")
assert not wrong, wrong
dist.destroy_process_group()
