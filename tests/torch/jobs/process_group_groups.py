"""Groups of some ranks and many of them.

Run by tests/torch/test_process_group.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import BACKEND, WORDS, N, R
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import weft
import weft.torch
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
mesh = init_device_mesh("cpu", (2, N // 2), mesh_dim_names=("replicate", "shard"))
x = torch.tensor([float(R)])
dist.all_reduce(x, group=mesh.get_group("shard"))
assert x[0] == sum(r for r in range(N) if r // (N // 2) == R // (N // 2))
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
dist.destroy_process_group()
