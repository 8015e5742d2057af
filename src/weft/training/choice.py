"""Which policy and which fusion suit a model on a network, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import limits, units
from weft.errors import InputError
from weft.training.fusion import distinct_thresholds, fuse
from weft.training.iteration import FORMULAS, ideal_dear, ideal_wfbp
from weft.training.layers import backward_seconds, total_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.costs import Costs
    from weft.training.fusion import Groups
    from weft.training.iteration import IterationTimeline
    from weft.training.layers import Layer

MOST_CANDIDATES: Final = 200
"""Fusions that are tried; a model of a few dozen layers has fewer."""

MARGIN: Final = 0.02
"""How much faster DeAR must be: its hooks and its barrier cost about this much that no model here sees."""

_SAME: Final = 1e-9
"""Seconds; times this close are equal, and then fewer groups are better."""


@dataclass(frozen=True, slots=True)
class Option:
    """A policy with the fusion that suits it best.

    Parameters
    ----------
    policy
        Name in `weft.training.FORMULAS`.
    threshold_bytes, groups
        The fusion: `groups` is what `fuse` makes of the threshold.
    timeline
        What an iteration is then expected to look like.
    """

    policy: str
    threshold_bytes: int
    groups: Groups
    timeline: IterationTimeline


@dataclass(frozen=True, slots=True)
class PolicyChoice(Option):
    """The best option; `others` are the best of the policies that were not taken, and `reason` says why."""

    others: tuple[Option, ...]
    reason: str


def best(
    layers: Sequence[Layer],
    costs: Costs,
    policies: Sequence[str] = ("dear", "wfbp"),
    candidates: Sequence[int] | None = None,
    *,
    overhead_s: float = 0.0,
    margin: float = MARGIN,
) -> PolicyChoice:
    """Try every fusion with every policy.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    costs
        Of the collectives.
    policies
        Names in `weft.training.FORMULAS`.
    candidates
        Thresholds in bytes; by default one for each different fusion, from one layer to everything, or
        `MOST_CANDIDATES` in even ratios where there are more.
    overhead_s
        Seconds that each collective takes in addition.
    margin
        DeAR is taken only if it is faster than the others by more than this share.

    Raises
    ------
    InputError
        If a policy is unknown, or there are no policies, layers or candidates.

    Examples
    --------
    >>> from weft.training import Layer, Linear
    >>> model = [Layer(str(number), 1_000_000, 0.01, 0.02) for number in range(8)]
    >>> choice = best(model, Linear.ring(4, alpha_s=1e-4, beta_s_per_byte=1e-8))
    >>> choice.policy, len(choice.groups)
    ('wfbp', 8)
    >>> print(choice.reason)
    wfbp: communication (120.6 ms in one piece) is shorter than backward (160 ms), so dear cannot win
    """
    unknown = [name for name in policies if name not in FORMULAS]
    if unknown or not policies:
        problem = f"policy {unknown[0]!r} is unknown" if unknown else "no policies"
        msg = f"{problem}; expected some of {', '.join(FORMULAS)}"
        raise InputError(msg)
    if candidates is None:
        candidates = distinct_thresholds(layers, MOST_CANDIDATES)
    limits.check("candidates", len(candidates), limits.MAX_LAYERS)
    fusions: dict[Groups, int] = {}
    for threshold in sorted(candidates):
        fusions.setdefault(fuse(layers, threshold), threshold)
    if not fusions:
        msg = "no candidates; give at least one threshold, or None for all that differ"
        raise InputError(msg)
    options = [
        min(
            (
                Option(name, threshold, groups, FORMULAS[name](layers, groups, costs, overhead_s=overhead_s))
                for groups, threshold in fusions.items()
            ),
            key=lambda option: (round(option.timeline.seconds / _SAME), len(option.groups)),
        )
        for name in dict.fromkeys(policies)
    ]
    options.sort(key=lambda option: _rank(option, margin))
    first, others = options[0], tuple(options[1:])
    reason = _reason(first, others, layers, costs, margin)
    return PolicyChoice(first.policy, first.threshold_bytes, first.groups, first.timeline, others, reason)


def _rank(option: Option, margin: float) -> tuple[float, bool]:
    is_dear = option.policy == "dear"
    return option.timeline.seconds * (1 + margin * is_dear), is_dear


def _reason(
    first: Option, others: Sequence[Option], layers: Sequence[Layer], costs: Costs, margin: float
) -> str:
    if not others:
        return f"{first.policy}: nothing else was asked for"
    if first.policy == "wfbp" and "dear" in [option.policy for option in others]:
        why = _against_dear(layers, costs)
        if why is not None:
            return f"wfbp: {why}"
    second = others[0]
    took, other = first.timeline.seconds, second.timeline.seconds
    text = f"{first.policy}: {_time(took)} an iteration, {second.policy} {_time(other)}{_gain(other, took)}"
    if second.policy == "dear" and other <= took:
        text += f"; dear is worth its hooks from a gain of {margin:.0%} on"
    if (first.policy, second.policy) == ("dear", "wfbp"):
        text += f"; ideally{_gain(ideal_wfbp(layers, costs), ideal_dear(layers, costs))}"
    return text


def _against_dear(layers: Sequence[Layer], costs: Costs) -> str | None:
    """Say why even perfect overlapping makes DeAR no faster than WFBP; None where it would."""
    size, backward = total_bytes(layers), backward_seconds(layers)
    whole, halves = costs.all_reduce(size), costs.reduce_scatter(size) + costs.all_gather(size)
    if whole <= backward:
        return (
            f"communication ({_time(whole)} in one piece) is shorter than backward ({_time(backward)}), "
            "so dear cannot win"
        )
    if ideal_dear(layers, costs) >= ideal_wfbp(layers, costs):
        return (
            f"reduce-scatter and all-gather together ({_time(halves)}) take too much longer than an "
            f"all-reduce ({_time(whole)}) for dear to win"
        )
    return None


def _gain(slow_s: float, fast_s: float) -> str:
    return f" ({slow_s / fast_s:.2f}x)" if fast_s else ""


def _time(seconds: float) -> str:
    return units.human_seconds(seconds)
