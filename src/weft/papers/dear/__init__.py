"""DeAR (Zhang et al., ICDCS 2023): what its abstract claims, and where the gain can come from.

Reduce-scatters run behind the backward pass and all-gathers behind the next forward pass. That hides more
than all-reduces behind the backward pass alone can, and how much more is known: with a backward pass twice as
long as the forward pass at most a quarter. What a paper measures beyond that is fusion, latency, or how well
the others are made. So every figure here stands beside the ideal lines of both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from weft.papers.claims import Reproduction
from weft.papers.dear import rows as dear_rows
from weft.papers.dear.cells import fill
from weft.papers.dear.charts import draw
from weft.papers.dear.forms import RATIOS, UNIFORM_LAYERS, WORKERS, gains, scaling
from weft.papers.dear.setup import (
    ALGORITHM,
    ASSUMPTIONS,
    MODELS,
    NETWORKS,
    Setting,
    authors_lines,
    layers_of,
)
from weft.training.cluster import Cluster
from weft.training.policies import find
from weft.training.schedules import by_algorithm
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.papers.dear.cells import Cell
    from weft.training.layers import Layer

TITLE: Final = "DeAR: reduce-scatter behind backward, all-gather behind the next forward"
REFERENCE: Final = (
    "Zhang et al.: Decoupling the All-Reduce Primitive for Accelerating Distributed Deep Learning, "
    "arXiv 2302.12445, ICDCS 2023"
)
SCALED: Final = "densenet201"
"""The model with the most tensors, and so the most start-up latency."""

CHECKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (("ddp", {}), ("dear", {}))
"""Policies that are held against a simulation of every link."""

_CHECKED_ITERATIONS: Final = 3


def reproduce(
    report: Callable[[str, int, int], None] = lambda _text, _done, _all: None,
    *,
    models: Sequence[str] = MODELS,
    scaled: str = SCALED,
    workers: Sequence[int] = WORKERS,
) -> Reproduction:
    """Run what the paper claims.

    Parameters
    ----------
    report
        Called with a text, steps done and steps in all.
    models
        Some of the five.
    scaled, workers
        The model whose start-up latency is shown over these numbers of workers.
    """
    began = time.process_time()
    settings = [Setting(network, "simulated", network.costs()) for network in NETWORKS]
    settings += [Setting(network, "authors", authors_lines(network)) for network in NETWORKS]
    steps = len(settings) * len(models) + 3
    layers = {model: layers_of(model) for model in dict.fromkeys((*models, scaled))}
    cells: list[Cell] = []
    for setting in settings:
        for model in models:
            report(f"{model}, {setting.name}", len(cells), steps)
            cells.append(fill(model, layers[model], setting))
    report("closed forms", steps - 3, steps)
    points = gains(RATIOS, UNIFORM_LAYERS)
    report("start-up latency", steps - 2, steps)
    startup = scaling(scaled, layers[scaled], NETWORKS[0], workers)
    report("every link", steps - 1, steps)
    checked = [
        check(model, layers[model], setting, *plain)
        for setting in settings[: len(NETWORKS)]
        for model in models
        for plain in CHECKED
    ]
    report("done", steps, steps)
    data = {
        "cells": [cell.as_dict() for cell in cells],
        "gains": points,
        "scaling": startup,
        "checked": checked,
    }
    return Reproduction(
        paper="dear",
        title=TITLE,
        reference=REFERENCE,
        assumptions=ASSUMPTIONS,
        rows=tuple(dear_rows.rows(cells, points, startup, checked)),
        data=data,
        charts=draw(cells, points, startup),
        cpu_seconds=time.process_time() - began,
    )


def check(
    model: str, layers: Sequence[Layer], setting: Setting, policy: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Hold the one channel with costs against a simulation of every rank and every link."""
    graph = find(policy).build(layers, costs=setting.costs, iterations=_CHECKED_ITERATIONS, **options)
    channel = run(graph, setting.costs).seconds
    topology = setting.network.topology()
    cluster = Cluster(topology, by_algorithm(topology, ALGORITHM)).run(graph).seconds
    return {
        "model": model,
        "setting": setting.name,
        "policy": policy,
        "channel_s": channel,
        "cluster_s": cluster,
        "difference": channel / cluster - 1,
    }
