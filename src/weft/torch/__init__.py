"""Weft in PyTorch: a process group, a hook for DistributedDataParallel, and communicators of torch's groups.

Importing this registers the backend: ``torch.distributed.init_process_group("weft")``.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 - everything below needs it
except ImportError as error:
    msg = f"weft.torch needs torch ({error}); pip install 'weft[torch]'"
    raise ImportError(msg) from error

from weft.torch.meeting import connect
from weft.torch.options import Options

__all__ = ["Options", "connect"]
