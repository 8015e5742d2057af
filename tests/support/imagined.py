"""Clusters whose truth is known, probed without a network: the same rounds, with rates that a model gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from weft.probing import Flow, MeasuredCable, Measurements, Round
from weft.probing.fair_sharing import share_fairly
from weft.probing.measurement_program import measure_cables, measure_fabric
from weft.probing.measurements import FABRIC
from weft.topology import Topology


@dataclass(frozen=True)
class Noise:
    """Rates are off by `jitter` (relative), and a part of them, `lost`, is halved by bad luck.

    Rounds in `held_up`, which are counted from 0, reach this part of their rates, as on a busy machine.
    """

    jitter: float = 0.0
    lost: float = 0.0
    seed: int = 0
    held_up: Mapping[int, float] = field(default_factory=dict)


QUIET = Noise()


def probe_imagined(
    truth: Topology, noise: Noise = QUIET, cables: Iterable[MeasuredCable] = ()
) -> Measurements:
    """Measure a topology; its hosts, or its ranks, are the hosts."""
    hosts = truth.hosts or tuple((rank,) for rank in range(truth.ranks))
    found = Measurements(hosts, tuple(cables))
    random = np.random.default_rng(noise.seed)
    numbers = count()

    def run(kind: str, some: Iterable[tuple[Flow, ...]], *, must: bool = False) -> None:
        for flows in some:
            held_up = noise.held_up.get(next(numbers), 1.0)
            routes = {number: route(truth, found, flow) for number, flow in enumerate(flows)}
            rates = share_fairly(routes, truth.bandwidth.tolist())
            seen = {}
            for number, flow in enumerate(flows):
                factor = held_up * (1 + noise.jitter * random.uniform(-1, 1))
                seen[flow] = rates[number] * factor * (0.5 if random.random() < noise.lost else 1)
                if flow.src < flow.dst:
                    links = routes[number]
                    found.latency_s[flow] = float(truth.latency_ps[list(links)].sum()) / 1e12
            found.rounds.append(Round(kind, seen))

    if found.cables:
        measure_cables(found, run)
    else:
        measure_fabric(found, run)
    for number, host in enumerate(hosts):
        if len(host) > 1:
            link = truth.link_src.tolist().index(host[0])
            found.memory[number] = [float(truth.bandwidth[link])] * len(host)
    return found


def route(truth: Topology, found: Measurements, flow: Flow) -> tuple[int, ...]:
    src, dst = found.hosts[flow.src][0], found.hosts[flow.dst][0]
    if flow.cable == FABRIC:
        return truth.route(src, dst)
    same = [
        number for number, cable in enumerate(found.cables) if cable.hosts == found.cables[flow.cable].hosts
    ]
    return (truth.links_between(src, dst)[same.index(flow.cable)],)


def cables_of(truth: Topology) -> list[MeasuredCable]:
    """Of a topology whose ranks are wired to ranks."""
    found = []
    for link in range(truth.links):
        src, dst = int(truth.link_src[link]), int(truth.link_dst[link])
        if src < dst:
            found.append(
                MeasuredCable(
                    (src, dst), (f"10.{link >> 8}.{link & 255}.1", f"10.{link >> 8}.{link & 255}.2")
                )
            )
    return sorted(found)
