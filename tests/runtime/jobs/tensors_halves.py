"""Bfloat16 is exact in every op and collective.

Run by tests/runtime/test_tensors.py.
"""

import sys

import torch

import weft

comm = weft.init(transport=sys.argv[1])
R, N = comm.rank, comm.size
BF16 = torch.bfloat16
FOLD = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum, "prod": torch.mul}


def part(rank, n):  # small whole numbers: exact in bfloat16, whatever the order
    return ((torch.arange(n) * 7 + 3 * rank) % 4 - 1).to(BF16)


def check(found, expected, *what):
    if not isinstance(found, torch.Tensor):  # numpy has no such type, and gives its bits
        found = torch.from_numpy(found).view(BF16)
    assert found.dtype == BF16 and torch.equal(found, expected), (R, *what)


for n in (0, 1, N - 1, N + 1, 1009, 30_011):
    parts = [part(rank, n) for rank in range(N)]
    for op, fold in FOLD.items():
        total = parts[0].clone()
        for other in parts[1:]:
            total = fold(total, other)
        mine = parts[R].clone()
        comm.all_reduce(mine, op)
        check(mine, total, "all_reduce", op, n)
        size, more = divmod(n, N)
        first = R * size + min(R, more)
        share = total[first : first + size + (more > R)]
        check(comm.reduce_scatter(parts[R], op), share, "reduce_scatter", op, n)
        rooted = parts[R].clone()
        comm.reduce(rooted, N - 1, op)
        check(rooted, total if R == N - 1 else parts[R], "reduce", op, n)
    mean = parts[R].clone()
    comm.all_reduce(mean, "avg")
    check(mean, (sum(part.float() for part in parts) / N).to(BF16), "avg", n)
    check(comm.all_gather(parts[R]), torch.cat(parts), "all_gather", n)
    mine = parts[R].clone()
    comm.broadcast(mine, root=N // 2)
    check(mine, parts[N // 2], "broadcast", n)
    sent = [part(rank, n * N) for rank in range(N)]
    received = torch.cat([sent[rank][R * n : (R + 1) * n] for rank in range(N)])
    check(comm.all_to_all(sent[R]), received, "all_to_all", n)
