"""What holds on any cluster: closed forms, the most that scheduling is worth, and start-up latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.papers.dear.cells import iteration
from weft.papers.dear.setup import GPUS
from weft.training import AlphaBeta, Layer, Linear, ideal_dear, ideal_wfbp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.papers.dear.setup import TestbedNetwork

FORWARD_S: Final = 1.0
BACKWARD_S: Final = 2.0
UNIFORM_LAYERS: Final = 250
RATIOS: Final = (0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 8, 10, 12, 16)
"""Seconds of an all-reduce over those of the forward pass."""

WORKERS: Final = (8, 16, 32, 64)
LATENCY_BOUND: Final = {
    "wfbp, no fusion": ("wfbp", {}),
    "dear, no fusion": ("dear", {"threshold_bytes": 1}),
    "ddp": ("ddp", {}),
    "dear, 25 MiB": ("dear", {}),
}


def uniform(count: int = UNIFORM_LAYERS) -> list[Layer]:
    """Equal layers that compute 1 s forward and 2 s backward together."""
    return [Layer(str(number), 1000, FORWARD_S / count, BACKWARD_S / count) for number in range(count)]


def costs_of(all_reduce_s: float, layers: Sequence[Layer]) -> Linear:
    """Costs without latency under which all gradients take so long, either half of it as long."""
    half = AlphaBeta(0.0, all_reduce_s / 2 / sum(layer.size_bytes for layer in layers))
    return Linear.in_halves(half, half)


def gains(ratios: Sequence[float] = RATIOS, count: int = UNIFORM_LAYERS) -> list[dict[str, float]]:
    """Times of ideal lines and simulated policies over the length of an all-reduce.

    Examples
    --------
    >>> [point] = gains([4.0], count=100)
    >>> point["ideal_gain"], round(point["wfbp_s"], 1), round(point["dear_s"], 1)
    (1.25, 5.0, 4.0)
    """
    layers = uniform(count)
    found = []
    for ratio in ratios:
        costs = costs_of(ratio * FORWARD_S, layers)
        ideals = ideal_wfbp(layers, costs), ideal_dear(layers, costs)
        wfbp, dear = (iteration(layers, costs, name, {"threshold_bytes": 1}) for name in ("wfbp", "dear"))
        found.append(
            {
                "ratio": ratio,
                "ideal_wfbp_s": ideals[0],
                "ideal_dear_s": ideals[1],
                "ideal_gain": ideals[0] / ideals[1],
                "wfbp_s": wfbp,
                "dear_s": dear,
                "gain": wfbp / dear,
            }
        )
    return found


def largest_error(points: Sequence[dict[str, float]]) -> float:
    """By which share a simulated policy is at most away from its closed form."""
    return max(
        abs(point[f"{policy}_s"] / point[f"ideal_{policy}_s"] - 1)
        for point in points
        for policy in ("wfbp", "dear")
    )


def scaling(
    model: str, layers: Sequence[Layer], network: TestbedNetwork, workers: Sequence[int]
) -> dict[str, Any]:
    """Iterations with and without fusion over the number of workers, and a small all-reduce."""
    found: dict[str, Any] = {
        "model": model,
        "network": network.name,
        "workers": list(workers),
        "small_all_reduce_s": [],
        "seconds": {name: [] for name in LATENCY_BOUND},
    }
    for count in workers:
        costs = network.costs(count // GPUS)
        found["small_all_reduce_s"].append(costs.all_reduce(1))
        for name, (policy, options) in LATENCY_BOUND.items():
            found["seconds"][name].append(iteration(layers, costs, policy, options))
    return found
