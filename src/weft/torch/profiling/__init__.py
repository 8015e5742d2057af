"""Where the time of a training step goes: see `weft.torch.profiling.profile`."""

from weft.torch.profiling.profile import Profile, profile

__all__ = ["Profile", "profile"]
