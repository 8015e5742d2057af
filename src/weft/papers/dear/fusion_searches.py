"""Every fusion of a model, quickly, and the searches for the best of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.training.exhaustive import NEAR, Fusions, believed, report
from weft.training.fusion import fuse
from weft.training.fusion_tuner import MOST_EVALUATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.training.costs import Costs
    from weft.training.layers import Layer

BAYESIAN: Final = "bayesian"
SEED: Final = 7
OFF: Final = 1 / 3


class QuickFusions(Fusions):
    """The same times as `Fusions` gives, by a recursion over groups instead of a graph of tasks.

    A model has up to thousands of fusions; this is what makes trying all of them affordable.

    Parameters
    ----------
    layers, costs
        As for `Fusions`; no layer has an exchange.
    policy
        ``dear`` or ``wfbp``.
    prefetch
        Of ``dear``: 1, or None for all.

    Examples
    --------
    >>> from weft.training import Layer, Linear
    >>> model = [Layer(str(number), 1000, 1e-3, 2e-3) for number in range(8)]
    >>> fusions = QuickFusions(model, Linear.ring(4, alpha_s=1e-3, beta_s_per_byte=0.0), "wfbp")
    >>> round(fusions.seconds(1000), 6), round(fusions.seconds(4000), 6)
    (0.058, 0.03)
    """

    def __init__(
        self, layers: Sequence[Layer], costs: Costs, policy: str = "dear", *, prefetch: int | None = 1
    ) -> None:
        super().__init__(layers, costs, policy, prefetch=prefetch)
        self._prefetch = prefetch
        self._forward = [0.0, *accumulate(layer.forward_s for layer in layers)]
        self._backward = [0.0, *accumulate(layer.backward_s for layer in layers)]
        self._sizes = [0, *accumulate(layer.size_bytes for layer in layers)]
        whole = policy == "wfbp"
        self._send: Callable[[int], float] = cache(costs.all_reduce if whole else costs.reduce_scatter)
        self._gather: Callable[[int], float] | None = None if whole else cache(costs.all_gather)

    def _iteration(self, threshold_bytes: int) -> float:
        # Groups come as they are sent, from the end of the model; each begins at its smallest layer.
        begins = [group[-1] for group in fuse(self.layers, threshold_bytes)]
        ends = [len(self.layers), *begins[:-1]]
        sizes = [self._sizes[end] - self._sizes[begin] for begin, end in zip(begins, ends, strict=True)]
        total, sent = self._backward[-1], 0.0
        for begin, size in zip(begins, sizes, strict=True):
            sent = max(sent, total - self._backward[begin]) + self._send(size)
        return self._forward_pass(begins, ends, sizes) + max(total, sent)

    def _forward_pass(self, begins: list[int], ends: list[int], sizes: list[int]) -> float:
        if self._gather is None:
            return self._forward[-1]
        clock = self._forward[begins[-1]]
        launched = gathered = 0.0
        for begin, end, size in zip(reversed(begins), reversed(ends), reversed(sizes), strict=True):
            gathered = (gathered if self._prefetch is None else launched) + self._gather(size)
            launched = max(clock, gathered)
            clock = launched + self._forward[end] - self._forward[begin]
        return clock


def search(layers: Sequence[Layer], costs: Costs, *, misjudged: bool = True) -> dict[str, Any]:
    """Run the searches for DeAR's fusion beside all fusions there are.

    Parameters
    ----------
    layers, costs
        As for `QuickFusions`.
    misjudged
        Whether the bounded search also starts from a model with times of layers that are off, each by up to
        a third: a job measures its layers while it trains.
    """
    truth = QuickFusions(layers, costs)
    right = report(truth)
    outcomes = {line.search: line for line in right.outcomes}
    if misjudged:
        wrong = report(truth, QuickFusions(misjudge(layers, SEED), believed(costs)))
        outcomes |= {f"{line.search}, misjudged": line for line in wrong.outcomes if line.search != BAYESIAN}
    return {
        "fusions": right.fusions,
        "best_threshold_bytes": right.threshold_bytes,
        "best_seconds": right.seconds,
        "searches": {name: asdict(line) for name, line in outcomes.items()},
    }


def misjudge(layers: Sequence[Layer], seed: int) -> tuple[Layer, ...]:
    """The same layers with times that are off, each by up to `OFF`."""
    chance = np.random.default_rng(seed)

    def off(seconds: float) -> float:
        return seconds * float(chance.uniform(1 - OFF, 1 + OFF))

    return tuple(
        replace(layer, forward_s=off(layer.forward_s), backward_s=off(layer.backward_s)) for layer in layers
    )


def within_bounds(found: dict[str, Any], search_name: str) -> bool:
    """Whether a search ended within 2 % of the best in at most ten evaluations."""
    line = found["searches"][search_name]
    return bool(line["distance"] <= NEAR and line["evaluations"] <= MOST_EVALUATIONS)
