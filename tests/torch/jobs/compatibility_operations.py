"""Reductions of integers and of sparse tensors.

Run by tests/torch/test_compatibility.py.
"""

import pytest
import torch
import torch.distributed as dist
from compatibility_check import check
from support.torch_rank import N, R

import weft

whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
fold = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
parts = [torch.tensor([r + 1, 12 - r, 5 * r]) for r in range(N)]
for dtype in (*whole, torch.bool):
    for name, function in fold.items():
        expected = parts[0].to(dtype, copy=True)
        for part in parts[1:]:
            expected = function(expected, part.to(dtype))
        found = parts[R].to(dtype, copy=True)
        dist.all_reduce(found, getattr(dist.ReduceOp, name))
        check(found, expected, dtype, name)
for dtype in whole[1:]:  # rounded towards zero, as NCCL does it
    for sign in (1, -1):
        found = sign * parts[R].to(dtype)
        dist.all_reduce(found, dist.ReduceOp.AVG)
        check(found, [sign * int(column.sum() // N) for column in torch.stack(parts).t()], dtype, sign)
with pytest.raises(TypeError, match=r"Cannot use ReduceOp.BAND with non-integral dtype"):
    dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)

# One tensor twice in a list is reduced once: its results do not become inputs.
twice = torch.full((2,), float(R + 1))
dist.all_reduce_coalesced([twice, twice])
check(twice, [N * (N + 1) / 2] * 2)

place = torch.tensor([[0, R + 1]])
for op, values in (("SUM", [N, 2.0]), ("AVG", [1.0, 2.0 / N])):
    found = torch.sparse_coo_tensor(place, torch.tensor([1.0, 2.0]), (N + 2,), check_invariants=True)
    dist.all_reduce(found, getattr(dist.ReduceOp, op))
    assert found.is_sparse
    check(found.to_dense(), [values[0], *[values[1]] * N, 0.0], op)
rows = torch.sparse_coo_tensor(torch.tensor([[R % 2]]), torch.ones(1, 3), (2, 3), check_invariants=True)
dist.all_reduce(rows)  # rows of a dense dimension, as embeddings have
check(rows.to_dense(), [[float((N + 1 - row) // 2)] * 3 for row in range(2)])
nothing = torch.zeros(4).to_sparse()
dist.all_reduce(nothing)
check(nothing.to_dense(), [0.0] * 4)
with pytest.raises(TypeError, match="only SUM and AVG"):
    dist.all_reduce(rows, dist.ReduceOp.MAX)
whole = torch.tensor([0, -7, 7 * R]).to_sparse()
dist.all_reduce(whole, dist.ReduceOp.AVG)
check(whole.to_dense(), [0, -7, 7 * (N - 1) // 2])
with pytest.raises(TypeError, match=r"AVG of torch.bool"):
    dist.all_reduce(torch.ones(2, dtype=torch.bool).to_sparse(), dist.ReduceOp.AVG)
wrong = torch.sparse_coo_tensor(place, torch.ones(2), (N + 2 + R,), check_invariants=True)
with pytest.raises(weft.DesyncError):
    dist.all_reduce(wrong)
dist.destroy_process_group()
