"""What NCCL's search finds on boxes with an NVSwitch: how many channels, and how fast it takes each to be.

NCCL tries speeds of a table, from the fastest down, and keeps the channels that together carry most. Where
all GPUs of a box hang on one NVSwitch, that comes down to arithmetic: a channel for each network interface,
as fast as the interface and its share of NVLink allow. Then come two steps that the arithmetic follows as
well. Few and fast channels are doubled, each at half the speed, so that more threads copy. And trees may use
NVLink at up to twice the speed of the network.

That gives 12 channels on one box of A100 or H100, which NCCL doubles once more when it lays them: the 24 of
its logs. On two boxes of H100 with 8 interfaces it gives 8, of which the logs show 16.

References
----------
.. [1] NVIDIA/nccl 2.30.7, src/graph/search.cc: ncclTopoDupChannels (lines 1036-1049), the tables of speeds
   (1051-1068), ncclTopoCompute (1074-1310); src/init.cc, lines 1184-1185: trees get as many as rings.
.. [2] NVIDIA/nccl 2.30.7, src/graph/topo.h: speeds of one NVLink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_CHANNELS: Final = 32

NVLINK_SPEED: Final = {"ampere": 12 * 20.0, "hopper": 18 * 20.6, "blackwell": 18 * 40.1}
"""GB/s of all NVLinks of a GPU."""

INSIDE_SPEEDS: Final = {
    "ampere": (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0),
    "hopper": (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0),
    "blackwell": (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0),
}
_ACROSS_SPEEDS: Final = {
    "ampere": (
        *(48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2),
        *(0.24, 0.12),
    ),
    "hopper": (
        *(48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2),
        *(0.24, 0.12),
    ),
    "blackwell": (
        *(96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0),
        *(3.0, 2.4, 1.2, 0.24, 0.12),
    ),
}
_PER_100_GIGABITS: Final = 12.0
"""What NCCL takes a network interface of 100 Gbit/s to carry."""

_FAST: Final = 25.0
_VERY_FAST: Final = 50.0
_FEW: Final = 4
"""Channels of `_FAST` are doubled, but from Hopper on more than `_FEW` of them only if `_VERY_FAST`."""


class ChannelSpeeds(NamedTuple):
    """How many channels there are, and GB/s of each inside boxes and across them."""

    number: int
    inside: float
    across: float


@dataclass(frozen=True, slots=True)
class ChannelSearch:
    """The search on so many boxes; see `weft.planning.nccl_costs.NcclCluster` for what the fields are."""

    boxes: int
    gpus: int
    generation: str
    interfaces: int
    gigabits: float

    @property
    def nvlink(self) -> float:
        """GB/s of a GPU over NVLink."""
        return NVLINK_SPEED[self.generation]

    @property
    def heads(self) -> ChannelSpeeds:
        """Channels before any is doubled, as NVLSTree uses them."""
        if self.boxes == 1:
            # As much as NVLink carries in all, by as few and fast channels as that takes.
            speeds = INSIDE_SPEEDS[self.generation]
            few = [one for one in speeds if int(self.nvlink / one) <= MOST_CHANNELS]
            speed = max(few, key=lambda one: (int(self.nvlink / one) * one, one))
            return ChannelSpeeds(int(self.nvlink / speed), speed, speed)
        speed = self._fastest(min(self.nvlink / self.interfaces, self._card))
        return ChannelSpeeds(self.interfaces, speed, speed)

    @property
    def rings(self) -> ChannelSpeeds:
        """Channels of rings, which are as fast inside boxes as across them."""
        found = self.heads
        slow = found.inside < _FAST
        many = self.generation != "ampere" and found.inside < _VERY_FAST and found.number > _FEW
        if slow or many:
            return found
        count = min(2 * found.number, MOST_CHANNELS)
        times = -(-count // found.number)
        return ChannelSpeeds(count, found.inside / times, found.across / times)

    @property
    def trees(self) -> ChannelSpeeds:
        """Channels of trees: as many as of rings, up to twice as fast inside boxes where NVLink allows it."""
        rings = self.rings
        speeds = INSIDE_SPEEDS if self.boxes == 1 else _ACROSS_SPEEDS
        # One GPU of a box, the last of the chain, sends nothing on.
        most = self.nvlink * self.gpus / max(self.gpus - 1, 1) / rings.number
        across = rings.across
        if self.boxes > 1:
            across = self._fastest(min(most, self._card * self.interfaces / rings.number))
        inside = across
        for faster in sorted(one for one in speeds[self.generation] if one > across):
            if faster > most or inside >= 2 * across:
                break
            inside = faster
        return ChannelSpeeds(rings.number, inside, across)

    @property
    def _card(self) -> float:
        return self.gigabits / 100 * _PER_100_GIGABITS

    def _fastest(self, limit: float) -> float:
        """The fastest speed of the table within a limit, else the slowest."""
        speeds = _ACROSS_SPEEDS[self.generation]
        return next((one for one in speeds if one <= limit), speeds[-1])
