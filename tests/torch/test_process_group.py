"""Every collective of a process group of backend weft, against what it must give."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from support.groups import run_group
from torch import distributed as dist

from weft.torch import WeftProcessGroup

# What is no collective: torch's own accounts of a group, which work on its stand-in.
NOT_COLLECTIVES = {
    "boxed",
    "merge_remote_group",
    "rank",
    "size",
    "split_group",
    "unbox",
    "_backend_id",
    "_enable_collectives_timing",
    "_get_backend",
    "_get_sequence_number_for_group",
    "_has_hooks",
    "_id",
    "_pybind11_conduit_v1_",
    "_register_backend",
    "_register_on_completion_hook",
    "_set_default_backend",
    "_set_group_desc",
    "_set_group_name",
    "_set_sequence_number_for_group",
    "_wait_for_pending_works",
}


def test_every_collective_that_torch_knows_is_overridden() -> None:
    known = {
        name
        for name, value in inspect.getmembers(dist.ProcessGroup, callable)
        if not name.startswith("__") and not inspect.isclass(value)
    }
    own = {name for name in known if getattr(WeftProcessGroup, name) is not getattr(dist.ProcessGroup, name)}
    assert known - own == NOT_COLLECTIVES


COLLECTIVES = """
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
OPS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum,
       dist.ReduceOp.PRODUCT: torch.mul}
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
                        assert work.wait() and work.is_completed() and work.is_success()
                        assert work.exception() is None and work.get_future().wait()[0] is tensor
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
assert flags.tolist() == [True, True, False] and flags.dtype == torch.bool
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
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_give_exactly_what_they_should(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, COLLECTIVES)


REFUSED = """
def refused(kind, text, call, *words, **options):
    try:
        call(*words, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

x = torch.ones(4)
refused(TypeError, "uint16 can be moved but not added", dist.all_reduce, x.to(torch.uint16))
refused(TypeError, "only BAND, BOR, BXOR, MAX, MIN", dist.all_reduce, x.to(torch.bool), dist.ReduceOp.AVG)
refused(TypeError, "non-integral dtype", dist.all_reduce, x, dist.ReduceOp.BAND)
refused(TypeError, "not supported", dist.all_reduce, x, dist._make_nccl_premul_sum(2.0))
refused(TypeError, "share memory", dist.all_reduce, torch.ones(1).expand(4))
refused(TypeError, "to_dense", dist.broadcast, torch.eye(3).to_sparse(), 0)
refused(TypeError, "CPUs, not on meta", dist.all_reduce, torch.ones(3, device="meta"))
refused(weft.InputError, "do not fit", dist.all_gather_into_tensor, torch.ones(7), x)
refused(weft.InputError, "has no peer", dist.group.WORLD.send, [x], R)
refused(weft.InputError, "are not the 4", dist.all_to_all_single, x, x, [1] * N, [1] * N) if N != 4 else None
other = dist.new_group(backend="gloo")
refused(weft.InputError, "weft.torch.connect takes any", weft.torch.communicator, other)
assert weft.torch.communicator().size == N and weft.torch.communicator(dist.group.WORLD).last is None
dist.all_reduce(x)
assert x[0] == N and weft.torch.communicator().last.collective == "all_reduce"
"""


def test_what_is_not_supported_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    run_group(tmp_path, 2, REFUSED)


def test_options_are_weft_options() -> None:
    from weft.torch.process_group import create

    with pytest.raises(TypeError, match=r"weft\.torch\.Options, not dict"):
        create(None, {})  # type: ignore[arg-type]


GROUPS = """
from weft.torch import Options

groups = [dist.new_group() for _ in range(20)]
works = []
for index, group in enumerate(groups):
    tensor = torch.full((1000,), float(index + R))
    works.append((index, tensor, dist.all_reduce(tensor, group=group, async_op=True)))
for index, tensor, work in works:
    work.wait()
    assert tensor[0] == N * index + sum(range(N))
for group in groups[::2]:
    dist.destroy_process_group(group)
alone = [dist.new_group([rank]) for rank in range(N)][R]
x = torch.ones(3)
dist.all_reduce(x, group=alone)
dist.broadcast(x, R, group=alone)
found = [torch.zeros(3)]
dist.all_gather(found, x, group=alone)
out = torch.zeros(3)
dist.reduce_scatter_tensor(out, x, group=alone)
dist.all_to_all_single(out, x, group=alone)
dist.barrier(group=alone)
assert x.tolist() == found[0].tolist() == out.tolist() == [1.0] * 3
local = dist.new_group([0, N - 1] if R in (0, N - 1) else [1, 2], use_local_synchronization=True)
dist.all_reduce(x, group=local)
assert x[0] == 2
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, N // 2), mesh_dim_names=("replicate", "shard"))
x = torch.tensor([float(R)])
dist.all_reduce(x, group=mesh.get_group("shard"))
assert x[0] == sum(r for r in range(N) if r // (N // 2) == R // (N // 2))
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
table = torch.arange(16.0).view(8, 2)
row = init_device_mesh("cpu", (N,))
sharded = distribute_tensor(table, row, [Shard(0)])
assert torch.equal((sharded + 1).full_tensor(), table + 1)
chosen = dist.new_group(pg_options=Options(algorithm="ring", transport="tcp"))
dist.all_reduce(torch.ones(5000), group=chosen)
assert weft.torch.communicator(chosen).last.algorithm == "ring"
planned = dist.new_group(pg_options=Options(topology=f"ring:{N}", plan_time_limit=1.0))
dist.all_reduce(torch.ones(5000), group=planned)
assert weft.torch.communicator(planned).plan.topology.ranks == N
before = dist.group.WORLD
dist.destroy_process_group()
dist.init_process_group(BACKEND, store=dist.FileStore(WORDS[0], N), rank=R, world_size=N)
dist.all_reduce(x.fill_(1))
assert x[0] == N
try:
    before.allreduce([x])
except weft.RuntimeFailure as error:
    assert "has destroyed this process group" in str(error)
else:
    raise AssertionError
"""


def test_groups_of_some_ranks_and_many_of_them(tmp_path: Path) -> None:
    run_group(tmp_path, 4, GROUPS, str(tmp_path / "store"))


TOPOLOGY = """
assert weft.torch.communicator().plan.topology.ranks == N
part = dist.new_group([0, 1])
if R < 2:
    assert weft.torch.communicator(part).plan is None
"""


def test_the_topology_of_the_environment_is_that_of_all_ranks(tmp_path: Path) -> None:
    run_group(tmp_path, 3, TOPOLOGY, variables={"WEFT_TOPOLOGY": "ring:3"})


FUNCTIONAL = """
import torch.distributed._functional_collectives as fc
world = dist.group.WORLD
x = torch.arange(4.0) + R
everything = [torch.arange(4.0) + r for r in range(N)]

# The names of torch 2.13, and those of 2.12.
gather = getattr(fc, "all_gather_single", None) or fc.all_gather_tensor
reduce_scatter = getattr(fc, "reduce_scatter_single", None) or fc.reduce_scatter_tensor

def compute(x):
    total = fc.all_reduce(x, "sum", world)
    joined = gather(x, 0, world)
    share = reduce_scatter(joined, "avg", 0, world)
    first = fc.broadcast(x, 0, world)
    turned = fc.all_to_all_single(joined, None, None, world)
    return total * 2, joined + 1, share, first, turned

total, joined = sum(everything), torch.cat(everything)
expected = total * 2, joined + 1, everything[R], everything[0], everything[R].repeat(N)
for call in (compute, torch.compile(compute, fullgraph=True)):
    for found, wanted in zip(call(x), expected, strict=True):
        assert torch.equal(found, wanted), (found, wanted)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_functional_collectives_also_compiled(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, FUNCTIONAL)


def test_the_backend_is_registered_on_import() -> None:
    assert dist.Backend("weft") == "weft"
    assert torch.distributed.Backend.backend_capability["weft"] == ["cpu"]
