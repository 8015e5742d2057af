"""Weft in PyTorch: DeAR and a profile of it, a process group, a hook for DistributedDataParallel.

Importing this registers the backend (in process_group.py): ``torch.distributed.init_process_group("weft")``.
"""

from __future__ import annotations

from weft.errors import MissingPackageError

try:
    import torch.distributed  # noqa: F401 - so that what is missing is named in one line
except ImportError as error:
    raise MissingPackageError("weft.torch", "torch", error) from error

from weft.torch.dear import DeAR
from weft.torch.fsdp import overlap_fsdp
from weft.torch.hook import ddp_hook
from weft.torch.process_group import WeftProcessGroup, communicator, init_process_group
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
    "overlap_fsdp",
    "profile",
]
