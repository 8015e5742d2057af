"""A notepad for drawing a topology cable by cable.

Builders and file readers collect cables here and turn them into a `Topology` once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.topology.graph import Topology
from weft.topology.size_bounds import SizeBounds, size_bounds


@dataclass
class CableNotes:
    """Links in the order they were drawn.

    Examples
    --------
    >>> wiring = CableNotes(ranks=2)
    >>> wiring.cable(0, 1, bandwidth=10**9, latency_ps=1000)
    >>> wiring.build("pair")
    <Topology pair: 2 ranks, 0 switches, 2 links>
    """

    ranks: int
    switches: int = 0
    _rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    _addresses: list[tuple[int, str, str]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _bounds: SizeBounds = field(default_factory=size_bounds)

    def __post_init__(self) -> None:
        # Checked before the first cable is drawn, so that a huge spec fails at once and not after a minute.
        self._bounds.check("", self.ranks, self.switches, 0)

    @classmethod
    def sized(cls, name: str, ranks: int, switches: int = 0, *, cables: int) -> CableNotes:
        """Empty notes for a network of known size: too large a one is refused before it is drawn."""
        size_bounds().check(name, ranks, switches, 2 * cables)
        return cls(ranks, switches)

    def switch(self, index: int) -> int:
        """Node number of switch `index`."""
        return self.ranks + index

    def named(self, name: str) -> int:
        """Add one more switch, with a name, and return its node number; all switches have names, or none."""
        self._names.append(name)
        if len(self._names) > self._bounds.switches:
            self._bounds.check("", self.ranks, len(self._names), 0)
        self.switches = len(self._names)
        return self.ranks + len(self._names) - 1

    def link(
        self, src: int, dst: int, bandwidth: int, latency_ps: int, addresses: tuple[str, str] | None = None
    ) -> None:
        """Draw one directed link."""
        self._check_links(1)
        if addresses is not None:
            self._addresses.append((len(self._rows), *addresses))
        self._rows.append((src, dst, bandwidth, latency_ps))

    def cable(
        self, a: int, b: int, *, bandwidth: int, latency_ps: int, back: int | None = None, count: int = 1
    ) -> None:
        """Draw `count` parallel full-duplex cables; `back` is the speed from b to a where it differs."""
        self._check_links(2 * count)
        for _ in range(count):
            self.link(a, b, bandwidth, latency_ps)
            self.link(b, a, bandwidth if back is None else back, latency_ps)

    def _check_links(self, more: int) -> None:
        if len(self._rows) + more > self._bounds.links:
            self._bounds.check("", 0, 0, len(self._rows) + more)

    def build(self, name: str, **options: Any) -> Topology:
        """Turn the drawing into a topology."""
        src, dst, bandwidth, latency_ps = np.array(self._rows, np.int64).reshape(-1, 4).T
        return Topology(
            name,
            self.ranks,
            self.switches,
            src.astype(np.int32),
            dst.astype(np.int32),
            bandwidth,
            latency_ps,
            addresses=tuple(self._addresses),
            switch_names=tuple(self._names),
            **options,
        )
