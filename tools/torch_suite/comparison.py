"""Whether what passes on gloo passes on the backend that is judged, too.

Expected differences are in a list, each with its reason. The list is checked as the tests are: an entry about
a test that does not differ, or that is not there, is an error too, so that the list says what is true.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_suite.outcomes import Outcome, counts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Comparison:
    """What a run gave beside gloo's, test by test."""

    gloo: dict[str, Outcome]
    judged: dict[str, Outcome]
    worse: dict[str, Outcome] = field(default_factory=dict)
    """Passed on gloo, not here, and not on the list."""
    expected: dict[str, str] = field(default_factory=dict)
    """Passed on gloo, not here, with the reason on the list."""
    better: tuple[str, ...] = ()
    """Passed here and not on gloo."""
    errors: tuple[str, ...] = ()
    """What is wrong with the list or the record."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs but what the list names."""
        return not self.worse and not self.errors


def read_reasons(path: Path) -> dict[str, str]:
    """Read the list of expected differences: a reason, and the tests that differ for it.

    Raises
    ------
    ValueError
        If an entry has no reason or no tests, or a test has two.
    """
    found: dict[str, str] = {}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("difference", []), 1):
        reason, tests = entry.get("reason", "").strip(), entry.get("tests", [])
        if not reason or not tests:
            msg = f"{path.name}: entry {number} needs a reason and tests"
            raise ValueError(msg)
        for test in tests:
            if test in found:
                msg = f"{path.name}: {test} is there twice; one reason is enough"
                raise ValueError(msg)
            found[test] = " ".join(reason.split())
    return found


def compare(
    gloo: Mapping[str, Outcome],
    judged: Mapping[str, Outcome],
    reasons: Mapping[str, str],
    every: frozenset[str] | set[str],
) -> Comparison:
    """Compare a run with gloo's record.

    Parameters
    ----------
    gloo
        What came of every test on gloo.
    judged
        What came of the tests that were run on the backend that is judged; a part of the suite, maybe.
    reasons
        Expected differences.
    every
        All tests that there are.
    """
    worse: dict[str, Outcome] = {}
    expected: dict[str, str] = {}
    errors = [
        f"{test}: on the list of differences, but there is no such test"
        for test in sorted(set(reasons) - every)
    ]
    for test, outcome in sorted(judged.items()):
        if test not in gloo:
            errors.append(f"{test}: gloo's record does not have it; record gloo anew")
        elif gloo[test].result == "passed" and outcome.result != "passed":
            if test in reasons:
                expected[test] = reasons[test]
            else:
                worse[test] = outcome
        elif test in reasons:
            errors.append(
                f"{test}: on the list of differences, but does not differ: {_both(gloo[test], outcome)}"
            )
    better = [
        test
        for test, outcome in judged.items()
        if test in gloo and outcome.result == "passed" and gloo[test].result != "passed"
    ]
    same = {test: gloo[test] for test in judged if test in gloo}
    return Comparison(same, dict(judged), worse, expected, tuple(sorted(better)), tuple(errors))


def _both(gloo: Outcome, judged: Outcome) -> str:
    return f"{gloo.result} on gloo, {judged.result} here"


def report(comparison: Comparison, backend: str) -> str:
    """What a reader wants to know, in a few lines."""
    both = len(comparison.worse) + len(comparison.expected)
    lines = [
        f"gloo: {counts(comparison.gloo)} (recorded)",
        f"{backend}: {counts(comparison.judged)}",
        f"groups of {backend} that were made: {sum(one.groups for one in comparison.judged.values())}",
        f"passed on gloo, not on {backend}: {both}, of which expected: {len(comparison.expected)}",
    ]
    if comparison.better:
        lines.append(f"passed on {backend}, not on gloo: {', '.join(comparison.better)}")
    lines += [f"worse: {test}: {one.result}: {one.reason}" for test, one in comparison.worse.items()]
    lines += [f"error: {error}" for error in comparison.errors]
    return "\n".join(lines)
