"""Collectives give exactly what they should.

Run by tests/torch/test_process_group.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R


def part(rank, *shape, dtype=torch.float32):
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count) * 3 + rank) % 7).reshape(shape).to(dtype)


def check(found, expected, *what):
    assert found.dtype == expected.dtype and torch.equal(found, expected), (R, *what, found, expected)


def strided(tensor):
    room = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    room[..., 0] = tensor
    return room[..., 0]


def same(a, b):
    fresh = [torch.empty(t.shape, dtype=t.dtype).copy_(t).view(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*fresh)


BYTES = (torch.bool, torch.uint16, torch.complex64, torch.complex128, torch.float8_e4m3fn)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TYPES += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
OPS = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.PRODUCT: torch.mul,
}
SHAPES = ((), (0,), (1,), (5,), (3, 4), (40_000,))

for dtype in TYPES:
    for shape in SHAPES:
        parts = [part(r, *shape, dtype=dtype) for r in range(N)]
        for op, fold in OPS.items():
            total = parts[0].clone()
            for other in parts[1:]:
                total = fold(total, other)
            for make in (torch.clone, strided):
                for async_op in (False, True):
                    tensor = make(parts[R])
                    work = dist.all_reduce(tensor, op, async_op=async_op)
                    assert (work is not None) == async_op
                    if async_op:
                        assert work.wait()
                        assert work.is_completed()
                        assert work.is_success()
                        assert work.exception() is None
                        assert work.get_future().wait()[0] is tensor
                    check(tensor, total, "all_reduce", dtype, shape, op)
            tensor = parts[R].clone()
            dist.reduce(tensor, N - 1, op)
            check(tensor, total if R == N - 1 else parts[R], "reduce", dtype, shape, op)
        if dtype.is_floating_point:
            tensor = torch.full(shape, float(R), dtype=dtype)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            check(tensor, torch.full(shape, (N - 1) / 2, dtype=dtype), "avg", dtype, shape)

for dtype in TYPES + BYTES:
    for shape in SHAPES:
        for make in (torch.clone, strided):
            parts = [part(r, *shape, dtype=dtype) for r in range(N)]
            tensor = make(parts[R])
            dist.broadcast(tensor, N - 1)
            assert same(tensor, parts[N - 1]), (dtype, shape)
            outs = [make(torch.zeros_like(parts[0])) for _ in range(N)]
            dist.all_gather(outs, make(parts[R]))
            assert all(map(same, outs, parts)), (dtype, shape)
            whole = torch.zeros(N, *shape, dtype=dtype)
            dist.all_gather(list(whole), parts[R])
            assert same(whole, torch.stack(parts))
            if shape:
                whole = make(torch.zeros(N * shape[0], *shape[1:], dtype=dtype))
                dist.all_gather_into_tensor(whole, make(parts[R]))
                assert same(whole, torch.cat(parts))
            outs = [make(torch.zeros_like(parts[0])) for _ in range(N)]
            dist.gather(make(parts[R]), outs if R == 1 else None, dst=1)
            assert R != 1 or all(map(same, outs, parts)), (dtype, shape)
            tensor = make(torch.zeros_like(parts[0]))
            dist.scatter(tensor, [make(p) for p in parts] if R == 1 else None, src=1)
            assert same(tensor, parts[R]), (dtype, shape)
            ins = [make(part(10 * R + r, *shape, dtype=dtype)) for r in range(N)]
            outs = [make(torch.zeros_like(parts[0])) for _ in range(N)]
            dist.all_to_all(outs, ins)
            assert all(same(outs[r], part(10 * r + R, *shape, dtype=dtype)) for r in range(N))
            tensor = make(torch.zeros_like(parts[0]))
            works = [dist.isend(make(parts[R]), (R + 1) % N), dist.irecv(tensor, (R - 1) % N)]
            assert all(work.wait() for work in works)
            assert same(tensor, parts[R - 1]), (dtype, shape)

for dtype in TYPES:
    for n in (0, 1, 5, 40_000):
        parts = [part(r, n * N, dtype=dtype) for r in range(N)]
        total = sum(parts[1:], parts[0].clone())[R * n : (R + 1) * n]
        for make in (torch.clone, strided):
            for async_op in (False, True):
                out, source = make(torch.zeros(n, dtype=dtype)), make(parts[R])
                work = dist.reduce_scatter_tensor(out, source, async_op=async_op)
                if async_op:
                    work.wait()
                check(out, total, "reduce_scatter_tensor", dtype, n)
                check(source, parts[R], "its input", dtype, n)
            out = make(torch.zeros(n, dtype=dtype))
            dist.reduce_scatter(out, [make(p) for p in parts[R].view(N, n)])
            check(out, total, "reduce_scatter", dtype, n)

sizes = [r + 1 for r in range(N)]
outs = [torch.zeros(size) for size in sizes]
dist.all_gather(outs, torch.full((R + 1,), float(R)))
assert [out.tolist() for out in outs] == [[float(r)] * (r + 1) for r in range(N)]
out = torch.zeros(R + 1)
dist.reduce_scatter(out, [torch.full((size,), float(R)) for size in sizes])
assert out.tolist() == [sum(range(N))] * (R + 1)
rows = torch.arange(N * (N + 1) // 2).repeat_interleave(2).view(-1, 2) + 100 * R
found = torch.zeros(N * (R + 1), 2, dtype=torch.int64)
dist.all_to_all_single(found, rows, [R + 1] * N, sizes)
first = R * (R + 1) // 2
assert found[:, 0].tolist() == [100 * r + first + i for r in range(N) for i in range(R + 1)], found
even = torch.zeros(2 * N, dtype=torch.int64)
dist.all_to_all_single(even, torch.arange(2 * N) + 100 * R)
assert even.tolist() == [100 * r + 2 * R + i for r in range(N) for i in range(2)]

flags = torch.tensor([R == 0, True, False])
dist.all_reduce(flags, dist.ReduceOp.MAX)
assert flags.tolist() == [True, True, False]
assert flags.dtype == torch.bool
dist.all_reduce(flags, dist.ReduceOp.BAND)
assert flags.tolist() == [True, True, False]
waves = torch.full((3,), 1 + 1j * R)
dist.all_reduce(waves)
assert waves[0].item() == N + 1j * sum(range(N))

tensors = [torch.full((3,), R), torch.full((2,), R)]
dist.all_reduce_coalesced(tensors)
assert tensors[0][0] == tensors[1][0] == sum(range(N))
with dist._coalescing_manager():
    for tensor in tensors:
        dist.all_reduce(tensor)
assert tensors[0][0] == N * sum(range(N))
with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
    for tensor in tensors:
        dist.broadcast(tensor.fill_(R), N - 1)
manager.wait()
assert tensors[0][0] == tensors[1][0] == N - 1
sends = dist.P2POp(dist.isend, torch.full((2,), R), (R + 1) % N)
pairs = [sends, dist.P2POp(dist.irecv, tensors[1], (R - 1) % N)]
for work in dist.batch_isend_irecv(pairs):
    work.wait()
assert tensors[1].tolist() == [(R - 1) % N] * 2
with torch.inference_mode():
    made = strided(torch.ones(4))
dist.all_reduce(made)
assert made.tolist() == [N] * 4
weight = torch.nn.Parameter(torch.ones(4))
dist.broadcast(weight, 0)
dist.all_reduce(weight)
assert weight[0] == N
works = [dist.all_reduce(torch.full((10,), float(i)), async_op=True) for i in range(50)]
assert dist.all_reduce(torch.ones(1)) is None
dist.barrier()
dist.group.WORLD.monitored_barrier()
assert all(work.is_completed() for work in works)
everybody = [None] * N
dist.all_gather_object(everybody, {"rank": R, "text": "x" * R})
assert [one["rank"] for one in everybody] == list(range(N))
words = [R, "words"] if R == 0 else [None, None]
dist.broadcast_object_list(words, 0)
assert words == [0, "words"]
gathered = [None] * N if R == 0 else None
dist.gather_object(("rank", R), gathered, 0)
assert R or gathered == [("rank", r) for r in range(N)]
mine = [None]
dist.scatter_object_list(mine, [f"for {r}" for r in range(N)] if R == 0 else None, 0)
assert mine == [f"for {R}"]
dist.destroy_process_group()
