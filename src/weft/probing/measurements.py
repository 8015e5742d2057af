"""What a probe has seen: plain values, from which everything else is inferred.

Flows are between hosts, not ranks: one rank of each host, its first, speaks for it. What lies inside a host
is measured apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FABRIC: Final = -1
"""Instead of the number of a cable: whatever way the network takes by itself."""

_NEAR: Final = 0.1
_FEW: Final = 4


class Flow(NamedTuple):
    """Bytes from one host to another, over a cable or the fabric."""

    src: int
    dst: int
    cable: int = FABRIC


class MeasuredCable(NamedTuple):
    """Two hosts that are alone in a subnet, and their addresses there."""

    hosts: tuple[int, int]
    addresses: tuple[str, str]

    def address_of(self, host: int) -> str:
        """Address at one end."""
        return self.addresses[self.hosts.index(host)]


@dataclass(frozen=True, slots=True)
class Round:
    """Flows that ran at the same time, with the bytes per second of each."""

    kind: str
    rates: dict[Flow, float]

    def total(self, *, sources: Iterable[int] | None = None, targets: Iterable[int] | None = None) -> float:
        """Bytes per second over the fabric that leave one set of hosts for another; by default any."""
        src = None if sources is None else set(sources)
        dst = None if targets is None else set(targets)
        return sum(
            rate
            for flow, rate in self.rates.items()
            if flow.cable == FABRIC and (src is None or flow.src in src) and (dst is None or flow.dst in dst)
        )


@dataclass
class Measurements:
    """All that was seen.

    Parameters
    ----------
    hosts
        Ranks of each host.
    cables
        Those that work.
    rounds
        In the order in which they ran.
    groups
        Hosts that seemed to share an uplink, for which there are rounds of their own.
    latency_s
        One way, of each flow whose latency was measured; the way back has the same.
    memory
        Of each host with several ranks: bytes per second of each of them while all send to the next.
    memory_latency_s
        Of a small message between two ranks of one host.
    notes
        What could not be measured, and why.
    """

    hosts: tuple[tuple[int, ...], ...]
    cables: tuple[MeasuredCable, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    groups: tuple[tuple[int, ...], ...] = ()
    latency_s: dict[Flow, float] = field(default_factory=dict)
    memory: dict[int, list[float]] = field(default_factory=dict)
    memory_latency_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """Of all hosts together."""
        return sum(len(host) for host in self.hosts)

    def rates(self, flow: Flow) -> list[float]:
        """Of one flow, in all rounds that it was part of."""
        return [one.rates[flow] for one in self.rounds if flow in one.rates]


def join_all(hosts: int, cables: Iterable[MeasuredCable]) -> bool:
    """Whether every host reaches every other over cables.

    Examples
    --------
    >>> join_all(3, [MeasuredCable((0, 1), ("10.0.0.1", "10.0.0.2"))])
    False
    """
    group_of = list(range(hosts))
    for cable in cables:
        kept, gone = (group_of[host] for host in cable.hosts)
        group_of = [kept if group == gone else group for group in group_of]
    return len(set(group_of)) <= 1


class Estimate(NamedTuple):
    """A speed, and what says so.

    ``samples`` are those near it, out of ``seen``; the others were slower, held up by something or by bad
    luck. ``spread`` is how far from it the near ones lie at most, relative; None if there is only one.
    """

    value: float
    spread: float | None
    samples: int
    seen: int


def plateau(samples: Sequence[float]) -> Estimate:
    """The speed that is reached again and again: of the samples near the best, the median of the upper half.

    What disturbs a flow makes it slower, hardly ever faster. Of many samples the very best one may be a
    hiccup of the clock, so the second decides what is near.

    Examples
    --------
    >>> plateau([9.9, 10.0, 10.0, 10.1, 3.0])
    Estimate(value=10.05, spread=0.0149, samples=4, seen=5)
    """
    ordered = sorted(samples, reverse=True)
    top = ordered[1] if len(ordered) >= _FEW else ordered[0]
    near = [sample for sample in ordered if abs(sample - top) <= _NEAR * top]
    value = median(near[: (len(near) + 1) // 2])
    spread = round(max(abs(sample - value) for sample in near) / value, 4) if len(near) > 1 else None
    return Estimate(value, spread, len(near), len(ordered))
