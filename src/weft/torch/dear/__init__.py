"""DeAR in PyTorch: see `weft.torch.dear.optimizer`."""

from weft.torch.dear.optimizer import DeAR

__all__ = ["DeAR"]
