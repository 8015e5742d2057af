"""Why an algorithm is not in a comparison or a plan: what planning refuses, and which refusals are shown.

An algorithm that does not apply to a topology says so itself: `weft.algorithms.registry.Algorithm.try_build`
makes a `weft.algorithms.registry.Refusal` of its error. So does one that would take too much memory or work.
Planning adds the refusals of this module, and keeps all of them in `Comparison.skipped` and `Plan.skipped`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.algorithms.registry import Refusal
from weft.errors import UnsupportedError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.planning.candidates import Candidate


def refuse_as_too_slow(algorithm: str, time_limit: float | None = None) -> Refusal:
    """Refuse what cannot be tried in time; the reason names the limit, in seconds, if it is given."""
    limit = "" if time_limit is None else f" of {time_limit:g} s"
    return Refusal(algorithm, f"not tried, the time limit{limit} is too short")


def refuse_as_not_offered(algorithm: str, collective: str) -> Refusal:
    """Refuse an algorithm that does not have a collective."""
    return Refusal(algorithm, f"has no {collective}")


def list_skipped(refusals: Sequence[Refusal], applied: Collection[str]) -> tuple[Refusal, ...]:
    """The first refusal of each algorithm of which not even a variant applied."""
    found: dict[str, Refusal] = {}
    for refusal in refusals:
        if refusal.algorithm not in applied:
            found.setdefault(refusal.algorithm, refusal)
    return tuple(found.values())


def require_candidates(candidates: Sequence[Candidate], refusals: Sequence[Refusal], *, chosen: bool) -> None:
    """Go on only if something can be planned with.

    Parameters
    ----------
    candidates, refusals
        What the recipes gave: at least one of either.
    chosen
        Whether the caller has named the algorithms.

    Raises
    ------
    UnsupportedError
        If there is no candidate; has the first refusal's reason.
    VerificationError
        If the first one is that a schedule of the user's own is wrong.
    """
    if not candidates:
        first = refusals[0]
        if isinstance(first.error, VerificationError):
            raise first.error
        others = dict.fromkeys(one.algorithm for one in refusals if one.algorithm != first.algorithm)
        parts = [f"{' and '.join(others)} cannot either"] if others else []
        if chosen:
            parts.append("name no algorithm, and all of them are tried")
        instead = "; ".join(parts)
        raise UnsupportedError(first.algorithm, first.reason, instead)
