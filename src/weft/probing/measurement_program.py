"""Which rounds a probe runs, in which order; the later ones depend on what the earlier ones showed.

Whoever calls this decides how a round is run: on a real network, or on an imagined one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from weft.probing import flow_rounds
from weft.probing.bottlenecks import doubtful_cables, doubtful_fans, find_groups, order_by_likeness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.probing.measurements import Flow, MeasuredCable, Measurements

REPEATS: Final = 3
SHUFFLES: Final = 2
_SEED: Final = 1
_LEAST_ROUNDS: Final = 4
"""Of pairs, after which every host has sent and received, even if their number is odd."""


class RunRounds(Protocol):
    """Runs rounds of a kind, and adds them to the measurements."""

    def __call__(self, kind: str, some: Iterable[tuple[Flow, ...]], *, must: bool = False) -> None:
        """Run them, as long as there is time; those that must be run even if there is none."""


def measure_cables(found: Measurements, run: RunRounds) -> None:
    """Each cable alone, a few times, then all of them together, and again where rates disagree."""
    flows = flow_rounds.cable_flows(found.cables)
    before = len(found.rounds)
    run("warm-up", flows, must=True)
    del found.rounds[before:]  # a connection's first moments are not its speed
    run("cables", flows, must=True)
    run("cables", flows * (REPEATS - 1))
    run("all cables", [tuple(flow for one in flows for flow in one)])

    def doubtful() -> list[tuple[Flow, ...]]:
        doubted = doubtful_cables(found)
        return [kept for one in flows if (kept := tuple(flow for flow in one if flow in doubted))]

    _repeat("cables", doubtful, run)


def measure_fabric(found: Measurements, run: RunRounds) -> None:
    """Pairs, each host with all others, everybody at once, and then what seems to share an uplink."""
    hosts = len(found.hosts)
    random = np.random.default_rng(_SEED)
    pairs = flow_rounds.pairs(hosts, random)
    run("pairs", islice(pairs, _LEAST_ROUNDS), must=True)
    run("pairs", pairs)
    run("fans", flow_rounds.fans(hosts))
    _repeat("fans", lambda: list(flow_rounds.fans(hosts, doubtful_fans(found))), run)
    for _ in range(SHUFFLES):
        run("permutations", flow_rounds.permutations(random.permutation(hosts).tolist()))
        run("permutations", flow_rounds.permutations(order_by_likeness(found)))
    found.groups = tuple(find_groups(found))
    for group in found.groups if len(found.groups) > 1 else ():
        if len(group) > 1:
            run("groups", [flow_rounds.leaving(group, found.groups)] * REPEATS)
            run("groups", [flow_rounds.entering(group, found.groups)] * REPEATS)


def _repeat(kind: str, doubtful: Callable[[], list[tuple[Flow, ...]]], run: RunRounds) -> None:
    """Run rounds again until their best rates are confirmed, a few times at most.

    Of two rates that disagree, the lower one may be that of a process that waited for a processor, and the
    higher one a hiccup of the clock. A third one tells.
    """
    for _ in range(REPEATS):
        rounds = doubtful()
        if not rounds:
            return
        run(kind, rounds)


def count_rounds(hosts: int, cables: Sequence[MeasuredCable], *, fabric: bool) -> int:
    """About how many rounds there will be."""
    count = (1 + REPEATS) * len(flow_rounds.cable_flows(cables)) + bool(cables)
    if fabric:
        count += 2 * len(flow_rounds.tournament(hosts)) + 2 * hosts + 2 * SHUFFLES * (hosts - 1)
        count += 2 * REPEATS * max(1, hosts // 4)
    return count
