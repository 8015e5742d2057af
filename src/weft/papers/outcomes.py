"""How every claim of the papers came out: one row of each reproduction counts for a claim.

Outcomes are stored with the package (``stored_claims.json``), so that they can be shown at once; the file
says which commit and which command made them. A claim is made anew from those studies alone that it needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError, no_such, quote
from weft.papers import PAPERS, find_paper, reproduce
from weft.papers.claims import describe, deviate, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.papers import ClaimRow, Reproduction

STORED: Final = Path(__file__).with_name("stored_claims.json")
VERSION: Final = 1
"""Of the layout of the stored file, and of the document that ``weft reproduce --json`` prints."""


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """A claim beside the same quantity here.

    Parameters
    ----------
    paper, claim_id, claim
        One of `PAPERS`, the identifier, and what the paper says.
    paper_value, at_most
        The paper's number, None if it has none; and whether it says "up to".
    ours, unit
        The same quantity here, and what is written behind both numbers.
    setup, why
        What ran here, and where the deviation comes from.
    """

    paper: str
    claim_id: str
    claim: str
    paper_value: float | None
    at_most: bool
    ours: float
    unit: str
    setup: str
    why: str

    @classmethod
    def of(cls, paper: str, claim: str, row: ClaimRow) -> ClaimOutcome:
        """Take the numbers from the row that counts."""
        return cls(paper, row.claim_id, claim, row.paper, row.at_most, row.ours, row.unit, row.setup, row.why)

    @property
    def deviation(self) -> float | None:
        """How much more than the paper's number ours is, as a share of it; None without a number."""
        return deviate(self.paper_value, self.ours)

    @property
    def verdict(self) -> str:
        """One of `weft.papers.claims.VERDICTS`."""
        return judge(self.paper_value, self.ours, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, as ``weft reproduce --json`` prints it."""
        return {
            "paper": self.paper,
            "id": self.claim_id,
            "claim": self.claim,
            "paper_value": self.paper_value,
            "ours": self.ours,
            "deviation": self.deviation,
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class ClaimStudy:
    """The claims of a paper that need the same studies.

    Parameters
    ----------
    paper, claim_ids
        Which.
    effort
        The paper's ``Effort`` that suffices.
    """

    paper: str
    claim_ids: tuple[str, ...]
    effort: object

    def remake(
        self, report: Callable[[str, int, int], None] = lambda _text, _done, _all: None
    ) -> tuple[list[ClaimOutcome], float]:
        """Run the studies; give the outcomes, in the order of `claim_ids`, and CPU seconds."""
        found = reproduce(self.paper, report, self.effort, charts=False)
        by_id = {outcome.claim_id: outcome for outcome in outcomes_of(found)}
        return [by_id[name] for name in self.claim_ids], found.cpu_seconds


@dataclass(frozen=True, slots=True)
class StoredPaper:
    """Stored outcomes of a paper, each by the identifier of its claim.

    Parameters
    ----------
    outcomes
        How claims came out.
    commits
        What made them.
    cpu_seconds
        What each claim costs to make anew; claims of one study cost that much together.
    """

    outcomes: dict[str, ClaimOutcome]
    commits: dict[str, str]
    cpu_seconds: dict[str, float]


def outcomes_of(found: Reproduction) -> list[ClaimOutcome]:
    """Outcomes of the claims that a reproduction has rows for."""
    return [
        ClaimOutcome.of(found.paper, found.claims[row.claim_id], row) for row in found.rows if row.claim_id
    ]


def studies_of(paper: str) -> list[ClaimStudy]:
    """Group the claims of a paper by what they need.

    Raises
    ------
    InputError
        If the paper is unknown.
    """
    efforts: list[tuple[object, list[str]]] = []
    needed = find_paper(paper).NEEDED
    for name in describe(paper)["claims"]:
        alike = next((names for effort, names in efforts if effort == needed[name]), None)
        if alike is None:
            efforts.append((needed[name], [name]))
        else:
            alike.append(name)
    return [ClaimStudy(paper, tuple(names), effort) for effort, names in efforts]


def find_study(claim_id: str, paper: str | None = None) -> ClaimStudy:
    """Find the study that one claim needs; its only claim is this one.

    Raises
    ------
    InputError
        If there is no such claim, or it is another paper's.
    """
    asked = PAPERS if paper is None else (paper,)
    known = {name: one for one in asked for name in find_claims(one)}
    if claim_id not in known:
        elsewhere = next((one for one in PAPERS if claim_id in find_claims(one)), None)
        if elsewhere is not None:
            raise InputError(f"claim {quote(claim_id)} is of {elsewhere}, not of {paper}; leave {paper} out")
        raise no_such("claim", claim_id, known)
    of = known[claim_id]
    return ClaimStudy(of, (claim_id,), find_paper(of).NEEDED[claim_id])


def find_claims(paper: str) -> dict[str, str]:
    """What a paper claims, by identifier.

    Raises
    ------
    InputError
        If the paper is unknown.

    Examples
    --------
    >>> list(find_claims("dear"))
    ['dear-ethernet', 'dear-infiniband']
    """
    if paper not in PAPERS:
        raise no_such("paper", paper, PAPERS)
    claims: dict[str, str] = describe(paper)["claims"]
    return claims


@cache
def stored() -> dict[str, StoredPaper]:
    """Outcomes that come with the package, by paper. Only in a clone may a claim be new, and not stored yet.

    Raises
    ------
    InputError
        If the file is of another version of Weft.
    """
    document = json.loads(STORED.read_text("utf-8"))
    if document["version"] != VERSION:
        msg = f"{STORED.name} has layout {document['version']}, and this is {VERSION}; install Weft again"
        raise InputError(msg)
    return {
        paper: _read(paper, [one for one in document["studies"] if one["paper"] == paper]) for paper in PAPERS
    }


def store(outcomes: Sequence[ClaimOutcome], cpu_seconds: float, commit: str, command: str) -> None:
    """Replace the stored outcomes of a study that was made anew; the file is of a clone."""
    entry = {
        "paper": outcomes[0].paper,
        "commit": commit,
        "command": command,
        "cpu_seconds": round(cpu_seconds, 1),
        "claims": [_write(outcome) for outcome in outcomes],
    }
    order = [name for paper in PAPERS for name in find_claims(paper)]
    remade = {outcome.claim_id for outcome in outcomes}
    studies: list[dict[str, Any]] = [entry]
    for one in json.loads(STORED.read_text("utf-8"))["studies"]:
        # What a study no longer has, or another one has now, is dropped.
        kept = [claim for claim in one["claims"] if claim["id"] in order and claim["id"] not in remade]
        studies += [one | {"claims": kept}] if kept else []
    studies.sort(key=lambda one: order.index(one["claims"][0]["id"]))
    text = json.dumps({"version": VERSION, "studies": studies}, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", "utf-8")
    stored.cache_clear()


def _write(outcome: ClaimOutcome) -> dict[str, Any]:
    return {
        "id": outcome.claim_id,
        "paper_value": outcome.paper_value,
        "at_most": outcome.at_most,
        "ours": float(f"{outcome.ours:.9g}"),
        "unit": outcome.unit,
        "setup": outcome.setup,
        "why": outcome.why,
    }


def _read(paper: str, studies: Sequence[dict[str, Any]]) -> StoredPaper:
    claims = find_claims(paper)
    found, commits, cost = {}, {}, {}
    for study in studies:
        for one in study["claims"]:
            name = one["id"]
            fields = {field: value for field, value in one.items() if field != "id"}
            found[name] = ClaimOutcome(paper, name, claims[name], **fields)
            commits[name], cost[name] = study["commit"], study["cpu_seconds"]
    return StoredPaper({name: found[name] for name in claims if name in found}, commits, cost)
