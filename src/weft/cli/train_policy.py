"""Which policy a simulated job has, with which options: as asked for, or the one that suits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training import Costs, Layer
    from weft.training.endpoints import Endpoint
    from weft.training.policies import Policy

AUTO: Final = "auto"
_FUSION: Final = {
    "threshold_bytes": ("threshold_bytes",),
    "bucket_bytes": ("bucket_bytes", "first_bucket_bytes"),
    "partition_bytes": ("partition_bytes",),
}
"""Options that ``--fusion`` sets, by the one that a policy has."""

_FUSIONS_WITH_EXCHANGES: Final = 40


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line says: a policy or ``auto``, a fusion, further options."""

    policy: str
    fusion: int | None
    options: tuple[tuple[str, str], ...]


def choose_policy(
    wish: Wish, endpoint: Endpoint, layers: Sequence[Layer], costs: Costs
) -> tuple[Policy, dict[str, Any], str]:
    """Policy of a job with its options, and why this one.

    Raises
    ------
    InputError
        If an option or the endpoint does not go with the policy.
    """
    from weft.training import policies

    if not endpoint.overlaps and wish.policy not in (AUTO, "serial"):
        msg = f"endpoint {endpoint.name} communicates after the backward pass; use --policy serial"
        raise InputError(msg)
    if wish.policy == AUTO and wish.options:
        msg = f"--option {wish.options[0][0]}: goes with a --policy by name; {AUTO} chooses options, too"
        raise InputError(msg)
    if not endpoint.overlaps:
        policy = policies.find("serial")
        reason = f"serial: endpoint {endpoint.name} does not overlap" if wish.policy == AUTO else ""
        return policy, _read_options(policy, wish), reason
    if wish.policy == AUTO:
        return _choose(wish, layers, costs)
    policy = policies.find(wish.policy)
    return policy, _read_options(policy, wish), _advise(policy, layers, costs)


def _choose(wish: Wish, layers: Sequence[Layer], costs: Costs) -> tuple[Policy, dict[str, Any], str]:
    """WFBP or DeAR, with the fusion that suits it."""
    from weft.training import best, policies

    names = ("dear", "wfbp") if _has_halves(layers, costs) else ("wfbp",)
    candidates = None if wish.fusion is None else [wish.fusion]
    if any(layer.exchange for layer in layers):
        return _choose_with_exchanges(names, layers, costs, candidates)
    choice = best(layers, costs, names, candidates)
    options: dict[str, Any] = {"threshold_bytes": choice.threshold_bytes}
    if choice.policy == "dear":
        options["prefetch"] = None  # all-gathers queue at once, as in weft.torch.DeAR and in that model
    reason = choice.reason if len(names) > 1 else "wfbp: this algorithm has no halves, which dear needs"
    return policies.find(choice.policy), options, reason


def _choose_with_exchanges(
    names: Sequence[str], layers: Sequence[Layer], costs: Costs, candidates: Sequence[int] | None
) -> tuple[Policy, dict[str, Any], str]:
    """Find the best where all-to-alls take part, of which `weft.training.best` knows nothing."""
    from weft.training import policies
    from weft.training.fusion import distinct_thresholds
    from weft.training.single_channel import run

    thresholds = distinct_thresholds(layers, _FUSIONS_WITH_EXCHANGES) if candidates is None else candidates
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    for name in names:
        for more in ({"prefetch": None}, {"prefetch": 1}) if name == "dear" else ({},):
            for threshold in thresholds:
                options: dict[str, Any] = {"threshold_bytes": threshold} | more
                seconds = run(policies.find(name).build(layers, **options), costs).seconds
                if name not in found or seconds < found[name][0]:
                    found[name] = seconds, options
    first, *others = sorted(found, key=lambda name: found[name][0])
    times = ", ".join(f"{name} {units.human_seconds(found[name][0])}" for name in (first, *others))
    return policies.find(first), found[first][1], f"{first}: with its exchanges an iteration takes {times}"


def _advise(policy: Policy, layers: Sequence[Layer], costs: Costs) -> str:
    """Say so where DeAR is asked for and cannot win."""
    from weft.training import best

    if policy.name != "dear" or any(layer.exchange for layer in layers):
        return ""
    choice = best(layers, costs)
    return f"use WFBP: {choice.reason.removeprefix('wfbp: ')}" if choice.policy == "wfbp" else ""


def _has_halves(layers: Sequence[Layer], costs: Costs) -> bool:
    """Whether there is a reduce-scatter for these layers at all."""
    from weft.training.layers import total_bytes

    try:
        costs.reduce_scatter(total_bytes(layers))
    except UnsupportedError:
        return False
    return True


def _read_options(policy: Policy, wish: Wish) -> dict[str, Any]:
    """Options of a policy, from the words of the command line."""
    known = policy.options
    found: dict[str, Any] = {}
    if wish.fusion is not None:
        names = [name for name in _FUSION if name in known]
        if not names:
            msg = (
                f"policy {policy.name} fuses nothing that --fusion could set; its options: {', '.join(known)}"
            )
            raise InputError(msg)
        found.update(dict.fromkeys(_FUSION[names[0]], wish.fusion))
    for name, text in wish.options:
        if name not in known:
            msg = f"policy {policy.name} has no option {name!r}; its options: {', '.join(known) or 'none'}"
            raise InputError(msg)
        if name in found:
            msg = f"--option {name}={text}: it is set already, by --fusion or another --option"
            raise InputError(msg)
        found[name] = _read_option(name, text)
    return found


def _read_option(name: str, text: str) -> int | float | None:
    if text == "none":
        return None
    if name.endswith("_bytes"):
        return units.parse_size(text)
    if name.endswith("_s"):
        return units.parse_time(text) / units.PS_PER_S
    try:
        return float(text) if "." in text else int(text)
    except ValueError as error:
        msg = f"--option {name}={text}: expected a number, or none"
        raise InputError(msg) from error
