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
from weft.papers.dear.setup import ALGORITHM, DEVICE, MODELS, NETWORKS, Setting, authors_lines, layers_of
from weft.training import train

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings
    from weft.papers.dear.cells import Cell

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
    """

    models: Sequence[str] = MODELS
    scaled: str = SCALED
    workers: Sequence[int] = WORKERS


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return 2 * len(NETWORKS) * len(effort.models) + 4


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run every model on every network, the closed forms and the checks."""
    simulated = [network.costs() for network in NETWORKS]
    settings = [
        Setting(network, "simulated", costs) for network, costs in zip(NETWORKS, simulated, strict=True)
    ]
    settings += [Setting(network, "authors", authors_lines(network)) for network in NETWORKS]
    layers = {model: layers_of(model) for model in dict.fromkeys((*effort.models, effort.scaled))}
    cells: list[Cell] = []
    for setting in settings:
        for model in effort.models:
            tell(f"{model}, {setting.name}")
            cells.append(fill(model, layers[model], setting))
    tell("closed forms")
    points = gains(RATIOS, UNIFORM_LAYERS)
    tell("start-up latency")
    startup = scaling(effort.scaled, layers[effort.scaled], NETWORKS[0], effort.workers)
    tell("idle network")
    head = layers_of(STUDIED)
    gap = fill_gap(head, simulated[0])
    tell("every link")
    checked = [
        check(model, setting, policy)
        for setting in settings[: len(NETWORKS)]
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
    where = f"{STUDIED}, {settings[0].name}, all-gathers queued, best fusion"
    rows = (
        *dear_rows.rows(cells, points, startup, checked),
        *idle_rows(where, head, simulated[0], gap),
    )
    return rows, data, draw(cells, points, startup)


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
