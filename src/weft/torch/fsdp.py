"""FSDP2 with its communication behind computing: DeAR's arrangement for models that are sharded.

On an accelerator FSDP2 overlaps by streams. A CPU has none, so that on its own every all-gather and every
reduce-scatter of FSDP2 blocks the thread that trains. `overlap_fsdp` lets them run behind it, in the way that
DeAR (Zhang et al., ICDCS 2023) sends gradients: reduce-scatters behind the backward pass, and all-gathers of
the updated parameters ahead, across the step, behind whatever comes before a unit runs. A unit is a module
that ``fully_shard`` was applied to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from weft.torch.fsdp_overlap import FSDPOverlap


def overlap_fsdp(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, ahead: int = 2, in_flight: int = 2
) -> FSDPOverlap:
    """Let the collectives of a model under FSDP2 run behind its computing; every rank calls this.

    The training loop stays as it is, and computes the same bits. Units are gathered ahead in the order in
    which the first forward pass ran them.

    Parameters
    ----------
    model
        The whole model, after ``fully_shard`` was applied to its units and to it.
    optimizer
        After each of its steps the first units are gathered. Of several optimizers, the one that steps last.
    ahead
        How many units are gathered ahead of the one that runs. Each takes the memory of its parameters.
    in_flight
        How many reduce-scatters run behind the backward pass. Each takes the memory of its gradients.

    Raises
    ------
    InputError
        If the model is no unit of FSDP2, or a number is out of range.

    Examples
    --------
    ::

        for block in model.blocks:
            fully_shard(block, reshard_after_forward=False)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        overlap = weft.torch.overlap_fsdp(model, optimizer)
    """
    from weft.torch.fsdp_overlap import FSDPOverlap  # it imports FSDP2, which takes long

    return FSDPOverlap(model, optimizer, ahead, in_flight)
