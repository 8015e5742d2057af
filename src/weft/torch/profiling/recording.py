"""What happened: spans as DeAR tells them, of one fusion plan, and where iterations begin and end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from weft import limits
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.training import Costs, Layer

COMMUNICATION: Final = (*COLLECTIVES, "vote")
"""Kinds of spans during which something is sent."""


class RecordedSpan(Protocol):
    """Something that took from `start` to `end`, by `time.perf_counter`.

    `kind` is a collective or a ``vote``; ``wait`` where training waits for one of these; ``update``,
    ``forward``, ``backward``; or the whole ``step``. `group` is -1 where it belongs to none.
    """

    @property
    def kind(self) -> str:
        """What."""

    @property
    def group(self) -> int:
        """Of which fusion group."""

    @property
    def start(self) -> float:
        """Since when."""

    @property
    def end(self) -> float:
        """Until when."""


class RecordedGroup(Protocol):
    """What travels together."""

    @property
    def size_bytes(self) -> int:
        """All of it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""


class Fusion(Protocol):
    """How parameters are grouped and sent."""

    @property
    def groups(self) -> Sequence[RecordedGroup]:
        """In the order in which they are reduced."""

    @property
    def policy(self) -> str:
        """Name in `weft.training.FORMULAS`."""

    @property
    def digest(self) -> str:
        """What tells it from every other."""


@dataclass(frozen=True)
class Recording:
    """All that one rank knows of some iterations with one fusion plan.

    Parameters
    ----------
    rank, ranks
        Whose it is, and how many there are.
    fusion
        The plan.
    spans
        In the order in which they ended.
    layers, costs
        What the model of an iteration knows; None where that was never measured.
    left_out
        Iterations with other plans, before this one.
    full
        Whether recording ended before the profile did, because enough was recorded.
    """

    rank: int
    ranks: int
    fusion: Fusion
    spans: tuple[RecordedSpan, ...]
    layers: Sequence[Layer] | None = None
    costs: Costs | None = None
    left_out: int = 0
    full: bool = False
    bounds: tuple[float, ...] = field(init=False)
    """Ends of steps: an iteration lasts from one to the next."""

    def __post_init__(self) -> None:
        ends = sorted(span.end for span in self.spans if span.kind == "step")
        object.__setattr__(self, "bounds", tuple(ends))

    @property
    def iterations(self) -> int:
        """How many are complete; the first step only marks where one begins."""
        return max(0, len(self.bounds) - 1)


class Recorder:
    """Takes spans from several threads, and begins anew when the fusion plan changes.

    Parameters
    ----------
    fusion
        Gives the plan that is in use.
    iterations
        How many to record at most; None for as many as memory is allowed for.
    """

    def __init__(self, fusion: Callable[[], Fusion], iterations: int | None) -> None:
        self._fusion, self._most = fusion, iterations
        self._spans: list[RecordedSpan] = []
        self._steps = 0
        self.plan = fusion()
        self.left_out = 0
        self.full = False

    @property
    def spans(self) -> tuple[RecordedSpan, ...]:
        """What was recorded so far."""
        return tuple(sorted(self._spans, key=lambda span: span.end))

    def hear(self, span: RecordedSpan) -> None:
        """Take one span; whatever it does is cheap, for training waits for it."""
        if self.full:
            return
        self._spans.append(span)
        if span.kind == "step":
            self._stepped(span)
        if len(self._spans) >= limits.MAX_PROFILE_SPANS:
            self.full = True

    def _stepped(self, span: RecordedSpan) -> None:
        self._steps += 1
        plan = self._fusion()
        if plan is not self.plan:
            # A plan changes at the end of a step, when nothing is under way: what follows is of the new one,
            # and this step is where its first iteration begins.
            self.plan = plan
            self.left_out += self._steps - 1
            self._spans, self._steps = [span], 1
        self.full = self._most is not None and self._steps > self._most
