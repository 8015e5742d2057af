"""Many in flight give what each gives alone.

Many in flight, of several kinds in turn, and other collectives between them whose results are sent on.

Run by tests/torch/test_windows.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R


def value(rank, number):
    return float(rank * 10_000 + number)


def start(number, root, elements, dtype):
    mine = torch.full((elements,), value(R, number)).to(dtype)
    room = [torch.zeros(elements, dtype=dtype) for _ in range(N)] if root == R else None
    return dist.gather(mine, room, dst=root, async_op=True), room


def deal(number, root, elements, dtype):
    parts = [torch.full((elements,), value(r, number)).to(dtype) for r in range(N)] if root == R else None
    room = torch.zeros(elements, dtype=dtype)
    return dist.scatter(room, parts, src=root, async_op=True), room


kinds = [(0, 3, torch.float64), (0, 3, torch.float32), (1, 1, torch.int64), (0, 0, torch.float32)]
kinds += [(1, 256, torch.float32), (1, 257, torch.float32), (0, 5, torch.float32)]
started = []
for number in range(700):
    kind = kinds[number // 100]
    started.append(("gather", number, kind, *start(number, *kind)))
for number in range(700):
    kind = kinds[number // 100]
    started.append(("scatter", number, kind, *deal(number, *kind)))
for number in range(60):  # no two alike follow each other
    make = start if number % 2 else deal
    started.append(("gather" if number % 2 else "scatter", number, kinds[0], *make(number, *kinds[0])))
for name, number, (root, elements, dtype), work, room in started:
    work.wait()
    if name == "gather" and root == R:
        expected = [torch.full((elements,), value(r, number)).to(dtype) for r in range(N)]
        assert all(map(torch.equal, room, expected)), (number, room)
    elif name == "scatter":
        assert torch.equal(room, torch.full((elements,), value(R, number)).to(dtype)), (number, room)

# What an operation computes is what the next one sends, whatever is queued behind.
total = torch.ones(2)
rooms, works = [], []
for _ in range(20):
    works.append(dist.all_reduce(total, async_op=True))
    for _ in range(3):
        rooms.append([torch.zeros(2) for _ in range(N)] if R == 0 else None)
        works.append(dist.gather(total, rooms[-1], dst=0, async_op=True))
for work in works:
    work.wait()
if R == 0:
    for number, room in enumerate(rooms):
        assert all(part.tolist() == [float(N ** (number // 3 + 1))] * 2 for part in room), (number, room)

# The root's own part, and tensors that are not contiguous.
grid = torch.arange(12.0).reshape(4, 3).t() + 100 * R
room = [torch.zeros(4, 3).t() for _ in range(N)] if R == 1 else None
dist.gather(grid, room, dst=1)
if R == 1:
    expected = [torch.arange(12.0).reshape(4, 3).t() + 100 * r for r in range(N)]
    assert all(map(torch.equal, room, expected)), room
dist.destroy_process_group()
