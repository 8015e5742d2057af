"""After ranks were lost the survivors go on: renumbered, connected anew, with a plan for what is left."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.hosts import make_network
from support.jobs import finish, start_ranks

import weft
from weft.runtime.recovery import without_ranks

JOBS = Path(__file__).with_name("jobs")

JOB = JOBS / "shrinking.py"
LOST_WHILE_SHRINKING = JOBS / "lost_while_shrinking.py"


def survivors(ranks: list[subprocess.Popen[str]], victims: set[int]) -> list[dict[str, Any]]:
    """What the survivors said, each exactly once and well."""
    living = [process for rank, process in enumerate(ranks) if rank not in victims]
    found = finish(living)
    assert [code for code, _ in found] == [0] * len(living), found
    return [json.loads(output.splitlines()[-1]) for _, output in found]


def check(found: list[dict[str, Any]], victims: set[int], ranks: int) -> None:
    left = [rank for rank in range(ranks) if rank not in victims]
    assert [one["before"] for one in found] == left
    assert [one["rank"] for one in found] == list(range(len(left)))
    assert all(one["survivors"] == left and one["named"] in victims and one["closed"] for one in found)


@pytest.mark.parametrize(
    ("ranks", "transport", "victims"),
    [(2, "auto", {1}), (2, "auto", {0}), (4, "tcp", {0}), (4, "copy", {0, 1}), (3, "auto", {2})],
)
def test_survivors_of_killed_ranks_go_on(
    tmp_path: Path, ranks: int, transport: str, victims: set[int]
) -> None:
    words = (transport, ",".join(map(str, victims)), "SIGKILL", "", "")
    started = start_ranks(tmp_path, ranks, JOB, *words)
    try:
        check(survivors(started, victims), victims, ranks)
    finally:
        finish(started)


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("phase", ["connect", "barrier", "plan"])
def test_survivors_that_lose_one_more_while_they_shrink_meet_again(
    tmp_path: Path, victim: int, phase: str
) -> None:
    started = start_ranks(tmp_path, 5, LOST_WHILE_SHRINKING, str(victim), phase)
    try:
        left = [rank for rank in range(4) if rank != victim]
        found = survivors(started, {victim, 4})
        assert [one["survivors"] for one in found] == [left] * 3
        assert [one["rank"] for one in found] == [0, 1, 2]
    finally:
        finish(started)


@pytest.mark.parametrize("frozen", [0, 1])
def test_survivors_go_on_without_one_that_freezes_while_they_wait_in_shrink(
    tmp_path: Path, frozen: int
) -> None:
    started = start_ranks(tmp_path, 5, JOB.with_name("shrink_frozen.py"), str(frozen))
    try:
        found = survivors(started, {frozen, 4})
        assert [one["survivors"] for one in found] == [[rank for rank in range(4) if rank != frozen]] * 3
        assert all(one["seconds"] < 30 for one in found)  # a freeze is seen after 5 s; the deadline is 40 s
    finally:
        started[frozen].kill()
        finish(started)


@pytest.mark.parametrize("kind", ["strided", "in_turn"])
def test_shrink_does_not_wait_for_queued_operations_for_ever(tmp_path: Path, kind: str) -> None:
    started = start_ranks(tmp_path, 4, JOB.with_name("shrink_queued.py"), kind)
    try:
        assert [one["survivors"] for one in survivors(started, {3})] == [[0, 1, 2]] * 3
    finally:
        finish(started)


def test_a_frozen_rank_that_thaws_is_not_let_in_again(tmp_path: Path) -> None:
    started = start_ranks(tmp_path, 3, JOB, "auto", "0", "SIGSTOP", "", "")
    check(survivors(started, {0}), {0}, 3)
    started[0].send_signal(signal.SIGCONT)
    ((code, output),) = finish([started[0]])
    assert code == 1
    assert "shrink goes on after PeerLost, and this rank has failed otherwise" in output
    assert "gave up waiting for this rank, 0" in output


def test_the_survivors_plan_for_what_is_left(tmp_path: Path) -> None:
    words = ("auto", "2", "SIGKILL", "", "ring:4@bw=1GB/s")
    started = start_ranks(tmp_path, 4, JOB, *words)
    try:
        found = survivors(started, {2})
        check(found, {2}, 4)
        assert {one["network"] for one in found} == {"ring:4@bw=1GB/s"}
    finally:
        finish(started)


@pytest.mark.namespaces
def test_survivors_on_several_hosts_go_on(tmp_path: Path) -> None:
    with make_network(3) as network:
        words = ("auto", "0,1", "SIGKILL", "", "")
        started = network.start(tmp_path, 2, JOB, *words)
        try:
            check(survivors(started, {0, 1}), {0, 1}, 6)
        finally:
            finish(started)


@pytest.mark.namespaces
def test_the_smaller_part_of_a_network_that_fell_apart_does_not_go_on(tmp_path: Path) -> None:
    with make_network(3) as network:
        started = network.start(tmp_path, 1, JOB, "auto", "", "SIGKILL", "", "")
        try:
            for process in started:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            network.unplug(2)
            found = finish(started)
        finally:
            finish(started)
    assert [code for code, _ in found] == [0, 0, 1], found
    assert json.loads(found[0][1].splitlines()[-1])["survivors"] == [0, 1]
    late = "TimedOut: shrink: Timed out waiting "
    assert late in found[2][1] or "of 3 are left" in found[2][1]


def test_what_is_left_of_a_topology() -> None:
    ring = weft.load_topology("ring:5")
    alone = [[rank] for rank in range(5)]
    left = without_ranks(ring, alone, [0, 1, 3, 4])
    assert left is not None
    assert left.rank_labels == (0, 1, 3, 4)
    assert without_ranks(ring, alone, [0, 2]) is None  # they cannot reach each other
    assert without_ranks(ring, alone, [3]) is None
    assert without_ranks(None, alone, [0, 1]) is None
    hosts = [[0, 1], [2, 3], [4, 5]]
    three = weft.load_topology("fullmesh:3")
    half = without_ranks(three, hosts, [0, 2, 3, 4, 5])
    assert half is not None
    assert half.ranks == 3
    less = without_ranks(three, hosts, [0, 1, 4])
    assert less is not None
    assert less.rank_labels == (0, 2)


def test_a_number_of_survivors_that_cannot_be_is_refused() -> None:
    from weft.errors import InputError
    from weft.runtime.bootstrap.shrink import check_minimum

    for minimum in (0, 5, -1):
        with pytest.raises(InputError, match=f"minimum {minimum}"):
            check_minimum(minimum, 4)


LAST = JOBS / "shrink_last.py"


def test_the_only_rank_that_is_left_is_told_that_it_can_have_lost_nobody(tmp_path: Path) -> None:
    (code, output), _ = finish(start_ranks(tmp_path, 2, LAST))
    assert code == 0, output
    assert "this rank is the only one of its communicator" in output
    assert "go on with the communicator as it is" in output
