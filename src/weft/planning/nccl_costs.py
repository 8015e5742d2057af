"""What NCCL itself expects an all-reduce to take, by its three protocols: its cost model, not a simulation.

NCCL reckons with latency plus bytes over bandwidth, both from tables in its source, and runs the algorithm
and the protocol for which that is least. The simulator knows links and nothing of the threads that serve
them, so it says little about small messages; this model was adjusted by NVIDIA to what its machines do, and
says more there. Nothing in ``weft compare`` or ``weft plan`` uses it. Times are in microseconds and speeds in
GB/s here, as in NCCL's source.

The protocols differ in how a receiver learns that data is there. Simple waits for a flag after each chunk. LL
sends a flag of 4 bytes with every 4 bytes, LL128 one of 8 bytes with every 120, so both wait for nothing.

References
----------
.. [1] NVIDIA/nccl 2.30.7, src/graph/tuning.cc: constants in lines 146-213, the model in 243-438, the time of
   an operation in 620-655. `weft.planning.nccl_search` has the channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from weft.errors import InputError, check_choice
from weft.planning.nccl_search import INSIDE_SPEEDS, ChannelSearch

ALGORITHMS: Final = ("ring", "tree", "nvls", "nvls_tree")
PROTOCOLS: Final = ("LL", "LL128", "Simple")
PAYLOAD: Final = {"LL": 1 / 2, "LL128": 120 / 128, "Simple": 1.0}
"""Share of the bytes on a link that is data; the rest are flags."""

GENERATIONS: Final = ("ampere", "hopper", "blackwell")

_ByProtocol = tuple[float, float, float]
_BySize = tuple[float, float, float]

_BASE: Final[dict[str, _ByProtocol]] = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
_NVLINK: Final[dict[str, _ByProtocol]] = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
_NETWORK: Final[dict[str, _ByProtocol]] = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0)}
_NVLS_INSIDE: Final = 25.0
_NVLS_ACROSS: Final = 20.9
_NVLS_EFFICIENCY: Final = {"hopper": 0.85, "blackwell": 0.74}

# By the number of boxes: 1, 2, more.
_LL_INSIDE: Final = {"ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}
_LL_ACROSS: Final = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
_RING_LL128: Final = {"ampere": 20.0, "hopper": 36.7, "blackwell": 40.0}
_TREE_LL128: Final[dict[str, _BySize]] = {
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
_TREE: Final[dict[str, _BySize]] = {
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
_NVLS_TREE: Final[dict[str, _BySize]] = {"hopper": (0.0, 57.7, 45.5), "blackwell": (0.0, 96.0, 80.0)}

_TREE_CORRECTION: Final[dict[str, tuple[float, ...]]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *[1] * 5),
    "LL128": (
        *(1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6),
        *(0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6),
        *(0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
"""Share of the bandwidth that an algorithm gets at 64 B, 128 B and so on."""

_CORRECTED: Final = {"tree": 23, "nvls_tree": 24}
"""For how many of these sizes: trees get everything from 512 MiB on, NVLSTree of Blackwell from 1 GiB."""


class NcclChoice(NamedTuple):
    """An algorithm and a protocol, and the time that NCCL expects of them."""

    algorithm: str
    protocol: str
    microseconds: float


@dataclass(frozen=True, slots=True)
class NcclCluster:
    """Boxes with an NVSwitch as NCCL's cost model sees them.

    Parameters
    ----------
    boxes, gpus
        How many boxes, and GPUs in each.
    generation
        ``"ampere"``, ``"hopper"`` or ``"blackwell"``.
    interfaces, gigabits
        Network interfaces of a box, and Gbit/s of each.
    cpu
        ``"intel"`` or ``"amd"``: what a network operation costs, and how fast LL is between boxes.
    nvswitch
        Whether the boxes have an NVSwitch. Where NVLink joins the GPUs one by one, there is no NVLS.

    Examples
    --------
    >>> two = NcclCluster(boxes=2, gpus=8, generation="hopper")
    >>> two.choose(1024).protocol, two.choose(1 << 33).algorithm
    ('LL', 'nvls_tree')
    """

    boxes: int
    gpus: int = 8
    generation: str = "hopper"
    interfaces: int = 8
    gigabits: float = 400.0
    cpu: str = "intel"
    nvswitch: bool = True

    def __post_init__(self) -> None:
        check_choice("generation", self.generation, GENERATIONS)
        check_choice("cpu", self.cpu, tuple(_LL_ACROSS))
        if min(self.boxes, self.gpus, self.interfaces) < 1 or self.boxes * self.gpus < 2:
            raise InputError("NCCL's model needs at least one box, one interface and two GPUs in all")
        if not 0 < self.gigabits < math.inf:
            raise InputError(f"gigabits={self.gigabits:g} must be more than 0")

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.boxes * self.gpus

    def choose(self, size_bytes: int) -> NcclChoice:
        """What NCCL would run for an all-reduce of this size, and for how long."""
        return self.choices(size_bytes)[0]

    def choices(self, size_bytes: int) -> tuple[NcclChoice, ...]:
        """Every algorithm that NCCL has here with its best protocol, the fastest first."""
        every = [
            NcclChoice(algorithm, protocol, self.microseconds(size_bytes, algorithm, protocol))
            for algorithm in ALGORITHMS
            for protocol in PROTOCOLS
            if self.has(algorithm, protocol)
        ]
        best: dict[str, NcclChoice] = {}
        for choice in sorted(every, key=lambda choice: choice.microseconds):
            best.setdefault(choice.algorithm, choice)
        return tuple(best.values())

    def has(self, algorithm: str, protocol: str) -> bool:
        """Whether NCCL offers this: NVLS, from Hopper on with Simple, is for one box, NVLSTree for more."""
        check_choice("algorithm", algorithm, ALGORITHMS)
        check_choice("protocol", protocol, PROTOCOLS)
        if not algorithm.startswith("nvls"):
            return True
        usable = self.nvswitch and self.generation != "ampere" and protocol == "Simple" and self.gpus > 1
        return usable and (algorithm == "nvls") == (self.boxes == 1)

    def microseconds(self, size_bytes: int, algorithm: str, protocol: str) -> float:
        """Time of one all-reduce: latency, and bytes over bandwidth.

        Raises
        ------
        InputError
            If NCCL does not offer this algorithm with this protocol here.
        """
        latency = self.latency_microseconds(size_bytes, algorithm, protocol)
        speed = self._algbw(algorithm, protocol)
        place = (size_bytes >> 6).bit_length() - 1
        corrected = algorithm == "tree" or self.generation == "blackwell"
        if corrected and 0 <= place < _CORRECTED.get(algorithm, 0):
            speed *= _TREE_CORRECTION[protocol][place]
        return latency + size_bytes / (1000 * speed)

    def latency_microseconds(self, size_bytes: int, algorithm: str, protocol: str) -> float:
        """What of that time is latency: of the operation, and of each step by the protocol.

        Raises
        ------
        InputError
            If NCCL does not offer this algorithm with this protocol here.
        """
        if not self.has(algorithm, protocol):
            raise InputError(f"NCCL has no {algorithm} with {protocol} on {self.boxes} boxes like these")
        latency = self._latency(algorithm, protocol)
        # NCCL lays two channels for each that its search finds.
        shared = size_bytes // (2 * self._search.rings.number * self.ranks)
        if algorithm == "ring" and protocol == "Simple" and self.boxes > 1 and shared >= 64:
            latency *= 1.4
        return latency

    def copy_limit(self, algorithm: str, protocol: str) -> float:
        """Bytes of the buffer per nanosecond that the threads of a ring's or a tree's channels copy at most.

        Only what NCCL's tables say of channels and of LL as such: nothing of links, and no corrections.
        Infinite where they have no limit.
        """
        n, column = self.ranks, min(self.boxes, 3) - 1
        low = _LL_INSIDE[self.generation] if column == 0 else _LL_ACROSS[self.cpu][column - 1]
        if algorithm == "ring":
            channels = self._search.rings.number
            limits = {"LL": low, "LL128": channels * _RING_LL128[self.generation]}
            return limits.get(protocol, math.inf) * n / (2 * (n - 1))
        channels = self._search.trees.number
        limits = {"LL": low, "LL128": channels * _TREE_LL128[self.generation][column]}
        return 0.5 * min(limits.get(protocol, math.inf), channels * _TREE[self.generation][column])

    @property
    def _search(self) -> ChannelSearch:
        return ChannelSearch(self.boxes, self.gpus, self.generation, self.interfaces, self.gigabits)

    def _algbw(self, algorithm: str, protocol: str) -> float:
        """Bytes of the buffer per nanosecond."""
        n = self.ranks
        busbw = (
            self._nvls_busbw(algorithm) if algorithm.startswith("nvls") else self._busbw(algorithm, protocol)
        )
        return busbw * (0.5 if algorithm == "tree" else n / (2 * (n - 1)))

    def _busbw(self, algorithm: str, protocol: str) -> float:
        channels, inside, across = self._search.rings if algorithm == "ring" else self._search.trees
        generation, column = self.generation, min(self.boxes, 3) - 1
        low = _LL_INSIDE[generation] if column == 0 else _LL_ACROSS[self.cpu][column - 1]
        busbw = channels * (inside if self.boxes <= 2 else across)
        if algorithm == "ring":
            if protocol == "LL":
                return min(low, busbw / 2)
            return min(0.92 * busbw, channels * _RING_LL128[generation]) if protocol == "LL128" else busbw
        busbw = min(0.92 * busbw, channels * _TREE[generation][column])
        if protocol == "LL":
            busbw = min(busbw / 3.8, low)
        elif protocol == "LL128":
            payload = 7 / 9 if self.boxes == 1 else 120 / 128
            busbw = min(busbw * payload, channels * _TREE_LL128[generation][column])
        # Pattern TREE, which the search falls back to from Hopper on.
        return busbw if generation == "ampere" else 0.85 * busbw

    def _nvls_busbw(self, algorithm: str) -> float:
        """Of NVLS, whose channels are heads: one for each GPU, summing in the NVSwitch."""
        heads, search = self.gpus, self._search
        inside = next(one for one in INSIDE_SPEEDS[self.generation] if one <= search.nvlink / heads)
        inside *= 2 * _NVLS_EFFICIENCY[self.generation] * (heads - 1) / heads
        if algorithm == "nvls":
            return heads * inside
        across = search.heads.across
        column = min(self.boxes, 3) - 1
        across *= (2 if self.boxes == 2 else 1) * self.interfaces / heads
        return heads * min(inside, across, _NVLS_TREE[self.generation][column])

    def _latency(self, algorithm: str, protocol: str) -> float:
        climbs = self.boxes.bit_length() - 1
        if algorithm == "nvls":
            return _NVLS_INSIDE
        if algorithm == "nvls_tree":
            return _NVLS_INSIDE + 2 * climbs * _NVLS_ACROSS
        column = PROTOCOLS.index(protocol)
        inside = _NVLINK[algorithm][column]
        across = _NETWORK["tree" if self.gpus == 1 else algorithm][column]
        if algorithm == "tree":
            return _BASE["tree"][column] + 2 * ((self.gpus - 1) * inside + climbs * across)
        if self.boxes > 1:
            posted = 1.0 if self.cpu == "intel" else 2.0
            inside = max(inside, 3 * posted if protocol == "Simple" else posted)
        steps, crossings = 2 * (self.ranks - 1), 2 * (self.boxes - 1)
        return _BASE["ring"][column] + (steps - crossings) * inside + crossings * across
