"""Claims that can be made anew within some CPU seconds: the cheapest of each paper first."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from weft.papers import PAPERS
from weft.papers.outcomes import stored, studies_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.papers.outcomes import ClaimOutcome, ClaimStudy


_TELLING_S: Final = 1.0
"""Studies that take less say little about how fast this machine is."""


class OutOfTimeError(Exception):
    """The CPU seconds are used up."""


def remake_within(
    cpu_seconds: float,
    paper: str | None = None,
    report: Callable[[str, int, int], None] = lambda _text, _done, _all: None,
) -> tuple[list[ClaimOutcome], list[str]]:
    """Run the studies that fit, and give their outcomes and the claims that were left out.

    What a study costs is stored with its outcomes, and scaled by how much slower than stored the studies
    before it were. A study that takes longer nevertheless is given up at its next step.

    Parameters
    ----------
    cpu_seconds
        What all of it may take, up to one step of a study.
    paper
        One of `PAPERS`; all of them if None.
    report
        Called with a text, steps done and steps in all.
    """
    began = time.process_time()

    def spent() -> float:
        return time.process_time() - began

    def step(text: str, done: int, steps: int) -> None:
        if spent() > cpu_seconds:
            raise OutOfTimeError
        report(text, done, steps)

    made: dict[str, ClaimOutcome] = {}
    expected, slowness = 0.0, 1.0
    asked = (paper,) if paper is not None else tuple(PAPERS)
    for study in in_order(asked):
        cost = _cost(study)
        if spent() + cost * slowness > cpu_seconds:
            continue
        try:
            outcomes, _ = study.remake(step)
        except OutOfTimeError:
            break
        made |= {one.claim_id: one for one in outcomes}
        expected += cost
        slowness = max(1.0, spent() / max(expected, _TELLING_S))
    names = [name for one in asked for study in studies_of(one) for name in study.claim_ids]
    return [made[name] for name in names if name in made], [name for name in names if name not in made]


def in_order(papers: Iterable[str]) -> list[ClaimStudy]:
    """Order studies: the cheapest of every paper, then the others by what each claim of theirs costs."""
    by_paper = [sorted(studies_of(paper), key=_cost) for paper in papers]
    first = sorted((studies[0] for studies in by_paper), key=_cost)
    rest = [study for studies in by_paper for study in studies[1:]]
    return [*first, *sorted(rest, key=lambda study: _cost(study) / len(study.claim_ids))]


def _cost(study: ClaimStudy) -> float:
    """CPU seconds of a study, as stored; what is not stored is taken to be long."""
    return stored()[study.paper].cpu_seconds.get(study.claim_ids[0], math.inf)
