"""Loss scaling for DeAR, whose gradients are sent while the backward pass runs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from weft.torch.dear import DeAR


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for DeAR: scales back the sums, and all ranks skip a step together.

    torch's own would change gradients that are already being sent to other ranks; DeAR refuses that. With any
    other optimizer this one does what torch's does.
    """

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """Step unless some gradient on some rank is not finite."""
        with optimizer.scaled() if isinstance(optimizer, DeAR) else nullcontext():
            return super().step(optimizer, *args, **kwargs)

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        if not isinstance(optimizer, DeAR):
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        broken = optimizer.unscale(float(inv_scale))
        result: Any = found_inf.clone().fill_(float(broken))
        return {found_inf.device: result}
