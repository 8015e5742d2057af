"""Which policy and which fusion suit a model on a network, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft import limits, units
from weft.errors import InputError, UnsupportedError
from weft.training.fusion import distinct_thresholds, fuse
from weft.training.iteration import FORMULAS, ideal_dear, ideal_wfbp
from weft.training.layers import backward_seconds, total_bytes
from weft.training.policies import find
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.training.costs import Costs
    from weft.training.endpoints import Endpoint
    from weft.training.fusion import Groups
    from weft.training.iteration import IterationTimeline
    from weft.training.layers import Layer
    from weft.training.policies import Policy

AUTO: Final = "auto"
"""In place of the name of a policy or an algorithm: the one that suits the job."""

_FUSION: Final = {
    "threshold_bytes": ("threshold_bytes",),
    "bucket_bytes": ("bucket_bytes", "first_bucket_bytes"),
    "partition_bytes": ("partition_bytes",),
}
"""Options that a fusion sets, by the one that a policy has."""

_FUSIONS_WITH_EXCHANGES: Final = 40

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
    _check_policies(policies)
    fusions = _distinct_fusions(layers, candidates)
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


def _check_policies(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in FORMULAS]
    if unknown or not names:
        problem = f"policy {unknown[0]!r} is unknown" if unknown else "no policies"
        raise InputError(f"{problem}; expected some of {', '.join(FORMULAS)}")


def _distinct_fusions(layers: Sequence[Layer], candidates: Sequence[int] | None) -> dict[Groups, int]:
    """Every different fusion of the candidates, with the smallest threshold that makes it."""
    if candidates is None:
        candidates = distinct_thresholds(layers, MOST_CANDIDATES)
    limits.check("candidates", len(candidates), limits.MAX_LAYERS)
    fusions: dict[Groups, int] = {}
    for threshold in sorted(candidates):
        fusions.setdefault(fuse(layers, threshold), threshold)
    if not fusions:
        raise InputError("no candidates; give at least one threshold, or None for all that differ")
    return fusions


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
    ratios = [f"{other / took:.2f} times as long"] if took else []
    ideal = ideal_dear(layers, costs)
    if (first.policy, second.policy) == ("dear", "wfbp") and ideal:
        ratios.append(f"{ideal_wfbp(layers, costs) / ideal:.2f} times with ideal overlap")
    compared = f" ({', '.join(ratios)})" if ratios else ""
    beside = f"with {second.policy} {_time(other)}{compared}"
    text = f"{first.policy}: an iteration should take {_time(took)}, {beside}"
    if second.policy == "dear" and other <= took:
        text += f"; dear is worth its hooks from a gain of {margin:.0%} on"
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


def _time(seconds: float) -> str:
    return units.human_seconds(seconds)


def choose_policy(
    name: str,
    fusion: int | None,
    options: Mapping[str, Any],
    endpoint: Endpoint,
    layers: Sequence[Layer],
    costs: Costs,
) -> tuple[Policy, Mapping[str, Any], str]:
    """Give the policy of a job with its options, and why it is this one or what speaks against it.

    Parameters
    ----------
    name
        Of a policy, or `AUTO`.
    fusion, options
        Bytes that are sent together, if given, and further options of a policy that is given by name.
    endpoint
        Of every rank; one that does not overlap needs the policy ``serial``.
    layers, costs
        The model, and its collectives.

    Raises
    ------
    InputError
        If an option or the endpoint does not go with the policy.
    """
    if not endpoint.overlaps and name not in (AUTO, "serial"):
        msg = f"endpoint {endpoint.name} communicates after the backward pass; use --policy serial"
        raise InputError(msg)
    if name != AUTO:
        policy = find(name)
        chosen = _check_options(policy, fusion, options)
        return policy, chosen, _advise(policy, layers, costs)
    if options:
        msg = f"--option {next(iter(options))}: goes with a --policy by name; {AUTO} chooses options, too"
        raise InputError(msg)
    if not endpoint.overlaps:
        policy = find("serial")
        reason = f"serial: endpoint {endpoint.name} does not overlap"
        return policy, _check_options(policy, fusion, options), reason
    return _choose(fusion, layers, costs)


def _choose(
    fusion: int | None, layers: Sequence[Layer], costs: Costs
) -> tuple[Policy, Mapping[str, Any], str]:
    """WFBP or DeAR, with the fusion that suits it."""
    names = ("dear", "wfbp") if _has_halves(layers, costs) else ("wfbp",)
    candidates = None if fusion is None else [fusion]
    if any(layer.exchange for layer in layers):
        return _choose_with_exchanges(names, layers, costs, candidates)
    choice = best(layers, costs, names, candidates)
    options: dict[str, Any] = {"threshold_bytes": choice.threshold_bytes}
    if choice.policy == "dear":
        options["prefetch"] = None  # all-gathers queue at once, as in weft.torch.DeAR and in that model
    reason = choice.reason if len(names) > 1 else "wfbp: this algorithm has no halves, which dear needs"
    return find(choice.policy), options, reason


def _choose_with_exchanges(
    names: Sequence[str], layers: Sequence[Layer], costs: Costs, candidates: Sequence[int] | None
) -> tuple[Policy, Mapping[str, Any], str]:
    """Find the best policy where all-to-alls take part, which `best` does not model."""
    thresholds = distinct_thresholds(layers, _FUSIONS_WITH_EXCHANGES) if candidates is None else candidates
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    for name in names:
        for more in ({"prefetch": None}, {"prefetch": 1}) if name == "dear" else ({},):
            for threshold in thresholds:
                options: dict[str, Any] = {"threshold_bytes": threshold} | more
                seconds = run(find(name).build(layers, **options), costs).seconds
                if name not in found or seconds < found[name][0]:
                    found[name] = seconds, options
    first, *others = sorted(found, key=lambda name: found[name][0])
    times = ", ".join(f"{_time(found[name][0])} with {name}" for name in (first, *others))
    return find(first), found[first][1], f"{first}: with its exchanges an iteration takes {times}"


def _advise(policy: Policy, layers: Sequence[Layer], costs: Costs) -> str:
    """Say so where DeAR is asked for and cannot win."""
    if policy.name != "dear" or any(layer.exchange for layer in layers):
        return ""
    choice = best(layers, costs)
    return f"use WFBP: {choice.reason.removeprefix('wfbp: ')}" if choice.policy == "wfbp" else ""


def _has_halves(layers: Sequence[Layer], costs: Costs) -> bool:
    """Whether there is a reduce-scatter for these layers at all."""
    try:
        costs.reduce_scatter(total_bytes(layers))
    except UnsupportedError:
        return False
    return True


def _check_options(policy: Policy, fusion: int | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """All options of a policy that are set, by the fusion and one by one."""
    policy.check_options(options)
    if fusion is None:
        return options
    names = next((names for name, names in _FUSION.items() if name in policy.options), None)
    if names is None:
        known = ", ".join(policy.options)
        raise InputError(f"policy {policy.name} fuses nothing that --fusion could set; its options: {known}")
    twice = [name for name in names if name in options]
    if twice:
        raise InputError(f"option {twice[0]} is set already, by the fusion; give one of them")
    return {**dict.fromkeys(names, fusion), **options}
