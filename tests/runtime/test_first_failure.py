"""Which rank failed first, judged from how ranks ended and what they reported; every case by hand."""

from __future__ import annotations

import signal

from weft.runtime.launcher.failure_reports import FailureReport
from weft.runtime.launcher.first_failure import RankResult, find_first_failure, is_settled


def ended(rank: int, exit_code: int, by_signal: int | None = None) -> RankResult:
    code = exit_code if by_signal is None else 128 + by_signal
    return RankResult(rank, pid=1000 + rank, exit_code=code, signal=by_signal)


def lost(rank: int, *named: int) -> FailureReport:
    return FailureReport(rank, "lost", named, "all_reduce #2")


def late(rank: int, *named: int) -> FailureReport:
    return FailureReport(rank, "timed_out", named, "all_reduce #2")


def differs(rank: int, other: int, op: str, fingerprint: str = "") -> FailureReport:
    return FailureReport(rank, "differs", (other,), op, fingerprint)


def judge(ends: list[RankResult], *reports: FailureReport) -> str:
    return str(find_first_failure(ends, {report.rank: report for report in reports}))


def test_a_job_whose_ranks_end_well_has_no_failure() -> None:
    assert find_first_failure([ended(0, 0), ended(1, 0)], {}) is None
    assert find_first_failure([ended(0, 0)], {1: lost(1, 0)}) is None


def test_a_killed_rank_is_first_although_others_ended_before_it() -> None:
    assert judge([ended(0, 1), ended(2, 0, signal.SIGKILL)], lost(0, 2)) == (
        "rank 2 failed first: killed by SIGKILL"
    )


def test_a_rank_that_crashes_after_it_lost_another_is_not_first() -> None:
    ends = [ended(0, 0, signal.SIGABRT), ended(1, 7)]
    assert judge(ends, lost(0, 1)) == "rank 1 failed first: exit code 7"


def test_a_rank_that_fails_without_a_report_is_first() -> None:
    assert judge([ended(1, 3)], lost(0, 2)) == "rank 1 failed first: exit code 3"


def test_blame_is_followed_to_the_rank_that_blames_nobody() -> None:
    # 3 lost 2 because 2 left, 2 left because it lost 1.
    ends = [ended(3, 1), ended(2, 1), ended(1, 9)]
    assert judge(ends, lost(3, 2), lost(2, 1)) == "rank 1 failed first: exit code 9"


def test_the_rank_that_most_others_name_is_first() -> None:
    assert judge([ended(0, 1)], lost(0, 3), lost(1, 3), lost(2, 1)) == (
        "rank 3 failed first: stopped answering during all_reduce #2, according to ranks 0-2"
    )
    assert judge([ended(0, 1)], late(0, 2), late(1, 2), late(3, 4)) == (
        "rank 2 failed first: did not come to all_reduce #2 in time, according to ranks 0, 1"
    )


def test_a_rank_that_came_too_late_is_first_although_it_failed_as_well() -> None:
    ends = [ended(0, 4), ended(1, 1)]
    found = find_first_failure(ends, {0: late(0, 1), 1: FailureReport(1, "failed")})
    assert found is not None
    assert (found.ranks, found.exit_code) == ((1,), 4)
    assert found.reason == "did not come to all_reduce #2 in time, according to rank 0"


def test_several_ranks_that_did_not_come_are_all_named() -> None:
    report = FailureReport(0, "timed_out", (2, 3), "join")
    assert judge([ended(0, 1)], report) == (
        "ranks 2, 3 failed first: did not come to join in time, according to rank 0"
    )


def test_a_rank_that_ended_well_too_early_is_first_and_the_exit_code_is_that_of_a_failure() -> None:
    report = FailureReport(0, "timed_out", (1,), "join")
    found = find_first_failure([ended(1, 0), ended(0, 5)], {0: report})
    assert found is not None
    assert (found.ranks, found.exit_code) == ((1,), 5)
    assert found.reason == "ended with exit code 0 while rank 0 waited in join"


def test_ranks_outside_the_operation_of_the_majority_are_first() -> None:
    reports = differs(0, 1, "all_reduce #2"), differs(1, 0, "reduce #2"), differs(2, 1, "all_reduce #2")
    assert judge([ended(0, 1)], *reports) == (
        "rank 1 failed first: called reduce #2 while ranks 0, 2 were in all_reduce #2"
    )
    # Nor does it matter whether the odd one has reported.
    assert judge([ended(0, 1)], reports[0], reports[2]) == (
        "rank 1 failed first: called another operation while ranks 0, 2 were in all_reduce #2"
    )


def test_ranks_that_call_the_same_with_other_sizes_are_told_apart() -> None:
    reports = [
        differs(rank, 2 if rank != 2 else 0, "reduce #2", "ab" if rank == 2 else "c") for rank in range(3)
    ]
    assert judge([ended(0, 1)], *reports) == (
        "rank 2 failed first: called reduce #2 with another size, type or op than ranks 0, 1"
    )
    assert judge([ended(0, 1)], reports[0], reports[2]) == (
        "ranks 0, 2 called reduce #2 with different sizes, types or ops"
    )


def test_where_no_operation_has_a_majority_nobody_is_blamed() -> None:
    two = differs(0, 1, "all_reduce #2"), differs(1, 0, "reduce #2")
    found = find_first_failure([ended(1, 1)], {report.rank: report for report in two})
    assert found is not None
    assert found.ranks == ()
    assert str(found) == (
        "ranks 0, 1 are in different operations: rank 0 in all_reduce #2, rank 1 in reduce #2"
    )
    camps = [differs(rank, (rank + 2) % 4, "a" if rank < 2 else "b") for rank in range(4)]
    assert judge([ended(0, 1)], *camps).startswith("ranks 0-3 are in different operations")
    assert judge([ended(0, 1)], two[0]) == "ranks 0, 1 are in different operations: rank 0 in all_reduce #2"


def test_ranks_that_wait_for_each_other_are_said_to() -> None:
    assert judge([ended(0, 1)], late(0, 1), late(1, 0)) == "ranks 0, 1 waited for each other in all_reduce #2"


def test_a_link_that_fails_is_no_failure_of_a_rank() -> None:
    assert judge([ended(2, 1)], FailureReport(2, "cut", (0, 1), "all_reduce #2")) == (
        "nothing got through any more between ranks 0, 1 in all_reduce #2"
    )
    assert judge([ended(2, 1)], FailureReport(2, "corrupt", (0, 1), "all_reduce #2")) == (
        "data was changed on its way between ranks 0, 1 in all_reduce #2"
    )


def test_failures_inside_weft_that_name_nobody_leave_the_first_that_ended() -> None:
    assert (
        judge([ended(1, 3)], FailureReport(1, "failed"), FailureReport(0, "failed"))
        == "rank 1 failed first: exit code 3"
    )


def test_more_is_waited_for_only_while_it_can_change_the_judgement() -> None:
    own = find_first_failure([ended(1, 3)], {})
    named = find_first_failure([ended(0, 1)], {0: lost(0, 1)})
    assert own is not None
    assert named is not None
    assert is_settled(own, {0, 2}, {})
    assert not is_settled(named, {1}, {0: lost(0, 1)})
    assert is_settled(named, set(), {0: lost(0, 1)})
    assert is_settled(named, {2}, {0: lost(0, 1), 2: lost(2, 1)})
