"""What several jobs of tests/torch/test_compatibility.py share."""

import torch
import torch.distributed as dist
from support.torch_rank import R

group = dist.group.WORLD


def check(found, expected, *what):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    assert found.shape == expected.shape and torch.equal(found, expected), (R, *what, found, expected)
