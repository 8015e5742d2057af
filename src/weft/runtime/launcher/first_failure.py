"""Which rank of a job failed first, judged from how ranks ended and what they reported.

The rules, first match wins:

1. A rank that a signal killed failed first, unless it had reported a failure before.
2. If the rank that ended first with a failure had reported none, it failed by itself, and first.
3. If ranks are in different operations, those outside the operation that has a majority failed first. Where
   none has a majority, as among two ranks, nobody can tell.
4. The rank that most others name failed first: named directly, or through ranks that fail because of it.
5. Else nobody can tell, and what is known is said: ranks that waited for each other, a link that failed.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.errors import name_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.runtime.launcher.failure_reports import FailureReport


_LINK_PROBLEMS: Final = {"cut": "nothing got through any more", "corrupt": "data was changed on its way"}


@dataclass
class RankResult:
    """How one rank ended.

    Parameters
    ----------
    rank, pid
        Which process.
    exit_code
        As a shell gives it, 128 and more for a signal; None while it runs.
    signal
        What killed it.
    wall_seconds
        From its start to its end.
    stopped
        Whether the launcher ended it.
    """

    rank: int
    pid: int
    exit_code: int | None = None
    signal: int | None = None
    wall_seconds: float | None = None
    stopped: bool = False


@dataclass(frozen=True)
class FirstFailure:
    """Why a job failed.

    Parameters
    ----------
    ranks
        Those that failed first; empty where nobody can tell.
    reason
        What happened to them; a whole sentence where nobody can tell.
    exit_code
        Of the rank that failed first if it ended by itself, else of the first rank that ended with a failure.
    by_itself
        Whether the rank ended without having reported a failure: no report of others can change that.
    """

    ranks: tuple[int, ...]
    reason: str
    exit_code: int
    by_itself: bool = False

    def __str__(self) -> str:
        return f"{name_ranks(self.ranks)} failed first: {self.reason}" if self.ranks else self.reason


def find_first_failure(
    ends: Sequence[RankResult], reports: Mapping[int, FailureReport]
) -> FirstFailure | None:
    """Judge why a job failed.

    Parameters
    ----------
    ends
        Ranks that have ended, in this order, before the launcher stopped any.
    reports
        The latest report of each rank that failed.

    Returns
    -------
    FirstFailure
        None if no rank has failed.
    """
    failed = [end for end in ends if end.exit_code]
    if not failed:
        return None
    killed = [end for end in failed if end.signal is not None and end.rank not in reports]
    if killed:
        return _own_failure(killed[0])
    first = failed[0]
    if first.rank not in reports:
        return _own_failure(first)
    assert first.exit_code is not None
    if differing := {rank: report for rank, report in reports.items() if report.kind == "differs"}:
        return _judge_difference(differing, first.exit_code)
    if votes := _count_votes(reports):
        return _judge_votes(votes, ends, reports, first.exit_code)
    return _say_what_is_known(first, reports)


def is_settled(found: FirstFailure, running: Iterable[int], reports: Mapping[int, FailureReport]) -> bool:
    """Whether waiting for more ranks to end or to report cannot change a judgement."""
    return found.by_itself or all(rank in reports for rank in running)


def _own_failure(end: RankResult, *, by_itself: bool = True) -> FirstFailure:
    assert end.exit_code is not None
    how = f"exit code {end.exit_code}" if end.signal is None else f"killed by {_signal_name(end.signal)}"
    return FirstFailure((end.rank,), how, end.exit_code, by_itself=by_itself)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals between the first and the last
        return f"signal {number}"


def _judge_difference(differing: Mapping[int, FailureReport], exit_code: int) -> FirstFailure:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, report in sorted(differing.items()):
        groups[report.op, report.fingerprint].append(rank)
    (op, _), largest = max(groups.items(), key=lambda group: len(group[1]))
    named = {other for rank in largest for other in differing[rank].named}
    odd = sorted((differing.keys() | named) - set(largest))
    if len(largest) <= len(odd):
        return FirstFailure((), _say_difference(differing, [*largest, *odd]), exit_code)
    majority = name_ranks(largest)
    theirs = {differing[rank].op for rank in odd if rank in differing}
    if theirs == {op}:
        reason = f"called {op} with another size, type or op than {majority}"
    else:
        called = theirs.pop() if len(theirs) == 1 else "another operation"
        reason = f"called {called} while {majority} were in {op}"
    return FirstFailure(tuple(odd), reason, exit_code)


def _say_difference(differing: Mapping[int, FailureReport], ranks: Iterable[int]) -> str:
    who = name_ranks(ranks)
    ops = {report.op for report in differing.values()}
    if len(ops) == 1 and len(differing) > 1:
        return f"{who} called {ops.pop()} with different sizes, types or ops"
    doing = ", ".join(f"rank {rank} in {report.op}" for rank, report in sorted(differing.items()))
    return f"{who} are in different operations: {doing}"


def _count_votes(reports: Mapping[int, FailureReport]) -> dict[int, list[int]]:
    """By rank that names no other: the ranks that name it, or that name ranks which lead to it."""
    votes: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(reports):
        for root in _follow(rank, reports) - {rank}:
            votes[root].append(rank)
    return votes


def _follow(rank: int, reports: Mapping[int, FailureReport]) -> set[int]:
    """Ranks at the ends of the chains of blame that begin at a rank; none where these are circles."""
    seen, coming, roots = {rank}, [rank], set()
    while coming:
        here = coming.pop()
        report = reports.get(here)
        if report is None or not report.blames:
            roots.add(here)
            continue
        coming += [other for other in report.named if other not in seen]
        seen.update(report.named)
    return roots


def _judge_votes(
    votes: Mapping[int, list[int]],
    ends: Sequence[RankResult],
    reports: Mapping[int, FailureReport],
    exit_code: int,
) -> FirstFailure:
    top = max(len(voters) for voters in votes.values())
    most = sorted(rank for rank, voters in votes.items() if len(voters) == top)
    ended = [end for end in ends if end.rank in most]
    for end in ended:
        if end.exit_code and end.rank not in reports:
            return _own_failure(end)
    if left := [end.rank for end in ended if end.exit_code == 0]:
        most = sorted(left)
    voters = sorted({voter for rank in most for voter in votes[rank]})
    said, who = reports[voters[0]], name_ranks(voters)
    if left:
        reason = f"ended with exit code 0 while {who} waited in {said.op}"
    elif said.kind == "timed_out":
        reason = f"did not come to {said.op} in time, according to {who}"
    else:
        reason = f"stopped answering during {said.op}, according to {who}"
    return FirstFailure(tuple(most), reason, exit_code)


def _say_what_is_known(first: RankResult, reports: Mapping[int, FailureReport]) -> FirstFailure:
    assert first.exit_code is not None
    for report in reports.values():
        if report.kind in _LINK_PROBLEMS:
            reason = f"{_LINK_PROBLEMS[report.kind]} between {name_ranks(report.named)} in {report.op}"
            return FirstFailure((), reason, first.exit_code)
    waiting = sorted(rank for rank, report in reports.items() if report.blames)
    if not waiting:
        return _own_failure(first, by_itself=False)
    reason = f"{name_ranks(waiting)} waited for each other in {reports[waiting[0]].op}"
    return FirstFailure((), reason, first.exit_code)
