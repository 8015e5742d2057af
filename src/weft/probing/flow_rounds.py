"""Which flows run at the same time.

Every generator gives rounds; a round is a tuple of flows. In most of them no host sends twice or receives
twice, so that a flow slower than its two ends allow has met others on its way.
"""

from __future__ import annotations

from itertools import chain, cycle, islice, zip_longest
from typing import TYPE_CHECKING

from weft.probing.measurements import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from weft.probing.measurements import MeasuredCable

    Flows = tuple[Flow, ...]


def tournament(hosts: int) -> list[list[tuple[int, int]]]:
    """All pairs of hosts, each once, in rounds in which no host meets two others.

    Examples
    --------
    >>> tournament(4)
    [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    """
    seats = hosts + hosts % 2
    rounds = []
    for turn in range(seats - 1):
        circle = [0, *(1 + (place - turn) % (seats - 1) for place in range(seats - 1))]
        pairs = ((circle[place], circle[seats - 1 - place]) for place in range(seats // 2))
        rounds.append(sorted((min(pair), max(pair)) for pair in pairs if max(pair) < hosts))
    return rounds


def pairs(hosts: int, random: np.random.Generator) -> Iterator[Flows]:
    """The tournament, there and then back: sending both ways at once would slow the acknowledgements.

    Who sends first is random, so that there is no direction in which all hosts of a group always send.
    """
    for meeting in tournament(hosts):
        turned = random.integers(0, 2, len(meeting)).tolist()
        flows = [Flow(b, a) if turn else Flow(a, b) for (a, b), turn in zip(meeting, turned, strict=True)]
        yield tuple(flows)
        yield tuple(Flow(flow.dst, flow.src) for flow in flows)


def fans(hosts: int, only: Iterable[int] | None = None) -> Iterator[Flows]:
    """Each host to all others, and all others to it: what its own cable carries, whoever is at the end."""
    for host in range(hosts) if only is None else only:
        others = [other for other in range(hosts) if other != host]
        yield tuple(Flow(host, other) for other in others)
        yield tuple(Flow(other, host) for other in others)


def permutations(order: Sequence[int]) -> Iterator[Flows]:
    """Every host sends and receives at once, so many places further along; each ordered pair occurs once.

    Where neighbours in this order share an uplink, most of these rounds fill it: all of them send far.
    """
    hosts = len(order)
    for shift in range(1, hosts):
        yield tuple(Flow(order[place], order[(place + shift) % hosts]) for place in range(hosts))


def cable_flows(cables: Sequence[MeasuredCable]) -> list[Flows]:
    """Each cable both ways, in as few rounds as come about greedily, with each host in one flow at most."""
    rounds: list[list[Flow]] = []
    busy: list[set[int]] = []
    for number, cable in enumerate(cables):
        for src, dst in (cable.hosts, cable.hosts[::-1]):
            place = next((place for place, hosts in enumerate(busy) if not hosts & {src, dst}), len(rounds))
            if place == len(rounds):
                rounds.append([])
                busy.append(set())
            rounds[place].append(Flow(src, dst, number))
            busy[place] |= {src, dst}
    return [tuple(one) for one in rounds]


def leaving(group: Sequence[int], groups: Sequence[Sequence[int]]) -> Flows:
    """Every member sends to two hosts outside, which are spread over the other groups.

    Examples
    --------
    >>> leaving((0, 1), [(0, 1), (2, 3), (4, 5)])
    (Flow(src=0, dst=2, cable=-1), Flow(src=0, dst=4, cable=-1), Flow(src=1, dst=3, cable=-1), ...)
    """
    outside = _interleave(other for other in groups if tuple(other) != tuple(group))
    targets = cycle(outside)
    each = min(2, len(outside))
    return tuple(Flow(member, target) for member in group for target in islice(targets, each))


def entering(group: Sequence[int], groups: Sequence[Sequence[int]]) -> Flows:
    """The same flows the other way round."""
    return tuple(Flow(flow.dst, flow.src) for flow in leaving(group, groups))


def _interleave(groups: Iterable[Sequence[int]]) -> list[int]:
    return [host for host in chain.from_iterable(zip_longest(*groups)) if host is not None]
