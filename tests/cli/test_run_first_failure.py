"""``weft run`` names the rank that failed first and not those that failed because of it, in real jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import Run

JOBS = Path(__file__).with_name("jobs")

WEFT = Path(sys.executable).with_name("weft")

JOB = JOBS / "run_first_failure_job.py"


OTHER_CULPRITS = ((3, 1), (3, 2), (4, 0), (4, 1), (4, 3))


def run(folder: Path, ranks: int, culprit: int, what: str, timeout: float = 60) -> tuple[int, str, dict]:
    """Exit code, the last line on standard error, and the JSON document."""
    done = subprocess.run(
        [WEFT, "run", "-n", str(ranks), "--json", JOB, str(culprit), what, str(timeout)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
    )
    return done.returncode, done.stderr.splitlines()[-1], json.loads(done.stdout)


def without_others(said: str) -> str:
    """What is said of the rank that failed first.

    The others fail because of it: whether the launcher finds some still running is a matter of moments.
    """
    found, _, others = said.rpartition("; ")
    assert others == "the others were stopped" or others.endswith(" failed too")
    return found


@pytest.mark.parametrize(
    ("ranks", "culprit"),
    [(3, 0), (4, 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHER_CULPRITS)],
)
def test_the_rank_that_calls_another_collective_is_named(tmp_path: Path, ranks: int, culprit: int) -> None:
    code, said, document = run(tmp_path, ranks, culprit, "other operation")
    assert code == 1
    assert said.startswith(
        f"weft: error: rank {culprit} failed first: called broadcast #2 (direct) while ranks"
    )
    assert without_others(said).endswith("were in all_reduce #2 (recursive_doubling)")
    assert document["first_failure"] == culprit


def test_the_rank_that_calls_with_another_size_is_named(tmp_path: Path) -> None:
    _, said, _ = run(tmp_path, 3, 2, "other size")
    assert (
        "rank 2 failed first: called all_reduce #2 (recursive_doubling) with another size, type or op" in said
    )


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_in_different_operations_none_is_blamed(tmp_path: Path, culprit: int) -> None:
    code, said, document = run(tmp_path, 2, culprit, "other operation")
    doing = ["all_reduce #2 (recursive_doubling)"] * 2
    doing[culprit] = "broadcast #2 (direct)"
    assert said == (
        f"weft: error: ranks 0, 1 are in different operations: rank 0 in {doing[0]}, rank 1 in {doing[1]}"
    )
    assert (code, document["exit_code"]) == (1, 1)
    assert (document["first_failure"], document["failed_ranks"]) == (None, [])


def test_two_camps_of_two_are_both_named(tmp_path: Path) -> None:
    _, said, document = run(tmp_path, 4, -1, "different operations")
    assert said.startswith("weft: error: ranks 0-3 are in different operations: rank 0 in broadcast #2")
    assert document["first_failure"] is None


@pytest.mark.parametrize(
    ("culprit", "what", "code", "how"),
    [
        (0, "killed at the start", 137, "killed by SIGKILL"),
        (2, "raise at the start", 1, "exit code 1"),
        (2, "killed", 137, "killed by SIGKILL"),
        (0, "raise", 1, "exit code 1"),
        pytest.param(2, "killed at the start", 137, "killed by SIGKILL", marks=pytest.mark.slow),
        pytest.param(0, "raise at the start", 1, "exit code 1", marks=pytest.mark.slow),
        pytest.param(0, "killed", 137, "killed by SIGKILL", marks=pytest.mark.slow),
        pytest.param(2, "raise", 1, "exit code 1", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_dies_is_named_and_not_those_that_lost_it(
    tmp_path: Path, culprit: int, what: str, code: int, how: str
) -> None:
    found, said, _ = run(tmp_path, 3, culprit, what)
    assert without_others(said) == f"weft: error: rank {culprit} failed first: {how}"
    assert found == code


def test_a_rank_that_ends_well_without_joining_is_named(tmp_path: Path) -> None:
    code, said, document = run(tmp_path, 3, 1, "exit at the start", timeout=10)
    assert "rank 1 failed first: ended with exit code 0 while ranks 0, 2 waited in join" in said
    assert code == 1
    assert document["results"][1]["exit_code"] == 0


def test_a_rank_that_ends_well_too_early_is_named(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, 3, 1, "exit")
    assert "rank 1 failed first: ended with exit code 0 while ranks 0, 2 waited in all_reduce #2" in said
    assert code in (30, 32)


def test_a_rank_that_does_not_come_to_the_meeting_is_named(tmp_path: Path) -> None:
    _, said, _ = run(tmp_path, 3, 2, "late at the start", timeout=10)
    assert "rank 2 failed first: did not come to join in time, according to ranks 0, 1" in said


def test_a_rank_that_all_wait_for_is_named(tmp_path: Path) -> None:
    code, said, document = run(tmp_path, 3, 1, "late", timeout=5)
    assert "rank 1 failed first: did not come to all_reduce #2" in said
    assert code == 1
    assert document["results"][1]["stopped"]


def test_a_loss_in_a_part_of_the_job_is_named_by_its_rank_in_the_job(tmp_path: Path) -> None:
    _, said, _ = run(tmp_path, 4, 3, "in a part")
    assert without_others(said) == "weft: error: rank 3 failed first: exit code 1"


def test_a_chain_of_losses_leads_to_its_beginning(tmp_path: Path) -> None:
    _, said, document = run(tmp_path, 3, -1, "chain")
    assert "rank 0 failed first: ended with exit code 0 while ranks 1, 2 waited in all_reduce" in said
    assert document["first_failure"] == 0


LOSES_A_RANK = JOBS / "run_first_failure_loses_a_rank.py"


def test_survivors_write_their_flight_records_before_they_are_stopped(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    assert weft("run", "-n", 3, LOSES_A_RANK).code == 137
    assert sorted(path.name[-7:] for path in tmp_path.glob("flight-*.json")) == ["r0.json", "r2.json"]


def test_the_launcher_takes_no_notice_of_the_signal_for_flight_records(tmp_path: Path) -> None:
    script = 'trap "echo heard; exit 0" USR2; echo ready; while :; do sleep 0.05; done'
    command = [WEFT, "run", "-n", "1", "--", "bash", "-c", script]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "[0] ready\n"
    job.send_signal(signal.SIGUSR2)
    (rank,) = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text("ascii").split()[-1:]
    os.kill(int(rank), signal.SIGUSR2)
    out, _ = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, "[0] heard\n")
