"""Claims of papers beside what comes out here: one module per paper.

No constant is tuned to hit a number. A row that deviates says by how much and, where it can be known, why; a
set-up that the paper leaves open is a named assumption.
"""

from __future__ import annotations

import time
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Final

from weft.errors import no_such
from weft.papers.claims import ClaimRow, Reproduction, describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

PAPERS: Final = {
    "dear": "DeAR (ICDCS 2023): an all-reduce in two halves, one behind each pass of training.",
    "ace": "ACE (ISCA 2021): an engine that takes collectives off the accelerator.",
    "multitree": "MultiTree (ISCA 2021): spanning trees on every link, and an interface made for them.",
    "eflops": "EFLOPS (HPCA 2020): a network interface for each GPU, a BiGraph, and ranks mapped onto it.",
    "flexreduce": "FlexReduce (DAC 2020): uneven portions for uneven clusters.",
}

__all__ = ["PAPERS", "ClaimRow", "Reproduction", "find_paper", "reproduce"]


def reproduce(
    paper: str,
    report: Callable[[str, int, int], None] = lambda _text, _done, _all: None,
    effort: object | None = None,
    show: Callable[[ClaimRow], None] = lambda _row: None,
    *,
    charts: bool = True,
) -> Reproduction:
    """Run what a paper claims.

    The package of a paper has ``about.toml``, with its title, its reference, its claims and the assumptions
    that were made; an ``Effort``, which says how much is simulated; ``NEEDED``, which has the effort that
    suffices for each claim; ``count_steps(effort)``; and ``study(effort, tell)``, which calls `tell` with a
    text before each step, yields rows as they are finished, and returns the data and what draws the charts.

    Parameters
    ----------
    paper
        One of `PAPERS`.
    report
        Called with a text, steps done and steps in all.
    effort
        The paper's ``Effort``, to simulate less than all of it.
    show
        Called with each row as soon as it is known.
    charts
        Whether to draw them, which takes all of the studies.

    Raises
    ------
    InputError
        If the paper is unknown.
    """
    module = find_paper(paper)
    effort = effort or module.Effort()
    began = time.process_time()
    done, steps = count(), module.count_steps(effort)
    study = module.study(effort, lambda text: report(text, next(done), steps))
    rows: list[ClaimRow] = []
    while True:
        try:
            rows.append(next(study))
        except StopIteration as end:
            data, draw = end.value
            break
        show(rows[-1])
    drawn = draw() if charts else {}
    cost = time.process_time() - began
    return Reproduction(paper, rows=tuple(rows), data=data, charts=drawn, cpu_seconds=cost, **describe(paper))


def find_paper(paper: str) -> ModuleType:
    """Import the package of a paper.

    Raises
    ------
    InputError
        If the paper is unknown.
    """
    if paper not in PAPERS:
        raise no_such("paper", paper, PAPERS)
    return import_module(f"weft.papers.{paper}")
