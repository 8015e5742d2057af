"""Weft in PyTorch: DeAR and a profile of it, a process group, a hook for DistributedDataParallel.

Importing this registers the backend: ``torch.distributed.init_process_group("weft")``.
"""

from __future__ import annotations

try:
    from torch import distributed as _dist
except ImportError as error:
    msg = f"weft.torch needs torch ({error}); pip install 'weft[torch]'"
    raise ImportError(msg) from error

from weft.torch.dear import DeAR
from weft.torch.group_options import Options
from weft.torch.hook import ddp_hook
from weft.torch.methods import BACKEND
from weft.torch.process_group import WeftProcessGroup, communicator, create, init_process_group
from weft.torch.profiling import profile
from weft.torch.scaler import GradScaler
from weft.torch.store_bootstrap import connect

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
