"""What a reproduction is: rows of claims, the assumptions behind them, the data, and charts of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim.

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
        >>> Row("faster", "here", paper=2.0, ours=1.5).deviation
        -0.25
        """
        return None if not self.paper else self.ours / self.paper - 1

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "claim": self.claim,
            "setup": self.setup,
            "paper": self.paper,
            "ours": self.ours,
            "unit": self.unit,
            "deviation": self.deviation,
            "at_most": self.at_most,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A paper, run.

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

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; charts are left out, for they are made of the data."""
        return {
            "paper": self.paper,
            "title": self.title,
            "reference": self.reference,
            "assumptions": list(self.assumptions),
            "rows": [row.as_dict() for row in self.rows],
            "data": self.data,
            "simulation_seconds": self.cpu_seconds,
        }
