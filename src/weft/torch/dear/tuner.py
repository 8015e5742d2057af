"""By which plan DeAR works: it measures first, asks the model then, and tries neighbours after that.

The first steps run without overlap, so that layers and collectives are timed each for itself. What rank 0
measured is told to everybody, and everybody computes the same plan from it. The iteration times that later
steps are judged by are means over all ranks, which every rank knows.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from weft.training import AlphaBeta, BoundedSearch, Layer, Linear, PolicyChoice, best, fit, fuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.dear.bucket_channel import BucketChannel, OperationSpan
    from weft.torch.dear.fusion_groups import FusionPlan, Parameters
    from weft.torch.dear.hooked_modules import HookedModule

_WARM_UP: Final = 1
_MEASURED: Final = 2
_DEFAULT_BYTES: Final = 25 << 20
"""DeAR's and DistributedDataParallel's default fusion."""

_FIRST_GROUPS: Final = 4
"""Buckets of several sizes tell latency from bandwidth."""

_WORTH_MEASURING: Final = 1024
"""Bytes of gradients below which one way is as good as any other."""

_SETTLING: Final = 2
"""Iterations after a change that are not judged."""

_JUDGED: Final = 4
"""Iterations whose median is the time of a fusion."""


class Measured(msgspec.Struct, forbid_unknown_fields=True):
    """What rank 0 saw: by unit, and sizes and seconds of collectives."""

    ready: list[float]
    called: list[float]
    forward: list[float]
    backward: list[float]
    samples: dict[str, list[tuple[int, float]]]


class Tuner:
    """Measures, decides and tries.

    Parameters
    ----------
    channel
        Who takes part.
    parameters, units
        What is trained, and in which modules.
    policies
        To choose from.
    threshold_bytes
        Fusion that was asked for; None to choose.
    tune
        Whether to try neighbours of what the model chose.
    """

    def __init__(
        self,
        channel: BucketChannel,
        parameters: Parameters,
        units: Sequence[HookedModule],
        *,
        policies: Sequence[str],
        threshold_bytes: int | None,
        tune: bool,
    ) -> None:
        self._channel, self._parameters, self._units = channel, parameters, units
        self._policies, self._pinned, self._tune = tuple(policies), threshold_bytes, tune
        self._members: list[list[int]] = [[] for _ in units]
        for number, unit in enumerate(parameters.units):
            self._members[unit].append(number)
        self._step = 0
        pinned = threshold_bytes is not None and len(self._policies) == 1
        enough = sum(parameters.sizes) >= _WORTH_MEASURING
        self.measuring = not pinned and channel.size > 1 and enough
        self.tuning = False
        self.layers: tuple[Layer, ...] | None = None
        self.costs: Linear | None = None
        self.choice: PolicyChoice | None = None
        self._order: list[int] = []
        self._needed: list[int] = []
        self._search: BoundedSearch | None = None
        self._times: list[float] = []
        self._called: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._forward_over = 0.0
        self._rounds: list[tuple[dict[int, float], dict[int, float], float]] = []
        self._samples: dict[str, list[tuple[int, float]]] = {}

    @property
    def chose(self) -> bool:
        """Whether the policy was its to choose."""
        return len(self._policies) > 1

    def first_plan(self) -> FusionPlan:
        """What to begin with: the order of the model, and a usual fusion."""
        units = [unit for unit in range(len(self._units)) if self._members[unit]]
        self._order, self._needed = units, list(range(len(units)))
        return self._fused(self._policies[0], self._threshold())

    def began(self, unit: int) -> None:
        """A module is about to run."""
        self._called.setdefault(unit, self._channel.clock())

    def forward_began(self) -> None:
        """The model is about to run: of several forward passes the last counts."""
        self._called.clear()

    def forward_ended(self) -> None:
        """The model has run."""
        self._forward_over = self._channel.clock()

    def ready(self, number: int) -> None:
        """A gradient has become ready."""
        self._ready[self._parameters.units[number]] = self._channel.clock()

    def heard(self, span: OperationSpan, size_bytes: int) -> None:
        """A collective took so long."""
        if self._step >= _WARM_UP:
            self._samples.setdefault(span.kind, []).append((size_bytes, span.end - span.start))

    def next_plan(self, seconds: float) -> FusionPlan | None:
        """Plan to go on with from here, None for the same; every rank asks after each step.

        Parameters
        ----------
        seconds
            Of the latest iteration, as every rank knows it.
        """
        self._step += 1
        if self.measuring:
            return self._next_measurement()
        if self._search is not None:
            return self._next_trial(seconds)
        return None

    def allowed(self, plan: FusionPlan) -> FusionPlan:
        """A plan from elsewhere, with a policy that was asked for here."""
        return plan if plan.policy in self._policies else replace(plan, policy=self._policies[0])

    def keep(self) -> None:
        """Neither measure nor try any more: a checkpoint says how to go on."""
        self.measuring = self.tuning = False
        self._search = None

    def _next_measurement(self) -> FusionPlan | None:
        if self._step > _WARM_UP:
            self._rounds.append((dict(self._called), dict(self._ready), self._forward_over))
        self._called.clear()
        self._ready.clear()
        if self._step == _WARM_UP + 1 and self.chose:
            return self._fused(self._policies[1], self._threshold())  # its collective is timed as well
        if self._step < _WARM_UP + _MEASURED:
            return None
        self.measuring = False
        told = self._channel.share(msgspec.json.encode(self._summary()))
        return self._decide(msgspec.json.decode(told, type=Measured))

    def _summary(self) -> Measured:
        """Medians of what was seen, each layer's own seconds."""
        units = range(len(self._units))
        forward: list[list[float]] = [[] for _ in units]
        backward: list[list[float]] = [[] for _ in units]
        for called, ready, ended in self._rounds:
            sequence = sorted(called, key=called.__getitem__)
            # Who calls the parts of a model and never the whole sees no end of its forward pass.
            over = max([ended, *called.values()])
            ends = [called[unit] for unit in sequence[1:]] + [over]
            for unit, end in zip(sequence, ends, strict=True):
                forward[unit].append(max(0.0, end - called[unit]))
            before = over
            for unit in sorted(ready, key=ready.__getitem__):
                backward[unit].append(max(0.0, ready[unit] - before))
                before = max(before, ready[unit])
        called, ready, _ = self._rounds[-1]
        never = float("inf")
        ranked = sorted(units, key=lambda unit: (ready.get(unit, never), -unit))
        needed = sorted(units, key=lambda unit: (called.get(unit, never), unit))
        return Measured(
            ready=[float(ranked.index(unit)) for unit in units],
            called=[float(needed.index(unit)) for unit in units],
            forward=[statistics.median(times) if times else 0.0 for times in forward],
            backward=[statistics.median(times) if times else 0.0 for times in backward],
            samples=self._samples,
        )

    def _decide(self, seen: Measured) -> FusionPlan:
        """Same on every rank: all of it comes from what rank 0 told."""
        units = [unit for unit in range(len(self._units)) if self._members[unit]]
        # The model's backward pass goes through the layers from last to first.
        self._order = sorted(units, key=lambda unit: -seen.ready[unit])
        self._needed = [int(seen.called[unit]) for unit in self._order]
        self.layers = tuple(
            self._layer(unit, seen.forward[unit], seen.backward[unit]) for unit in self._order
        )
        self.costs = _fit_costs(seen.samples)
        candidates = None if self._pinned is None else [self._pinned]
        self.choice = best(self.layers, self.costs, self._policies, candidates)
        sizes = [layer.size_bytes for layer in self.layers]
        low, high = max(1, min(sizes)), sum(sizes)
        start = min(max(self.choice.threshold_bytes, low), high)
        if self._tune and self._pinned is None and len(self.layers) > 1:
            self._search = BoundedSearch((low, high), start)
            self.tuning = True
        return self._fused(self.choice.policy, self.choice.threshold_bytes)

    def _next_trial(self, seconds: float) -> FusionPlan | None:
        assert self._search is not None
        assert self.choice is not None
        self._times.append(seconds)
        if len(self._times) < _SETTLING + _JUDGED:
            return None
        now = self._search.ask()
        self._search.tell(statistics.median(self._times[_SETTLING:]))
        self._times.clear()
        threshold = self._search.ask()
        if threshold is None:
            threshold = self._search.best
            self._search = None
            self.tuning = False
        return None if threshold == now else self._fused(self.choice.policy, threshold)

    def _fused(self, policy: str, threshold_bytes: int) -> FusionPlan:
        members = [self._members[unit] for unit in self._order]
        groups = fuse([self._layer(unit) for unit in self._order], threshold_bytes)
        return self._parameters.plan(members, groups, self._needed, policy, threshold_bytes)

    def _layer(self, unit: int, forward_s: float = 0.0, backward_s: float = 0.0) -> Layer:
        size = sum(self._parameters.sizes[member] for member in self._members[unit])
        return Layer(self._units[unit].name or "model", size, forward_s, backward_s)

    def _threshold(self) -> int:
        """Where nothing is known yet."""
        total = sum(self._parameters.sizes)
        return self._pinned or min(_DEFAULT_BYTES, max(1, total // _FIRST_GROUPS))


def _fit_costs(samples: dict[str, list[tuple[int, float]]]) -> Linear:
    """Costs by size; the vote is a small all-reduce, and half of one costs about half."""
    small = samples.get("vote", [])
    halves = [(size // 2, seconds / 2) for size, seconds in small]
    whole = fit(samples["all_reduce"] + small) if "all_reduce" in samples else None
    if "reduce_scatter" not in samples:
        assert whole is not None
        half = AlphaBeta(whole.alpha_s / 2, whole.beta_s_per_byte / 2)
        return Linear(half, half, whole)
    both = Linear.in_halves(fit(samples["reduce_scatter"] + halves), fit(samples["all_gather"] + halves))
    return both if whole is None else replace(both, all_reduce=whole)
