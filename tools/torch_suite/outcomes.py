"""What came of tests: in a journal while they run, and in a record that is kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Result = Literal["passed", "failed", "skipped"]

RESULTS: Final[tuple[Result, ...]] = ("passed", "failed", "skipped")

_LONGEST_REASON: Final = 300


@dataclass(frozen=True)
class Outcome:
    """What came of a test."""

    result: Result
    seconds: float
    reason: str = ""
    """Why it was skipped, or the error in one line."""
    groups: int = 0
    """How many groups its ranks have made of the backend that is judged."""


@dataclass(frozen=True)
class Entry:
    """A line of the journal: a test has begun, or what came of it."""

    test: str
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Record:
    """What came of all tests with one backend, and how that was found."""

    backend: str
    torch: str
    python: str
    ranks: int
    date: str
    command: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)


def write_entry(journal: Path, entry: Entry) -> None:
    """Append a line to a journal."""
    with journal.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def read_journal(journal: Path) -> list[Entry]:
    """Lines of a journal; one that was cut off when its writer was stopped is left out."""
    if not journal.exists():
        return []
    lines = journal.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Entry) for line in lines]


def outcomes_of(entries: Iterable[Entry]) -> dict[str, Outcome]:
    """What came of each test that is over; the last line about it counts."""
    return {entry.test: entry.outcome for entry in entries if entry.outcome is not None}


def read_record(path: Path) -> Record:
    """Read what was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Record)


def write_record(path: Path, record: Record) -> None:
    """Keep a record, one test a line, so that a difference can be read."""
    fields = msgspec.to_builtins(record)
    outcomes = fields.pop("outcomes")
    head = [f"  {_text(name)}: {_text(value)}," for name, value in fields.items()]
    body = [f"    {_text(test)}: {_text(outcomes[test])}" for test in sorted(outcomes)]
    path.write_text("\n".join(["{", *head, '  "outcomes": {', ",\n".join(body), "  }", "}", ""]))


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def counts(outcomes: Mapping[str, Outcome]) -> str:
    """How many passed, failed and were skipped.

    Examples
    --------
    >>> counts({"test_rank": Outcome("passed", 0.1), "test_gpu": Outcome("skipped", 0.0)})
    '1 passed, 0 failed, 1 skipped'
    """
    found = Counter(outcome.result for outcome in outcomes.values())
    return ", ".join(f"{found[result]} {result}" for result in RESULTS)


def reason_of(text: str) -> str:
    r"""The error that a traceback ends with, in one line.

    A test in several processes fails with the tracebacks of those that have failed: the first of them counts.

    Examples
    --------
    >>> reason_of("Traceback (most recent call last):\n  File ...\nValueError: no such rank\n\nTo run")
    'ValueError: no such rank'
    """
    lines = text.splitlines()
    inner = [number for number, line in enumerate(lines) if "and exception:" in line]
    if inner:
        lines = lines[inner[0] + 1 :]
    for number, line in enumerate(lines):
        if _is_error(line):
            rest = [more.strip() for more in lines[number + 1 : number + 4] if more.strip()]
            return " ".join([line, *rest] if line.endswith((":", "!")) else [line])[:_LONGEST_REASON]
    return (lines[-1] if lines else "")[:_LONGEST_REASON]


def _is_error(line: str) -> bool:
    """Whether a line of a traceback begins with the name of an exception."""
    name, colon, _ = line.partition(":")
    return bool(colon) and name.replace(".", "").replace("_", "").isalnum() and name[0].isalpha()
