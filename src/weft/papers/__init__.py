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

PAPERS: Final = {
    "dear": "DeAR (ICDCS 2023): reduce-scatter behind backward, all-gather behind the next forward.",
    "ace": "ACE (ISCA 2021): an engine that takes collectives off the accelerator.",
    "multitree": "MultiTree (ISCA 2021): spanning trees on every link, and an interface made for them.",
    "eflops": "EFLOPS (HPCA 2020): a network interface for each GPU, a BiGraph, and ranks mapped onto it.",
    "flexreduce": "FlexReduce (DAC 2020): uneven portions for uneven clusters.",
}

__all__ = ["PAPERS", "ClaimRow", "Reproduction", "reproduce"]


def reproduce(
    paper: str,
    report: Callable[[str, int, int], None] = lambda _text, _done, _all: None,
    effort: object | None = None,
) -> Reproduction:
    """Run what a paper claims.

    The package of a paper has ``about.toml``, with its title, its reference and the assumptions that were
    made; an ``Effort``, which says how much is simulated; ``count_steps(effort)``; and ``study(effort,
    tell)``, which calls `tell` with a text before each step and gives the rows, the data and the charts.

    Parameters
    ----------
    paper
        One of `PAPERS`.
    report
        Called with a text, steps done and steps in all.
    effort
        The paper's ``Effort``, to simulate less than all of it.

    Raises
    ------
    InputError
        If the paper is unknown.
    """
    if paper not in PAPERS:
        raise no_such("paper", paper, PAPERS)
    module = import_module(f"weft.papers.{paper}")
    effort = effort or module.Effort()
    began = time.process_time()
    done, steps = count(), module.count_steps(effort)
    rows, data, charts = module.study(effort, lambda text: report(text, next(done), steps))
    return Reproduction(
        paper,
        rows=tuple(rows),
        data=data,
        charts=charts,
        **describe(paper),
        cpu_seconds=time.process_time() - began,
    )
