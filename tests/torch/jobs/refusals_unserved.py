"""What no schedule serves is refused at the call.

What no schedule of the group serves is told at the call as well.

Run by tests/torch/test_refusals.py.
"""

from functools import partial

import torch.distributed as dist
from refusals_cases import ones, refused, wrong
from support.torch_rank import N

from weft.algorithms import registry
from weft.schedule.passes import halves
from weft.topology import load_topology
from weft.torch import Options

tree = registry.find("double_binary_tree").build(load_topology(f"fullmesh:{N}"), "all_reduce", 0)
groups = {
    "all_to_all_single": dist.new_group(pg_options=Options(algorithm="ring")),
    "reduce_scatter_tensor": dist.new_group(pg_options=Options(schedule=halves(tree)[0])),
}
for name, group in groups.items():
    given = (ones(4 * N), ones(4 * N)) if name == "all_to_all_single" else (ones(4), ones(4 * N))
    for later in (False, True):
        call = partial(getattr(dist, name), *given, group=group, async_op=later)
        refused(name, lambda *_, call=call: call(), later)
        x = ones(5)
        dist.all_reduce(x, group=group)
        assert (x == N).all()
assert not wrong, wrong
dist.destroy_process_group()
