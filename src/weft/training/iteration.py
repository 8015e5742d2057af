"""One iteration of training, second by second: computing, sending, and waiting for what was sent.

The rules, for every policy alike: the layers compute one after the other, forward from the first to the last,
backward from the last to the first. Collectives follow one another on one channel in the order of the groups,
and a group is sent when the last of its gradients is there and the channel is free. All times are those of
the steady state: from the beginning of one forward pass to that of the next.

- ``serial``: all-reduces begin when the backward pass is over.
- ``wfbp``: all-reduces behind the backward pass (wait-free backpropagation, as DDP does it); the next forward
  pass begins after the last one.
- ``dear``: reduce-scatters behind the backward pass, then a barrier, then all-gathers behind the next forward
  pass, in the order in which that needs them; a layer waits for its own group only (Zhang et al., 2023).

At a barrier nothing is under way, so the all-gathers that one step leaves behind are exactly those that delay
the forward pass after it, and one iteration tells all: it begins with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from weft.errors import InputError
from weft.notebook_display import ShortRepr
from weft.training.layers import backward_seconds, check_layers, forward_seconds, total_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.training.costs import Costs
    from weft.training.fusion import Groups
    from weft.training.layers import Layer


class TimelineSpan(NamedTuple):
    """Something that took from `start_s` to `end_s`.

    `number` is that of a layer where `kind` is ``forward`` or ``backward``, else of a group: of a collective,
    or of the one that computing has to ``wait`` for.
    """

    kind: str
    number: int
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end."""
        return self.end_s - self.start_s


COLLECTIVES: Final = ("reduce_scatter", "all_gather", "all_reduce")
"""Those of `weft.schedule.COLLECTIVES` that gradients travel by, in the order of DeAR's iteration."""


@dataclass(frozen=True, slots=True, repr=False)
class IterationTimeline(ShortRepr):
    """An iteration in the steady state.

    Parameters
    ----------
    seconds
        From the beginning of one forward pass to that of the next.
    exposed_s
        How much of it nothing computes.
    spans
        What happened, in the order in which it began.
    """

    seconds: float
    exposed_s: float
    spans: tuple[TimelineSpan, ...]

    @property
    def communication_s(self) -> float:
        """Seconds that the channel is busy."""
        return sum(span.seconds for span in self.spans if span.kind in COLLECTIVES)

    @property
    def hidden(self) -> float:
        """Share of the communication that computing hides; 1 where there is none."""
        busy = self.communication_s
        return 1 - self.exposed_s / busy if busy else 1.0


class IterationPolicy(Protocol):
    """How an iteration is arranged."""

    def __call__(
        self, layers: Sequence[Layer], groups: Groups, costs: Costs, *, overhead_s: float = 0.0
    ) -> IterationTimeline:
        """Model one iteration."""


class _Clock:
    """Two things that happen at a time: one computation, one collective."""

    def __init__(self, overhead_s: float) -> None:
        self.computed_s = self.sent_s = 0.0
        self.spans: list[TimelineSpan] = []
        self._overhead_s = overhead_s

    def compute(self, kind: str, index: int, seconds: float) -> float:
        """Compute next; returns when that is done."""
        began, self.computed_s = self.computed_s, self.computed_s + seconds
        self.spans.append(TimelineSpan(kind, index, began, self.computed_s))
        return self.computed_s

    def send(self, kind: str, group: int, seconds: float, ready_s: float) -> float:
        """Send next, from `ready_s` on; returns when that is done."""
        began = max(self.sent_s, ready_s)
        self.sent_s = began + seconds + self._overhead_s
        self.spans.append(TimelineSpan(kind, group, began, self.sent_s))
        return self.sent_s

    def wait(self, group: int, until_s: float) -> None:
        """Let the computing unit idle until a time, for a group; a time that has passed changes nothing."""
        if until_s > self.computed_s:
            self.spans.append(TimelineSpan("wait", group, self.computed_s, until_s))
            self.computed_s = until_s

    def timeline(self) -> IterationTimeline:
        """What happened, once all is computed and sent."""
        exposed = sum(span.seconds for span in self.spans if span.kind == "wait")
        spans = sorted(self.spans, key=lambda span: span.start_s)
        return IterationTimeline(self.computed_s, exposed, tuple(spans))


def serial(
    layers: Sequence[Layer], groups: Groups, costs: Costs, *, overhead_s: float = 0.0
) -> IterationTimeline:
    """First compute, then send: what overlapping is measured against.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    groups
        Of `weft.training.fuse`, or any others that have every layer with parameters once.
    costs
        Of the collectives.
    overhead_s
        Seconds that each collective takes in addition.

    Raises
    ------
    InputError
        If the groups are not groups of these layers.
    """
    return _reduced_whole(layers, groups, costs, overhead_s, overlapping=False)


def wfbp(
    layers: Sequence[Layer], groups: Groups, costs: Costs, *, overhead_s: float = 0.0
) -> IterationTimeline:
    """All-reduces behind the backward pass; parameters as for `serial`.

    Examples
    --------
    >>> from weft.training import AlphaBeta, Layer, Linear
    >>> model = [Layer("a", 1000, 1.0, 2.0), Layer("b", 1000, 1.0, 2.0)]
    >>> half = AlphaBeta(0.0, 0.001)
    >>> wfbp(model, ((1,), (0,)), Linear.in_halves(half, half)).seconds
    8.0
    """
    return _reduced_whole(layers, groups, costs, overhead_s, overlapping=True)


def _reduced_whole(
    layers: Sequence[Layer], groups: Groups, costs: Costs, overhead_s: float, *, overlapping: bool
) -> IterationTimeline:
    sizes = _sizes(layers, groups)
    clock = _Clock(overhead_s)
    for index, layer in enumerate(layers):
        clock.compute("forward", index, layer.forward_s)
    _send_backward(clock, layers, groups, "all_reduce", sizes, costs.all_reduce, overlapping=overlapping)
    return clock.timeline()


def dear(
    layers: Sequence[Layer], groups: Groups, costs: Costs, *, overhead_s: float = 0.0
) -> IterationTimeline:
    """Reduce-scatters behind the backward pass, all-gathers behind the forward; parameters as for `serial`.

    Examples
    --------
    >>> from weft.training import AlphaBeta, Layer, Linear
    >>> model = [Layer("a", 1000, 1.0, 2.0), Layer("b", 1000, 1.0, 2.0)]
    >>> half = AlphaBeta(0.0, 0.001)
    >>> dear(model, ((1,), (0,)), Linear.in_halves(half, half)).seconds
    8.0
    """
    sizes = _sizes(layers, groups)
    clock = _Clock(overhead_s)
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    needed_first = sorted(range(len(groups)), key=lambda number: min(groups[number]))
    gathered = {
        number: clock.send("all_gather", number, costs.all_gather(sizes[number]), 0.0)
        for number in needed_first
    }
    for index, layer in enumerate(layers):
        if index in group_of:
            clock.wait(group_of[index], gathered[group_of[index]])
        clock.compute("forward", index, layer.forward_s)
    _send_backward(clock, layers, groups, "reduce_scatter", sizes, costs.reduce_scatter, overlapping=True)
    return clock.timeline()


FORMULAS: Final[dict[str, IterationPolicy]] = {"serial": serial, "wfbp": wfbp, "dear": dear}


def ideal_wfbp(layers: Sequence[Layer], costs: Costs) -> float:
    """Seconds that `wfbp` cannot beat: everything is one all-reduce, and yet overlaps from the start."""
    check_layers(layers)
    sent = costs.all_reduce(total_bytes(layers))
    return forward_seconds(layers) + max(backward_seconds(layers), sent)


def ideal_dear(layers: Sequence[Layer], costs: Costs) -> float:
    """Seconds that `dear` cannot beat: either half is one collective, and yet overlaps from the start."""
    check_layers(layers)
    size = total_bytes(layers)
    forward = max(forward_seconds(layers), costs.all_gather(size))
    return forward + max(backward_seconds(layers), costs.reduce_scatter(size))


def placed_wfbp(layers: Sequence[Layer], costs: Costs) -> float:
    """Seconds that `wfbp` cannot beat where its layers compute when they do.

    Like `ideal_wfbp`, but gradients are not there before they are computed: those of the first layers up to
    any one of them are sent after it was computed backward, in one piece at the cheapest.

    Examples
    --------
    >>> from weft.training import AlphaBeta, Layer, Linear
    >>> model = [Layer("words", 1000, 0.0, 1.0), Layer("head", 0, 2.0, 4.0)]
    >>> half = AlphaBeta(0.0, 0.001)
    >>> ideal_wfbp(model, Linear.in_halves(half, half)), placed_wfbp(model, Linear.in_halves(half, half))
    (7.0, 9.0)
    """
    check_layers(layers)
    return forward_seconds(layers) + _placed_backward(layers, costs.all_reduce)


def placed_dear(layers: Sequence[Layer], costs: Costs) -> float:
    """Seconds that `dear` cannot beat where its layers compute when they do.

    As in `placed_wfbp`, for reduce-scatters; and in the forward pass, what follows after any layer is
    computed after everything up to that layer was gathered.

    Examples
    --------
    >>> from weft.training import AlphaBeta, Layer, Linear
    >>> model = [Layer("words", 1000, 0.0, 1.0), Layer("head", 0, 2.0, 4.0)]
    >>> half = AlphaBeta(0.0, 0.001)
    >>> ideal_dear(model, Linear.in_halves(half, half)), placed_dear(model, Linear.in_halves(half, half))
    (7.0, 9.0)
    """
    check_layers(layers)
    behind = forward_s = forward_seconds(layers)
    gathered = 0
    for layer in layers:
        gathered += layer.size_bytes
        if layer.size_bytes:
            forward_s = max(forward_s, costs.all_gather(gathered) + behind)
        behind -= layer.forward_s
    return forward_s + _placed_backward(layers, costs.reduce_scatter)


def _placed_backward(layers: Sequence[Layer], cost: Callable[[int], float]) -> float:
    """The least time from the start of the backward pass until all its gradients were sent."""
    left, computed, least = total_bytes(layers), 0.0, backward_seconds(layers)
    for layer in reversed(layers):
        computed += layer.backward_s
        if layer.size_bytes:
            least = max(least, computed + cost(left))
        left -= layer.size_bytes
    return least


def _send_backward(
    clock: _Clock,
    layers: Sequence[Layer],
    groups: Groups,
    kind: str,
    sizes: Sequence[int],
    cost: Callable[[int], float],
    *,
    overlapping: bool,
) -> None:
    """Compute backward, send each group once it is there, and wait for the last."""
    ready = {
        index: clock.compute("backward", index, layers[index].backward_s)
        for index in range(len(layers) - 1, -1, -1)
    }
    for number, group in enumerate(groups):
        ready_s = max(ready[index] for index in group) if overlapping else clock.computed_s
        clock.send(kind, number, cost(sizes[number]), ready_s)
    if groups:
        clock.wait(len(groups) - 1, clock.sent_s)


def _sizes(layers: Sequence[Layer], groups: Groups) -> list[int]:
    """Bytes of each group, if these are groups of these layers."""
    check_layers(layers)
    members = sorted(index for group in groups for index in group)
    if members != [index for index, layer in enumerate(layers) if layer.size_bytes] or not all(groups):
        msg = "the groups must have every layer with parameters exactly once, and no other; use fuse()"
        raise InputError(msg)
    return [sum(layers[index].size_bytes for index in group) for group in groups]
