"""Weft in PyTorch: DeAR and a profile of it, a process group, a hook for DistributedDataParallel.

Importing this registers the backend: ``torch.distributed.init_process_group("weft")``.
"""

from __future__ import annotations

try:
    from torch import distributed as _dist
except ImportError as error:
    raise ImportError(f"weft.torch needs torch ({error}); pip install torch") from error

from weft.torch.dear import DeAR
from weft.torch.group_methods import BACKEND
from weft.torch.hook import ddp_hook
from weft.torch.process_group import WeftProcessGroup, communicator, create, init_process_group
from weft.torch.profiling import profile
from weft.torch.scaler import GradScaler
from weft.torch.store_bootstrap import Options, connect

__all__ = [
    "DeAR",
    "GradScaler",
    "Options",
    "WeftProcessGroup",
    "communicator",
    "connect",
    "ddp_hook",
    "init_process_group",
    "profile",
]

_dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])
