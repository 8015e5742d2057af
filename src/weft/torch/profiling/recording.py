"""The recording of a profile: the spans that DeAR reports under one fusion plan, and its iterations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from weft import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.dear.bucket_channel import OperationSpan
    from weft.torch.dear.fusion_plan import FusionPlan
    from weft.training import Costs, Layer


@dataclass(frozen=True)
class Recording:
    """The record of one rank's iterations with one fusion plan.

    Parameters
    ----------
    rank, ranks
        This rank, and the number of ranks.
    fusion
        The plan.
    spans
        The spans in the order in which they ended. The kind of a span is a collective or a ``vote``; ``wait``
        where training waits for one of these; ``update``, ``forward``, ``backward``; or the whole ``step``.
    layers, costs
        The measured layers and costs of collectives; None where they were never measured.
    left_out
        The number of iterations with other plans, before this one.
    full
        Whether recording ended before the profile did, because enough was recorded.
    """

    rank: int
    ranks: int
    fusion: FusionPlan
    spans: tuple[OperationSpan, ...]
    layers: Sequence[Layer] | None = None
    costs: Costs | None = None
    left_out: int = 0
    full: bool = False

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The ends of steps: an iteration lasts from one to the next."""
        return tuple(sorted(span.end for span in self.spans if span.kind == "step"))

    @property
    def iterations(self) -> int:
        """The number of complete iterations; the first step only marks where one begins."""
        return max(0, len(self.bounds) - 1)


class Recorder:
    """Records spans from several threads, and begins anew when the fusion plan changes.

    Parameters
    ----------
    fusion
        Returns the plan that is in use.
    iterations
        The number of iterations to record at most; None for as many as memory is allowed for.
    """

    def __init__(self, fusion: Callable[[], FusionPlan], iterations: int | None) -> None:
        self._fusion, self._most = fusion, iterations
        self._spans: list[OperationSpan] = []
        self._steps = 0
        self.plan = fusion()
        self.left_out = 0
        self.full = False

    @property
    def spans(self) -> tuple[OperationSpan, ...]:
        """The spans that were recorded so far."""
        return tuple(sorted(self._spans, key=lambda span: span.end))

    def add(self, span: OperationSpan) -> None:
        """Record one span; this must be cheap, because training waits for it."""
        if self.full:
            return
        self._spans.append(span)
        if span.kind == "step":
            self._stepped(span)
        if len(self._spans) >= limits.MAX_PROFILE_SPANS:
            self.full = True

    def _stepped(self, span: OperationSpan) -> None:
        self._steps += 1
        plan = self._fusion()
        if plan is not self.plan:
            # A plan changes at the end of a step, when nothing is under way: what follows is of the new one,
            # and this step is where its first iteration begins.
            self.plan = plan
            self.left_out += self._steps - 1
            self._spans, self._steps = [span], 1
        self.full = self._most is not None and self._steps > self._most
