"""Searches for a fusion, held against trying every fusion there is.

Trying them all is what a running job can never afford, and a model of one can. A search is judged by how far
it ends from the best of them, and after how many evaluations it first came near.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from weft import limits
from weft.errors import InputError
from weft.training.costs import Linear, fit
from weft.training.fusion import condense, distinct_thresholds, fuse
from weft.training.fusion_tuner import MEBIBYTE, BayesianSearch, BoundedSearch
from weft.training.layers import total_bytes
from weft.training.policies import find
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.training.costs import Costs
    from weft.training.fusion_tuner import FusionSearch
    from weft.training.layers import Layer

NEAR: Final = 0.02
"""A search has come near when it tried something that takes no more than this share longer than the best."""

FIRST_GUESS: Final = 25 * MEBIBYTE
"""Where the search of the DeAR paper's code begins."""

FUSING: Final = ("serial", "wfbp", "zero", "dear")
"""Policies whose groups are those of `weft.training.fuse`."""

CANDIDATES: Final = 5
"""How many of the model's fusions the bounded search tries before it looks around."""

_BOUNDS: Final = (MEBIBYTE, 256 * MEBIBYTE)
_ITERATIONS: Final = 3
"""Enough for policies with a barrier: from the second iteration on, all are alike."""

_FITTED: Final = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)


class Fusions:
    """How long an iteration takes with each fusion, computed when it is asked for, and once.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    costs
        Of the collectives.
    policy
        One of `FUSING`.
    options
        Further options of the policy.

    Examples
    --------
    >>> from weft.training import Layer, Linear
    >>> model = [Layer(str(number), 1000, 1e-3, 2e-3) for number in range(8)]
    >>> fusions = Fusions(model, Linear.ring(4, alpha_s=1e-3, beta_s_per_byte=0.0), "wfbp")
    >>> fusions.best(), round(fusions.seconds(1000), 6), round(fusions.seconds(4000), 6)
    (5000, 0.058, 0.03)
    """

    def __init__(self, layers: Sequence[Layer], costs: Costs, policy: str = "dear", **options: Any) -> None:
        self.layers, self.costs = layers, costs
        self.policy = find(policy)
        if policy not in FUSING:
            msg = f"policy {policy} does not fuse by a threshold alone; expected one of {', '.join(FUSING)}"
            raise InputError(msg)
        self._options = options
        self._known: dict[int, float] = {}

    def seconds(self, threshold_bytes: int) -> float:
        """Seconds of an iteration with the fusion of this threshold."""
        if threshold_bytes not in self._known:
            self._known[threshold_bytes] = self._iteration(threshold_bytes)
        return self._known[threshold_bytes]

    def _iteration(self, threshold_bytes: int) -> float:
        options = self._options | {"threshold_bytes": threshold_bytes}
        layers = condense(self.layers, fuse(self.layers, threshold_bytes))
        graph = self.policy.build(layers, iterations=_ITERATIONS, costs=self.costs, **options)
        return run(graph, self.costs).seconds

    def best(self, most: int = limits.MAX_LAYERS) -> int:
        """The threshold of the fastest of all fusions.

        Parameters
        ----------
        most
            If there are more fusions than this, as many in even ratios are tried.
        """
        return self.good(1, most)[0]

    def good(self, count: int, most: int = limits.MAX_LAYERS) -> list[int]:
        """Thresholds of the fastest fusions, the best first, no two with equally many groups.

        Parameters
        ----------
        count
            How many at most.
        most
            As for `best`.
        """
        fastest: dict[int, int] = {}
        for threshold in distinct_thresholds(self.layers, most):
            groups = len(fuse(self.layers, threshold))
            known = fastest.get(groups)
            if known is None or self.seconds(threshold) < self.seconds(known):
                fastest[groups] = threshold
        return sorted(fastest.values(), key=self.seconds)[:count]

    def as_lines(self) -> Self:
        """The same with costs that are lines through those of a few sizes."""
        return type(self)(self.layers, believed(self.costs), self.policy.name, **self._options)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """How near a search for a fusion came to the best, and after how many evaluations.

    Parameters
    ----------
    search
        Its name.
    evaluations
        How many it made in all.
    needed
        After how many it had first come `NEAR`; None if never.
    threshold_bytes, seconds
        What it ended with.
    distance
        By which share that takes longer than the best there is.
    """

    search: str
    evaluations: int
    needed: int | None
    threshold_bytes: int
    seconds: float
    distance: float


@dataclass(frozen=True, slots=True)
class SearchReport:
    """Searches beside the best of all fusions."""

    fusions: int
    threshold_bytes: int
    seconds: float
    outcomes: tuple[SearchOutcome, ...]


def report(fusions: Fusions, belief: Fusions | None = None, *, most: int = limits.MAX_LAYERS) -> SearchReport:
    """Try every fusion, and every search.

    The searches are: ``model``, the best fusion that a model expects, without a search; ``bounded``,
    `BoundedSearch` from there and from the model's next best; and ``bayesian``, the search of the DeAR paper,
    from 25 MiB.

    Parameters
    ----------
    fusions
        What is searched.
    belief
        The model; by default the same with lines through the costs, as a job would measure them.
    most
        As for `Fusions.best`.
    """
    layers = fusions.layers
    tried = {fuse(layers, threshold) for threshold in distinct_thresholds(layers, most)}
    threshold = fusions.best(most)
    fastest = fusions.seconds(threshold)
    start, *others = (belief or fusions.as_lines()).good(CANDIDATES, most)
    smallest = min((layer.size_bytes for layer in layers if layer.size_bytes), default=1)
    bounds = smallest, max(smallest, total_bytes(layers))
    searches: dict[str, FusionSearch] = {
        "model": BoundedSearch(bounds, start, 1),
        "bounded": BoundedSearch(bounds, start, noise=0.0, others=others),
        "bayesian": BayesianSearch(_BOUNDS, FIRST_GUESS),
    }
    outcomes = tuple(outcome(name, search, fusions.seconds, fastest) for name, search in searches.items())
    return SearchReport(len(tried), threshold, fastest, outcomes)


def outcome(
    name: str, search: FusionSearch, seconds: Callable[[int], float], fastest_s: float
) -> SearchOutcome:
    """Run a search to its end.

    Parameters
    ----------
    name
        For the outcome.
    search
        That has not begun.
    seconds
        Gives the time for a threshold.
    fastest_s
        The best there is.
    """
    needed = None
    while (threshold := search.ask()) is not None:
        took = seconds(threshold)
        search.tell(took)
        if needed is None and took <= fastest_s * (1 + NEAR):
            needed = len(search.tried)
    took = search.tried[search.best]
    return SearchOutcome(name, len(search.tried), needed, search.best, took, took / fastest_s - 1)


def believed(costs: Costs) -> Linear:
    """Lines through what collectives of a few sizes cost, as a job would measure them."""
    return Linear(
        *(
            fit([(size, cost(size)) for size in _FITTED])
            for cost in (costs.reduce_scatter, costs.all_gather, costs.all_reduce)
        )
    )
