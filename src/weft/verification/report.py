"""What the verifier says about one schedule, on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.notebook_display import ShortRepr

if TYPE_CHECKING:
    from weft.errors import VerificationError
    from weft.verification.contention import ContentionReport

CHECKS: Final = ("hazard", "semantics", "route", "deadlock")
"""In the order they are made; hazards and semantics are one replay."""

_PROBLEM: Final = ("check", "problem", "transfer", "rank", "chunk")
"""What a document says of a problem."""

SIZES: Final = ("digest", "ranks", "chunks", "steps", "transfers", "messages")
"""Fields of a report that are those of its schedule."""


@dataclass(frozen=True, repr=False)
class VerificationReport(ShortRepr):
    """Result of `weft.verification.inspect`.

    Parameters
    ----------
    title
        Algorithm, collective and topology, for people.
    digest
        Of the schedule: what exactly was checked.
    ranks, chunks, steps, transfers, messages
        Its size.
    checks
        Checks that were made, of `CHECKS`; the first failure ends the inspection.
    problem
        What is wrong, or None.
    slots
        Receive slots per connection with which the schedule was proved unable to get stuck; None if it was
        not, because it is wrong.
    fused
        Whether that holds for executors that receive and forward in one instruction.
    cpu_seconds
        What the inspection took.
    contention
        On request.
    """

    title: str
    digest: str
    ranks: int
    chunks: int
    steps: int
    transfers: int
    messages: int
    checks: tuple[str, ...]
    problem: VerificationError | None
    slots: int | None
    fused: bool
    cpu_seconds: float
    contention: ContentionReport | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem is None

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft verify --json`` prints."""
        found: dict[str, Any] = {
            "schedule": self.title,
            "digest": self.digest,
            "verified": self.ok,
            "checks": list(self.checks),
            "problem": self.problem and {name: getattr(self.problem, name) for name in _PROBLEM},
            **{name: getattr(self, name) for name in ("slots", "fused", *SIZES[1:], "cpu_seconds")},
        }
        if self.contention is not None:
            found["contention"] = self.contention.to_dict()
        return found

    def __str__(self) -> str:
        moved = f"{self.transfers:,} transfers in {self.messages:,} messages"
        size = f"{moved}, {self.steps:,} steps, {self.chunks:,} chunks, {self.ranks:,} ranks"
        lines = [("schedule", f"{self.digest[:12]}: {size}")]
        lines += [(check, self._verdict(check)) for check in self.checks]
        if self.contention is not None:
            lines.append(("contention", str(self.contention)))
        lines.append(("took", f"{self.cpu_seconds:.3f} CPU seconds"))
        table = "\n".join(f"  {name:<12}{text}" for name, text in lines)
        return f"{self.title}: {'correct' if self.ok else 'WRONG'}\n{table}"

    def _verdict(self, check: str) -> str:
        if self.problem is not None and self.problem.check == check:
            return str(self.problem).removeprefix(f"{check}: ")
        if self.problem is not None and self.problem.check in ("hazard", "semantics"):
            return "not decided, the replay stops at the first problem"
        if check == "deadlock":
            plural = "" if self.slots == 1 else "s"
            executor = " in a fused executor" if self.fused else ""
            return f"impossible with {self.slots} or more receive slot{plural} per connection{executor}"
        return {
            "hazard": "none: only reduces share a place within a step",
            "semantics": "every result holds each contribution exactly once",
            "route": "every route leads from its source to its destination",
        }[check]
