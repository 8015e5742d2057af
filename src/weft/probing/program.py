"""Which rounds a probe runs, in which order; the later ones depend on what the earlier ones showed.

Whoever calls this decides how a round is run: on a real network, or on an imagined one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.probing import rounds
from weft.probing.grouping import doubtful_fans, find_groups, order_by_likeness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.probing.measurements import Cable, Flow, Measurements

    Run = Callable[[str, Iterable[tuple[Flow, ...]]], None]
    """Runs rounds of a kind, and adds them to the measurements."""

REPEATS: Final = 3
SHUFFLES: Final = 2
_SEED: Final = 1


def measure_cables(found: Measurements, run: Run) -> None:
    """Each cable alone, a few times, then all of them together."""
    flows = rounds.cable_flows(found.cables)
    before = len(found.rounds)
    run("warm-up", flows)
    del found.rounds[before:]  # a connection's first moments are not its speed
    run("cables", flows * REPEATS)
    run("all cables", [tuple(flow for one in flows for flow in one)])


def measure_fabric(found: Measurements, run: Run) -> None:
    """Pairs, each host with all others, everybody at once, and then what seems to share an uplink."""
    hosts = len(found.hosts)
    random = np.random.default_rng(_SEED)
    run("pairs", rounds.pairs(hosts, random))
    run("fans", rounds.fans(hosts))
    run("fans", rounds.fans(hosts, doubtful_fans(found)))
    for _ in range(SHUFFLES):
        run("permutations", rounds.permutations(random.permutation(hosts).tolist()))
        run("permutations", rounds.permutations(order_by_likeness(found)))
    found.groups = tuple(find_groups(found))
    for group in found.groups if len(found.groups) > 1 else ():
        if len(group) > 1:
            run("groups", [rounds.leaving(group, found.groups)] * REPEATS)
            run("groups", [rounds.entering(group, found.groups)] * REPEATS)


def count_rounds(hosts: int, cables: Sequence[Cable], *, fabric: bool) -> int:
    """About how many rounds there will be."""
    count = (1 + REPEATS) * len(rounds.cable_flows(cables)) + bool(cables)
    if fabric:
        count += 2 * len(rounds.tournament(hosts)) + 2 * hosts + 2 * SHUFFLES * (hosts - 1)
        count += 2 * REPEATS * max(1, hosts // 4)
    return count
