"""DeAR (Zhang et al., ICDCS 2023): what its abstract claims, and where the gain can come from.

Reduce-scatters run behind the backward pass and all-gathers behind the next forward pass. That hides more
than all-reduces behind the backward pass alone can, and how much more is known: with a backward pass twice as
long as the forward pass at most a quarter. What a paper measures beyond that is fusion, latency, or how well
the others are made. So every figure here stands beside the ideal lines of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.papers.claims import against_channel
from weft.papers.dear import rows as dear_rows
from weft.papers.dear.cells import fill
from weft.papers.dear.charts import draw
from weft.papers.dear.forms import RATIOS, UNIFORM_LAYERS, WORKERS, gains, scaling
from weft.papers.dear.idle_network import STUDIED, fill_gap, idle_rows
from weft.papers.dear.setup import ALGORITHM, DEVICE, KINDS, MODELS, NETWORKS, Setting, layers_of
from weft.training import train

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings
    from weft.papers.dear.cells import Cell
    from weft.papers.dear.setup import TestbedNetwork

SCALED: Final = "densenet201"
"""The model with the most tensors, and so the most start-up latency."""

CHECKED: Final = ("ddp", "dear")
"""Policies that are held against a simulation of every link."""

_CHECKED_ITERATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Parameters
    ----------
    models
        Some of the five.
    scaled, workers
        The model whose start-up latency is shown over these numbers of workers.
    networks, kinds
        Some of both networks, and of both sets of costs.
    aside
        Whether closed forms, start-up latency and every link are studied too.
    """

    models: Sequence[str] = MODELS
    scaled: str = SCALED
    workers: Sequence[int] = WORKERS
    networks: Sequence[TestbedNetwork] = NETWORKS
    kinds: Sequence[str] = KINDS
    aside: bool = True


NEEDED: Final = {
    network.claim_id: Effort(networks=(network,), kinds=KINDS[:1], aside=False) for network in NETWORKS
}
"""What of the studies suffices for each claim."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return len(effort.networks) * len(effort.kinds) * len(effort.models) + 4 * effort.aside


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run every model on every network, the closed forms and the checks."""
    layers = {model: layers_of(model) for model in dict.fromkeys((*effort.models, effort.scaled))}
    cells: list[Cell] = []
    settings = {network: [Setting.of(network, kind) for kind in effort.kinds] for network in effort.networks}
    for network, of_network in settings.items():
        for setting in of_network:
            for model in effort.models:
                tell(f"{model}, {setting.name}")
                cells.append(fill(model, layers[model], setting))
        yield from dear_rows.network_rows(network, effort.kinds, cells)
    cells = [cell for kind in effort.kinds for cell in cells if cell.setting.endswith(kind)]
    if not effort.aside:
        return {"cells": [cell.to_dict() for cell in cells]}, dict
    yield from dear_rows.each_rival(effort.kinds, cells)
    yield from dear_rows.model_rows(cells)
    tell("closed forms")
    points = gains(RATIOS, UNIFORM_LAYERS)
    tell("start-up latency")
    startup = scaling(effort.scaled, layers[effort.scaled], NETWORKS[0], effort.workers)
    tell("idle network")
    head = layers_of(STUDIED)
    rings = effort.networks[0].costs()  # which have an all-to-all as well
    gap = fill_gap(head, rings)
    tell("every link")
    checked = [
        check(model, setting, policy)
        for of_network in settings.values()
        for setting in of_network
        if setting.kind == KINDS[0]
        for model in effort.models
        for policy in CHECKED
    ]
    data = {
        "cells": [cell.to_dict() for cell in cells],
        "gains": points,
        "scaling": startup,
        "idle_network": {"model": STUDIED, "cases": [case.to_dict() for case in gap]},
        "checked": checked,
    }
    where = f"{STUDIED}, {Setting.of(effort.networks[0], KINDS[0]).name}, all-gathers queued, best fusion"
    yield from dear_rows.aside_rows(cells, points, startup, checked)
    yield from idle_rows(where, head, rings, gap)
    return data, lambda: draw(cells, points, startup)


def check(model: str, setting: Setting, policy: str) -> dict[str, Any]:
    """Hold the one channel with costs against a simulation of every rank and every link."""
    topology = setting.network.topology()
    whole = train(
        model,
        topology,
        device=DEVICE,
        dtype="fp32",
        policy=policy,
        algorithm=ALGORITHM,
        iterations=_CHECKED_ITERATIONS,
    )
    case = {"model": model, "setting": setting.name, "policy": policy}
    return case | against_channel(whole, setting.costs)
