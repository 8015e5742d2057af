"""What a reproduction is: rows of claims, the assumptions behind them, the data, and charts of it."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.training import Costs, TrainingResult


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One case of a study: what was tried and what came out; `derived` names properties that are data too."""

    derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Fields and derived figures, ready for JSON."""
        return asdict(self) | {name: getattr(self, name) for name in self.derived}


Findings: TypeAlias = "tuple[Iterable[ClaimRow], dict[str, Any], dict[str, str]]"
"""Rows, data ready for JSON, and charts as SVG by name."""


def describe(paper: str) -> dict[str, Any]:
    """Title, reference and assumptions of a paper, as its ``about.toml`` has them."""
    about = tomllib.loads((Path(__file__).parent / paper / "about.toml").read_text("utf-8"))
    return about | {"assumptions": tuple(about["assumptions"])}


def against_channel(whole: TrainingResult, costs: Costs) -> dict[str, float]:
    """Hold every rank and link simulated together against one channel with the times of collectives alone."""
    channel = run(whole.graph, costs).seconds
    return {"channel_s": channel, "cluster_s": whole.seconds, "difference": channel / whole.seconds - 1}


@dataclass(frozen=True, slots=True)
class ClaimRow(StudyCase):
    """One claim of a paper beside the same quantity here.

    Parameters
    ----------
    claim
        What the paper says.
    setup
        What ran here.
    paper
        The paper's number; None where it is not known.
    ours
        The same quantity here.
    unit
        Written behind both numbers: ``"x"``, ``" %"``, ``" GB/s"``.
    why
        Of the deviation, or of its absence.
    at_most
        Whether the paper says "up to": being below is then no deviation to explain away, but still said.
    """

    derived = ("deviation",)

    claim: str
    setup: str
    paper: float | None
    ours: float
    unit: str = ""
    why: str = ""
    at_most: bool = False

    @property
    def deviation(self) -> float | None:
        """How much more than the paper's number ours is, as a share of it.

        Examples
        --------
        >>> ClaimRow("faster", "here", paper=2.0, ours=1.5).deviation
        -0.25
        """
        return None if not self.paper else self.ours / self.paper - 1


def factor_row(
    claim: str, setup: str, ours: float, why: str = "", paper: float | None = None, up_to: float | None = None
) -> ClaimRow:
    """Make a row of how many times as fast or as much; `up_to` is a number that the paper calls the most."""
    return ClaimRow(claim, setup, paper if up_to is None else up_to, ours, "x", why, up_to is not None)


def percent_row(claim: str, setup: str, share: float, why: str = "", **known: float | None) -> ClaimRow:
    """Make a row of a share in percent; the paper's number, in percent as well, as for `factor_row`."""
    return replace(factor_row(claim, setup, 100 * share, why, **known), unit=" %")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The outcome of running a paper's claims.

    Parameters
    ----------
    paper, title, reference
        Which one.
    assumptions
        What the paper leaves open, and what was taken here.
    rows
        Its claims.
    data
        Everything that rows and charts are made of, ready for JSON.
    charts
        SVG pictures by name.
    cpu_seconds
        What it cost.
    """

    paper: str
    title: str
    reference: str
    assumptions: tuple[str, ...]
    rows: tuple[ClaimRow, ...]
    data: dict[str, Any] = field(default_factory=dict)
    charts: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; charts are left out, for they are made of the data."""
        return {
            "paper": self.paper,
            "title": self.title,
            "reference": self.reference,
            "assumptions": list(self.assumptions),
            "rows": [row.to_dict() for row in self.rows],
            "data": self.data,
            "simulation_seconds": self.cpu_seconds,
        }
