"""The private names of FSDP2 that Weft uses.

They are not in `weft.torch.internals`, because importing FSDP2 takes long.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

FSDPAllGather: Any = AllGather
FSDPReduceScatter: Any = ReduceScatter
"""To inherit from: what ``FSDPModule.set_custom_all_gather`` and its like take."""


def _param_groups(unit: FSDPModule) -> list[Any]:
    return list(cast("Any", unit)._get_fsdp_state()._fsdp_param_groups)


def is_current(unit: FSDPModule) -> bool:
    """Return whether an all-gather that was started for a unit of FSDP2 has this rank's shards as they are.

    Their bytes are compared: a change of a DTensor is not always counted in its version.
    """
    with torch.no_grad():
        return all(_has_shards(group) for group in _param_groups(unit))


def _has_shards(group: Any) -> bool:
    result = group._all_gather_result
    if result is None or result.all_gather_work is None:
        return True
    ranks = group._all_gather_process_group
    sent = result.all_gather_output.view(ranks.size(), -1)[ranks.rank()].view(torch.uint8)
    first = 0
    for one in group.fsdp_params:
        for shard in one.all_gather_inputs:
            now = shard.reshape(-1).view(torch.uint8)
            if not torch.equal(sent[first : first + now.numel()], now):
                return False
            first += now.numel()
    return True


def discard_gather(unit: FSDPModule) -> None:
    """Wait for an all-gather that was started for a unit of FSDP2, and drop its result if nobody uses it."""
    for group in _param_groups(unit):
        result = group._all_gather_result
        if result is not None:
            if result.all_gather_work is not None:
                result.all_gather_work.wait()
            group._all_gather_result = None


def can_reduce_later(unit: FSDPModule, op: Any, dtype: torch.dtype) -> bool:
    """Return whether FSDP2 only keeps the result of a reduce-scatter of this unit as gradients.

    It looks at the result at once if it divides, converts, adds it to gradients that are there already, moves
    it, sums it over replicas as well, or calls a hook with it.
    """
    return op == dist.ReduceOp.AVG and not any(
        group._is_hsdp
        or group._all_reduce_hook is not None
        or group._orig_dtype != dtype
        or any(
            one.offload_to_cpu
            or one.sharded_param.grad is not None
            or getattr(one.sharded_param, "_post_accumulate_grad_hooks", None)
            for one in group.fsdp_params
        )
        for group in _param_groups(unit)
    )
