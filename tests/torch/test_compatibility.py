"""What torch's own backends do and people rely on: the same with a group of backend weft."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

CHECK = """
from datetime import timedelta
import pytest

group = dist.group.WORLD
def check(found, expected, *what):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    assert found.shape == expected.shape and torch.equal(found, expected), (R, *what, found, expected)
"""

ANY_SOURCE = """
if R == 0:
    found = []
    for _ in range(2 * (N - 1)):
        box = torch.zeros(2)
        source = dist.recv(box)
        found.append((source, *box.tolist()))
    assert sorted(found) == sorted((r, r, k) for r in range(1, N) for k in range(2)), found
    # Of one rank, they come in the order in which they were sent.
    assert [k for r, _, k in found if r == 1] == [0, 1], found
else:
    for k in range(2):
        dist.send(torch.tensor([R, k], dtype=torch.float32), 0)
dist.barrier()

# Tags select, also among those of any rank.
if R == 0:
    later, now = torch.zeros(1), torch.zeros(1)
    source = dist.recv(now, tag=2)
    assert dist.recv(later, tag=1) == source == 1
    check(now, [2.0])
    check(later, [1.0])
elif R == 1:
    works = [dist.isend(torch.full((1,), float(tag)), 0, tag=tag) for tag in (1, 2)]
    for work in works:
        work.wait()
dist.barrier()

# A connection that is listened to still serves receives that name their sender, and gives them up in time.
if R == 0:
    box = torch.zeros(1)
    dist.recv(box, 1)
    check(box, [7.0])
    group.set_timeout(timedelta(seconds=0.5))
    late = [dist.irecv(box, source) for source in (None, 1)]
    for work, missing in zip(late, ((1, 2), (1,))):
        with pytest.raises(weft.TimedOut, match="Timed out waiting 500ms: ranks? 1"):
            work.wait()
        assert work.exception().missing == missing, work.exception()
    group.get_group_store().set("ended", "")
else:
    if R == 1:
        dist.send(torch.full((1,), 7.0), 0)
    group.get_group_store().wait(["ended"])
"""


def test_receives_from_any_source(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + ANY_SOURCE)


# Ranks that leave in good order concern nobody who receives from others, until nobody is left to send.
LEAVING = """
store = group.get_group_store()
if R == 2:
    dist.send(torch.full((1,), 2.0), 0)
elif R == 1:
    store.wait(["received"])  # until then only rank 2 has sent
    time.sleep(0.5)  # rank 2 has left
    dist.send(torch.full((1,), 1.0), 0)
else:
    works = [(dist.irecv(box), box) for box in torch.zeros(3, 1)]
    works[0][0].wait()
    assert works[0][0].source_rank() == 2
    store.set("received", "")
    works[1][0].wait()
    assert works[1][0].source_rank() == 1 and works[1][1].item() == 1.0
    with pytest.raises(weft.PeerLost, match="has left the process group|has closed"):
        works[2][0].wait()  # everybody has left
"""


def test_a_rank_that_leaves_does_not_end_receives_from_others(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + LEAVING)


OPERATIONS = """
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
with pytest.raises(TypeError, match="Cannot use ReduceOp.BAND with non-integral dtype"):
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
with pytest.raises(TypeError, match="AVG of torch.bool"):
    dist.all_reduce(torch.ones(2, dtype=torch.bool).to_sparse(), dist.ReduceOp.AVG)
wrong = torch.sparse_coo_tensor(place, torch.ones(2), (N + 2 + R,), check_invariants=True)
with pytest.raises(weft.DesyncError):
    dist.all_reduce(wrong)
"""


def test_reductions_of_integers_and_of_sparse_tensors(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + OPERATIONS)


CALLS = """
outputs = [[torch.zeros(2), torch.zeros(3), torch.zeros(0)] for _ in range(N)]
dist.all_gather_coalesced(outputs, [torch.full((2,), 1.0 * R), torch.full((3,), 2.0 * R), torch.zeros(0)])
for rank, (first, second, _) in enumerate(outputs):
    check(first, [rank] * 2)
    check(second, [2 * rank] * 3)
with pytest.raises(weft.InputError, match="2 outputs for 1 inputs"):
    dist.all_gather_coalesced([[torch.zeros(1)] * 2 for _ in range(N)], [torch.zeros(1)])

# The names of torch's own methods.
limit = timedelta(seconds=30)
one = torch.full((2,), float(R))
group.allreduce([one], op=dist.ReduceOp.MAX, timeout=limit).wait()
check(one, [N - 1] * 2)
group.allreduce(tensor=one, op=dist.ReduceOp.SUM).wait()
check(one, [N * (N - 1)] * 2)
one = torch.full((2,), float(R))
group.broadcast(tensor=one, root=N - 1, timeout=limit).wait()
check(one, [N - 1] * 2)
group.reduce(tensor=one, root=0, op=dist.ReduceOp.SUM).wait()
group.reduce(one, 0, dist.ReduceOp.MIN, limit).wait()
outs, mine = [torch.zeros(2) for _ in range(N)], torch.full((2,), float(R))
group.allgather(output_tensors=outs, input_tensor=mine, timeout=limit).wait()
check(torch.stack(outs), [[r, r] for r in range(N)])
group.gather(output_tensors=outs if R == 1 else [], input_tensor=mine + 1, root=1).wait()
check(outs[2], [3.0, 3.0] if R == 1 else [2.0, 2.0])
group.scatter(output_tensor=one, input_tensors=outs if R == 1 else [], root=1).wait()
check(one, [R + 1.0] * 2)
outs = [torch.full((2,), float(r)) for r in range(N)]
group.reduce_scatter(output=one, input=outs, op=dist.ReduceOp.SUM).wait()
check(one, [float(N * R)] * 2)
group.barrier(timeout=limit).wait()
with pytest.raises(weft.InputError, match="0 were given"):
    group.allreduce(op=dist.ReduceOp.SUM)

# Tensors that overlap, at the root.
big = torch.arange(4.0 * N) + 100 * R
source = big[2:6].clone() if R else big[2:6]
dist.gather(source, list(big.view(N, 4).unbind(0)) if R == 0 else None, dst=0)
if R == 0:
    check(big.view(N, 4)[0], [2.0, 3.0, 4.0, 5.0])
    check(big.view(N, 4)[1], [102.0, 103.0, 104.0, 105.0])
big = torch.arange(4.0 * N)
dist.scatter(big[2:6], list(big.view(N, 4).unbind(0)) if R == 0 else None, src=0)
check(big[2:6], [4.0 * R + number for number in range(4)])
for wrong in ("abc", 5):
    with pytest.raises(TypeError, match="expected"):
        group.allreduce(wrong)
for call in (group.set_timeout, lambda time: group.barrier(timeout=time), group.monitored_barrier):
    with pytest.raises(TypeError, match="expected a datetime.timedelta"):
        call(5.0)

# What futures complete with.
value = group.allgather([outs], [mine]).get_future().wait()
assert [tensor.data_ptr() for tensor in value] == [tensor.data_ptr() for tensor in outs]

# A limit that is set is what tells of itself, and its end is called what others call it.
assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(minutes=30)
group.set_timeout(timedelta(seconds=2))
assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=2)
group.monitored_barrier(limit)
# A rank that has missed one is told so at its next, and is there again at the one after that.
for number in range(4):
    if number > 0 or R != 2:
        try:
            group.monitored_barrier(timedelta(seconds=1))
        except weft.TimedOut:
            assert number < 2, number
    group.barrier(timeout=limit).wait()
if R == 0:
    with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier in 300 ms") as caught:
        group.monitored_barrier(timedelta(seconds=0.3), wait_all_ranks=True)
    assert caught.value.missing == (1, 2)
elif R == 1:
    with pytest.raises(RuntimeError, match="Rank 1 successfully reached monitoredBarrier, but received"):
        time.sleep(0.6)
        group.monitored_barrier(limit)
dist.barrier()  # the group goes on
if R != 1:
    with pytest.raises(RuntimeError, match=" Timed out "):
        group.barrier(timeout=timedelta(seconds=0.2)).wait()
    group.get_group_store().set(f"ended {R}", "")
else:
    group.get_group_store().wait(["ended 0", "ended 2"])
"""


def test_calls_as_torch_and_its_users_make_them(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + CALLS)


SEEN = """
from torch.distributed.tensor.debug import CommDebugMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from weft.torch.internals import all_gather_single, reduce_scatter_single

def everything():
    a, b = torch.ones(4), torch.zeros(4 * N)
    parts = [torch.zeros(4) for _ in range(N)]
    dist.all_reduce(a)
    dist.all_reduce(a, async_op=True).wait()
    dist.broadcast(a, 0)
    dist.reduce(a, 0)
    dist.all_gather(parts, a)
    all_gather_single(b, a)
    dist.reduce_scatter(a, parts)
    reduce_scatter_single(a, b)
    dist.gather(a, parts if R == 0 else None, dst=0)
    dist.scatter(a, parts if R == 0 else None, src=0)
    dist.all_to_all(parts, [part.clone() for part in parts])
    dist.all_to_all_single(torch.zeros(4 * N), b)

def count(mode):
    return {str(op): times for op, times in mode.get_comm_counts().items()}

with CommDebugMode() as mode:
    everything()
counts = count(mode)
assert counts.pop("c10d.allreduce_") == 2, counts
others = "broadcast_ reduce_ allgather_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ "
others += "gather_ scatter_ alltoall_ alltoall_base_"
assert counts == {f"c10d.{name}": 1 for name in others.split()}, counts

# Modes nest, each sees it once; a model in DDP is counted as on gloo.
class Names(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func))
        return func(*args, **(kwargs or {}))

names = []
with CommDebugMode() as mode, Names():
    dist.all_reduce(torch.ones(2))
assert count(mode) == {"c10d.allreduce_": 1} and names.count("c10d.allreduce_.default") == 1, names

# A tensor that wraps another gives that one.
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from torch.utils._pytree import tree_map_only
        return func(*tree_map_only(Wrapper, lambda one: one.inner, args), **(kwargs or {}))

wrapped = Wrapper(torch.ones(3) * (R + 1))
dist.all_reduce(wrapped)
check(wrapped.inner, [N * (N + 1) / 2] * 3)
outs = [Wrapper(torch.zeros(3)) for _ in range(N)]
dist.all_gather(outs, wrapped)
check(outs[N - 1].inner, [N * (N + 1) / 2] * 3)

# What has no memory is not reduced; what a subclass does not know is refused, as on gloo.
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    dist.all_reduce(torch.ones(3))
from torch.distributed.tensor import DTensor, init_device_mesh, Replicate
mesh = init_device_mesh("cpu", (N,))
with pytest.raises(NotImplementedError):
    dist.all_reduce(DTensor.from_local(torch.ones(2), mesh, [Replicate()]))

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    everything()
    time.sleep(1.0)  # what is over does not last until the profiler stops
    box = torch.zeros(5)
    work = dist.irecv(box) if R == 0 else dist.isend(torch.ones(5), 0)
    work.wait()
    if R == 0:
        for _ in range(N - 2):
            dist.recv(box)
dist.barrier()
events = {}
for event in profiler.events():
    if event.name.startswith("weft:"):
        events.setdefault(event.name.removeprefix("weft:"), []).append(event)
expected = "all_reduce broadcast reduce all_gather _all_gather_base reduce_scatter _reduce_scatter_base "
expected += "gather scatter all_to_all"
expected = {*expected.split(), "recvAnySource" if R == 0 else "send"}
assert set(events) == expected, set(events) ^ expected
assert len(events["all_reduce"]) == 2 and sum(event.is_async for event in events["all_reduce"]) == 1
assert all(event.input_shapes == [[4]] for event in events["all_reduce"]), events["all_reduce"]
# An operation that outlives the profiler does no harm.
for _ in range(20):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):
        late = [dist.all_reduce(torch.ones(50_000), async_op=True) for _ in range(5)]
    for work in late:
        work.wait()
last = max(event.time_range.end for event in events["recvAnySource" if R == 0 else "send"])
assert all(event.time_range.end < last - 900_000 for event in events["all_reduce"]), events["all_reduce"]
"""


def test_profilers_and_dispatch_modes_see_collectives(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + SEEN)


# Rank 0 leaves as soon as it has passed: the others have passed as well.
PASSED = """
for _ in range(15):
    other = dist.new_group(backend="weft")
    other.monitored_barrier(timedelta(seconds=30))
    dist.destroy_process_group(other)
"""


def test_who_leaves_after_a_monitored_barrier_takes_nobody_along(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CHECK + PASSED)
