"""``weft run --restarts``: a job that has failed is started again, and goes on from its checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import Run

WEFT = Path(sys.executable).with_name("weft")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_restart.py"
HEARING = ["env", "--default-signal=INT,TERM"]  # whoever runs the tests may have them ignore some


def test_a_job_is_started_again_until_it_ends_well(weft: Run) -> None:
    script = "echo attempt $WEFT_ATTEMPT of $WEFT_RANK; test $WEFT_ATTEMPT = 2 || exit $((7 * WEFT_RANK))"
    outcome = weft("run", "-n", 2, "--restarts", 3, "--", "sh", "-c", script)
    assert outcome.code == 0
    said = sorted(line for line in outcome.out.splitlines() if line.startswith("[1]"))
    assert said == [f"[1] attempt {attempt} of 1" for attempt in range(3)]
    assert outcome.err.splitlines() == [
        "weft: rank 1 failed first: exit code 7; restart 1 of 3 in 0.5 s",
        "weft: rank 1 failed first: exit code 7; restart 2 of 3 in 1 s",
    ]


def test_every_attempt_has_a_secret_and_a_port_of_its_own(weft: Run) -> None:
    script = "echo $WEFT_SECRET $WEFT_PORT $WEFT_JOB; exit 1"
    outcome = weft("run", "-n", 1, "--restarts", 1, "--", "sh", "-c", script)
    first, second = (line.split()[1:] for line in outcome.out.splitlines())
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_a_job_that_fails_each_time_ends_with_its_last_failure(weft: Run) -> None:
    script = "test $WEFT_RANK = 0 && exec sleep 60; exit $((5 + WEFT_ATTEMPT))"
    outcome = weft("run", "-n", 2, "--restarts", 1, "--json", "--", "sh", "-c", script)
    assert outcome.code == 6
    assert outcome.err.splitlines()[-1] == (
        "weft: error: rank 1 failed first: exit code 6; the others were stopped, after 1 restart"
    )
    document = outcome.document
    assert (document["attempt"], document["exit_code"], document["reason"]) == (1, 6, "exit code 6")
    (earlier,) = document["earlier_attempts"]
    assert (earlier["exit_code"], earlier["first_failure"], len(earlier["results"])) == (5, 1, 2)


@pytest.mark.parametrize("code", [2, 126, 127])
def test_bad_use_is_not_tried_again(weft: Run, code: int) -> None:
    outcome = weft("run", "-n", 1, "--restarts", 5, "--", "sh", "-c", f"echo once; exit {code}")
    assert (outcome.code, outcome.out) == (code, "[0] once\n")


def test_what_cannot_be_started_is_not_tried_again(weft: Run) -> None:
    outcome = weft("run", "-n", 1, "--restarts", 5, "--", "no-such-program")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("number", ["-1", "1001", "many"])
def test_a_number_of_restarts_that_cannot_be_is_refused(weft: Run, number: str) -> None:
    outcome = weft("run", "-n", 1, "--restarts", number, "--", "true")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--restarts" in outcome.err


def start(script: str) -> subprocess.Popen[str]:
    command = [*HEARING, WEFT, "run", "-n", "1", "--restarts", "9", "--", "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [(signal.SIGINT, 130, "weft: interrupted\n"), (signal.SIGTERM, 143, "weft: stopped by SIGTERM\n")],
)
def test_a_job_that_is_told_to_stop_is_not_started_again(
    number: signal.Signals, code: int, text: str
) -> None:
    with start("echo up; exec sleep 60") as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "[0] up\n"
        job.send_signal(number)
        out, err = job.communicate(timeout=60)
    assert (job.returncode, out, err) == (code, "", text)


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [(signal.SIGINT, 130, "weft: interrupted"), (signal.SIGTERM, 143, "weft: stopped by SIGTERM")],
)
def test_a_signal_between_two_attempts_ends_the_job(number: signal.Signals, code: int, text: str) -> None:
    with start("exit 1") as job:
        assert job.stderr is not None
        while "restart 3 of 9 in 2 s" not in job.stderr.readline():  # a pause that is long enough to hit
            assert job.poll() is None
        job.send_signal(number)
        _, err = job.communicate(timeout=60)
    assert (job.returncode, err.splitlines()) == (code, [text])


def test_training_that_loses_a_rank_ends_with_the_very_loss_of_an_undisturbed_run(tmp_path: Path) -> None:
    def train(*words: str) -> tuple[str, list[str]]:
        done = subprocess.run(
            [WEFT, "run", "-n", "2", "--restarts", "1", "--json", EXAMPLE, *words],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
        )
        document = json.loads(done.stdout)
        assert document["exit_code"] == 0, done.stderr
        said = done.stderr.splitlines()
        return said[-1], [one["reason"] for one in document["earlier_attempts"]]

    undisturbed, failures = train("--steps", "200")
    assert failures == []
    assert undisturbed.startswith("[0] loss 0.")
    saving = ("--checkpoint", str(tmp_path / "state.npz"))
    assert train("--steps", "200", *saving, "--kill-at", "100") == (undisturbed, ["killed by SIGKILL"])
