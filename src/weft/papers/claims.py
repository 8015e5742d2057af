"""What a reproduction is: rows of claims, the assumptions behind them, the data, and charts of it."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from weft.training import Costs, TrainingResult


@dataclass(frozen=True, slots=True)
class StudyCase:
    """One case of a study: what was tried and what came out; `derived` names properties that are data too."""

    derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Fields and derived figures, ready for JSON."""
        return asdict(self) | {name: getattr(self, name) for name in self.derived}


Findings: TypeAlias = "Generator[ClaimRow, None, tuple[dict[str, Any], Callable[[], dict[str, str]]]]"
"""Rows as they are finished; at the end data ready for JSON, and what draws the charts, as SVG by name."""

NEAR: Final = {"within_10": 0.10, "within_25": 0.25}
"""Verdicts on a claim that has a number, and by how much ours may differ from the paper's for each."""

NOT_REPRODUCED: Final = "not_reproduced"
NO_NUMBER: Final = "no_number"
FACTOR: Final = "x"
"""Unit of how many times as fast or as much."""

VERDICTS: Final = (*NEAR, NOT_REPRODUCED, NO_NUMBER)


def describe(paper: str) -> dict[str, Any]:
    """Title, reference, assumptions and claims of a paper, as its ``about.toml`` has them."""
    about = tomllib.loads((Path(__file__).parent / paper / "about.toml").read_text("utf-8"))
    return about | {"assumptions": tuple(about["assumptions"])}


def deviate(paper: float | None, ours: float) -> float | None:
    """How much more than the paper's number ours is, as a share of it; None without a number.

    Examples
    --------
    >>> deviate(2.0, 1.5)
    -0.25
    """
    return ours / paper - 1 if paper else None


def judge(paper: float | None, ours: float, unit: str = "") -> str:
    """Choose the verdict on a claim, one of `VERDICTS`.

    It goes by the deviation, whichever way that goes. Numbers that a paper calls the most ("up to") are
    judged as all others: its most beside ours. Where the paper has a speed-up and here nothing is faster, the
    claim is not reproduced, however small the speed-up.

    Examples
    --------
    >>> [judge(1.5, ours, "x") for ours in (1.6, 1.2, 2.0)]
    ['within_10', 'within_25', 'not_reproduced']
    >>> judge(1.05, 1.0, "x"), judge(None, 3.0)
    ('not_reproduced', 'no_number')
    """
    deviation = deviate(paper, ours)
    if paper is None or deviation is None:
        return NO_NUMBER
    if unit == FACTOR and paper > 1 and round(ours, 2) <= 1:
        return NOT_REPRODUCED
    return next((verdict for verdict, most in NEAR.items() if abs(deviation) <= most), NOT_REPRODUCED)


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
        Whether the paper says "up to": the paper's most, beside ours.
    claim_id
        Of the claim that this row counts for; empty for all other rows, which are variants of one that
        counts, or say something that the paper has no claim about.
    """

    derived = ("deviation", "verdict")

    claim: str
    setup: str
    paper: float | None
    ours: float
    unit: str = ""
    why: str = ""
    at_most: bool = False
    claim_id: str = ""

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return judge(self.paper, self.ours, self.unit)

    @property
    def deviation(self) -> float | None:
        """How much more than the paper's number ours is, as a share of it.

        Examples
        --------
        >>> ClaimRow("faster", "here", paper=2.0, ours=1.5).deviation
        -0.25
        """
        return deviate(self.paper, self.ours)


def factor_row(
    claim: str,
    setup: str,
    ours: float,
    why: str = "",
    paper: float | None = None,
    up_to: float | None = None,
    claim_id: str = "",
) -> ClaimRow:
    """Make a row of how many times as fast or as much; `up_to` is a number that the paper calls the most."""
    said = paper if up_to is None else up_to
    return ClaimRow(claim, setup, said, ours, FACTOR, why, up_to is not None, claim_id)


def percent_row(
    claim: str, setup: str, share: float, why: str = "", claim_id: str = "", **known: float | None
) -> ClaimRow:
    """Make a row of a share in percent; the paper's number, in percent as well, as for `factor_row`."""
    return replace(factor_row(claim, setup, 100 * share, why, **known, claim_id=claim_id), unit=" %")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The outcome of running a paper's claims.

    Parameters
    ----------
    paper, title, reference
        Which one.
    assumptions
        What the paper leaves open, and what was taken here.
    claims
        What the paper claims, by identifier.
    rows
        The same quantities here, and what belongs to them.
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
    claims: dict[str, str]
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
