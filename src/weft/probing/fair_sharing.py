"""Max-min fairness: how fast flows are that share links, as TCP connections roughly do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def share_fairly(routes: Mapping[int, tuple[int, ...]], bandwidth: Sequence[float]) -> dict[int, float]:
    """Bytes per second of each flow, max-min fair: no flow could go faster without slowing a slower one.

    The narrowest link is found first and shared evenly by its flows, which leave the rest of other links to
    others; then the next narrowest. These are floats: the order of operations is part of the definition.

    Examples
    --------
    >>> share_fairly({0: (0, 1), 1: (0,), 2: (1,)}, [10, 30])
    {0: 5.0, 1: 5.0, 2: 25.0}
    """
    left = [float(capacity) for capacity in bandwidth]
    unfrozen: dict[int, set[int]] = defaultdict(set)
    for flow, route in routes.items():
        for link in route:
            unfrozen[link].add(flow)
    rates: dict[int, float] = {}
    while len(rates) < len(routes):
        share, narrowest = min((left[link] / len(flows), link) for link, flows in unfrozen.items() if flows)
        for flow in sorted(unfrozen[narrowest]):
            rates[flow] = share
            for link in routes[flow]:
                left[link] -= share
                unfrozen[link].discard(flow)
    return rates
