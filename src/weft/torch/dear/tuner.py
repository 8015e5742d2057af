"""The tuner: it measures, chooses a policy and a fusion by the model of an iteration, and tries others.

The first steps run without overlap, so that layers and collectives are timed separately. Rank 0 sends its
measurements to all ranks, and every rank computes the same plan from them. The iteration times by which later
steps are compared are means over all ranks, which every rank knows.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from weft.torch.dear.policy_trial import PolicyTrial
from weft.training import AlphaBeta, BoundedSearch, Layer, Linear, PolicyChoice, best, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.dear.bucket_channel import BucketChannel, OperationSpan
    from weft.torch.dear.fusion_plan import FusionPlan, Parameters
    from weft.torch.dear.hooks import HookedModule

_WARM_UP: Final = 1
_MEASURED: Final = 2
_DEFAULT_BYTES: Final = 25 << 20
"""DeAR's and DistributedDataParallel's default fusion."""

_FIRST_GROUPS: Final = 4
"""Buckets of several sizes, from which latency and bandwidth are fitted."""

_WORTH_MEASURING: Final = 1024
"""Bytes of gradients below which no choice matters."""

_SETTLING: Final = 2
"""Iterations after a change that are not counted."""

_JUDGED: Final = 4
"""Iterations whose median is the time of a plan."""


class Measured(msgspec.Struct, forbid_unknown_fields=True):
    """The measurements of rank 0: by module, and sizes and seconds of collectives."""

    ready: list[float]
    called: list[float]
    forward: list[float]
    backward: list[float]
    samples: dict[str, list[tuple[int, float]]]


class Tuner:
    """The choice of a fusion plan while training runs.

    Parameters
    ----------
    channel
        The ranks that take part.
    parameters, modules
        The parameters that are trained, and the modules that have them.
    policies
        The policies to choose from.
    threshold_bytes
        The fusion that the user prescribes; None to choose one.
    tune
        Whether to try the policies, and neighbours of the fusion that the model chose.
    """

    def __init__(
        self,
        channel: BucketChannel,
        parameters: Parameters,
        modules: Sequence[HookedModule],
        *,
        policies: Sequence[str],
        threshold_bytes: int | None,
        tune: bool,
    ) -> None:
        self._channel, self._parameters, self._modules = channel, parameters, modules
        self._policies, self._pinned, self._tune = tuple(policies), threshold_bytes, tune
        self._members: list[list[int]] = [[] for _ in modules]
        for number, module in enumerate(parameters.modules):
            self._members[module].append(number)
        self._trained = [module for module, members in enumerate(self._members) if members]
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
        self._trial: PolicyTrial | None = None
        self._search: BoundedSearch | None = None
        self._times: list[float] = []
        self._called: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._forward_over = 0.0
        self._rounds: list[tuple[dict[int, float], dict[int, float], float]] = []
        self._samples: dict[str, list[tuple[int, float]]] = {}

    @property
    def chooses_policy(self) -> bool:
        """Whether the user left the choice of the policy to the tuner."""
        return len(self._policies) > 1

    @property
    def deciding(self) -> bool:
        """Whether the policy is not chosen yet."""
        return self.chooses_policy and (self.measuring or self._trial is not None)

    def first_plan(self) -> FusionPlan:
        """Return the plan to begin with: the order of the model, and the default fusion."""
        self._order, self._needed = self._trained, list(range(len(self._trained)))
        return self._fused(self._policies[0], self._threshold())

    def module_began(self, module: int) -> None:
        """Take note that a module is about to run."""
        self._called.setdefault(module, self._channel.clock())

    def forward_began(self) -> None:
        """Take note that the model is about to run: of several forward passes the last counts."""
        self._called.clear()

    def forward_ended(self) -> None:
        """Take note that the model has run."""
        self._forward_over = self._channel.clock()

    def gradient_ready(self, number: int) -> None:
        """Take note that a gradient is ready."""
        self._ready[self._parameters.modules[number]] = self._channel.clock()

    def add_sample(self, span: OperationSpan, size_bytes: int) -> None:
        """Take note of the time of a collective."""
        if self._step >= _WARM_UP:
            self._samples.setdefault(span.kind, []).append((size_bytes, span.end - span.start))

    def next_plan(self, seconds: float) -> FusionPlan | None:
        """Return the plan of the next step, None for the same; every rank calls this after each step.

        Parameters
        ----------
        seconds
            The time of the latest iteration, as every rank knows it.
        """
        self._step += 1
        if self.measuring:
            return self._next_measurement()
        if not self.tuning:
            return None
        self._times.append(seconds)
        if len(self._times) < _SETTLING + _JUDGED:
            return None
        typical = statistics.median(self._times[_SETTLING:])
        self._times.clear()
        return self._next_policy(typical) if self._trial is not None else self._next_fusion(typical)

    def allowed(self, plan: FusionPlan) -> FusionPlan:
        """Return the plan of a checkpoint with a policy that the user allows here."""
        return plan if plan.policy in self._policies else replace(plan, policy=self._policies[0])

    def stop(self) -> None:
        """Stop measuring and trying: a checkpoint has the plan."""
        self.measuring = self.tuning = False
        self._trial = self._search = None

    def _next_measurement(self) -> FusionPlan | None:
        if self._step > _WARM_UP:
            self._rounds.append((dict(self._called), dict(self._ready), self._forward_over))
        self._called.clear()
        self._ready.clear()
        if self._step == _WARM_UP + 1 and self.chooses_policy:
            return self._fused(self._policies[1], self._threshold())  # its collective is timed as well
        if self._step < _WARM_UP + _MEASURED:
            return None
        self.measuring = False
        shared = self._channel.share(msgspec.json.encode(self._summary()))
        return self._decide(msgspec.json.decode(shared, type=Measured))

    def _summary(self) -> Measured:
        """Return medians of the measurements, each layer's own seconds."""
        modules = range(len(self._modules))
        forward: list[list[float]] = [[] for _ in modules]
        backward: list[list[float]] = [[] for _ in modules]
        for called, ready, ended in self._rounds:
            sequence = sorted(called, key=called.__getitem__)
            # Where the parts of a model are called and never the whole, its forward pass has no end.
            over = max([ended, *called.values()])
            ends = [called[module] for module in sequence[1:]] + [over]
            for module, end in zip(sequence, ends, strict=True):
                forward[module].append(max(0.0, end - called[module]))
            before = over
            for module in sorted(ready, key=ready.__getitem__):
                backward[module].append(max(0.0, ready[module] - before))
                before = max(before, ready[module])
        called, ready, _ = self._rounds[-1]
        never = float("inf")
        ranked = sorted(modules, key=lambda module: (ready.get(module, never), -module))
        needed = sorted(modules, key=lambda module: (called.get(module, never), module))
        return Measured(
            ready=[float(ranked.index(module)) for module in modules],
            called=[float(needed.index(module)) for module in modules],
            forward=[statistics.median(times) if times else 0.0 for times in forward],
            backward=[statistics.median(times) if times else 0.0 for times in backward],
            samples=self._samples,
        )

    def _decide(self, measured: Measured) -> FusionPlan:
        """Choose a plan by the measurements of rank 0, the same on every rank."""
        # The model's backward pass goes through the layers from last to first.
        self._order = sorted(self._trained, key=lambda module: -measured.ready[module])
        self._needed = [int(measured.called[module]) for module in self._order]
        self.layers = tuple(
            self._layer(module, measured.forward[module], measured.backward[module]) for module in self._order
        )
        self.costs = _fit_costs(measured.samples)
        candidates = None if self._pinned is None else [self._pinned]
        self.choice = best(self.layers, self.costs, self._policies, candidates)
        if self._tune and self.chooses_policy:
            self._trial = PolicyTrial(self.choice)
            self.tuning = True
        else:
            self._look_around(self.choice)
        return self._fused(self.choice.policy, self.choice.threshold_bytes)

    def _look_around(self, choice: PolicyChoice) -> None:
        """Begin to try neighbours of the chosen fusion, unless the user prescribes it."""
        assert self.layers is not None
        sizes = [layer.size_bytes for layer in self.layers]
        self.tuning = self._tune and self._pinned is None and len(sizes) > 1
        if self.tuning:
            low, high = max(1, min(sizes)), sum(sizes)
            start = min(max(choice.threshold_bytes, low), high)
            self._search = BoundedSearch((low, high), start)

    def _next_policy(self, seconds: float) -> FusionPlan | None:
        """Return the plan of the next policy that is tried, or of the one that has won."""
        assert self._trial is not None
        now = self._trial.ask()
        self._trial.tell(seconds)
        following = self._trial.ask()
        if following is None:
            following = self.choice = self._trial.result()
            self._trial = None
            self._look_around(self.choice)
        assert now is not None
        if (following.policy, following.groups) == (now.policy, now.groups):
            return None
        return self._fused(following.policy, following.threshold_bytes)

    def _next_fusion(self, seconds: float) -> FusionPlan | None:
        """Return the plan with the next fusion that is tried, or with the best."""
        assert self._search is not None
        assert self.choice is not None
        now = self._search.ask()
        self._search.tell(seconds)
        threshold = self._search.ask()
        if threshold is None:
            threshold = self._search.best
            self._search = None
            self.tuning = False
        return None if threshold == now else self._fused(self.choice.policy, threshold)

    def _fused(self, policy: str, threshold_bytes: int) -> FusionPlan:
        layers = [(self._name(module), self._members[module]) for module in self._order]
        return self._parameters.plan(layers, self._needed, policy, threshold_bytes)

    def _name(self, module: int) -> str:
        return self._modules[module].name or "model"

    def _layer(self, module: int, forward_s: float, backward_s: float) -> Layer:
        size = self._parameters.size_of(self._members[module])
        return Layer(self._name(module), size, forward_s, backward_s)

    def _threshold(self) -> int:
        """Return the fusion to begin with, before anything is measured."""
        total = sum(self._parameters.sizes)
        return self._pinned or min(_DEFAULT_BYTES, max(1, total // _FIRST_GROUPS))


def _fit_costs(samples: dict[str, list[tuple[int, float]]]) -> Linear:
    """Fit costs by size; a vote is a small all-reduce, and half of one costs about half."""
    small = samples.get("vote", [])
    halves = [(size // 2, seconds / 2) for size, seconds in small]
    whole = fit(samples["all_reduce"] + small) if "all_reduce" in samples else None
    if "reduce_scatter" not in samples:
        assert whole is not None
        half = AlphaBeta(whole.alpha_s / 2, whole.beta_s_per_byte / 2)
        return Linear(half, half, whole)
    both = Linear.in_halves(fit(samples["reduce_scatter"] + halves), fit(samples["all_gather"] + halves))
    return both if whole is None else replace(both, all_reduce=whole)
