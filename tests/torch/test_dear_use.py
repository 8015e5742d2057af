"""DeAR in use: checkpoints, loss scaling, other groups, and what must not go unnoticed."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from support.groups import run_group, start_group
from support.jobs import finish

JOBS = Path(__file__).with_name("jobs")

RESUME = JOBS / "dear_use_resume.py"


@pytest.mark.parametrize("mode", ["gradients", "parameters"])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_checkpoint_goes_on_bit_by_bit(tmp_path: Path, mode: str, kind: str) -> None:
    run_group(tmp_path, 2, RESUME, mode, kind, str(tmp_path))


SCALED = JOBS / "dear_use_scaled.py"


@pytest.mark.parametrize("mode", ["gradients", "parameters"])
def test_all_ranks_skip_a_step_that_is_not_finite_anywhere(tmp_path: Path, mode: str) -> None:
    run_group(tmp_path, 2, SCALED, mode)


MISUSE = JOBS / "dear_use_misuse.py"


STATES = JOBS / "dear_use_states.py"


def test_states_and_odd_parameters_are_right_or_refused(tmp_path: Path) -> None:
    run_group(tmp_path, 2, STATES)


def test_what_would_be_silently_wrong_is_refused(tmp_path: Path) -> None:
    said = run_group(tmp_path, 2, MISUSE)
    assert all("differs: DesyncError" in output for output in said), said


OVER_GLOO = JOBS / "dear_use_over_gloo.py"


@pytest.mark.parametrize("backend", ["gloo", "weft"])
def test_any_group_will_do(tmp_path: Path, backend: str) -> None:
    cases = ("gradients,dear", "gradients,auto", "parameters,dear")
    run_group(tmp_path, 3, OVER_GLOO, *cases, backend=backend, finalise=True)


WORKERS = JOBS / "dear_use_workers.py"


def test_workers_of_a_loader_do_no_harm(tmp_path: Path) -> None:
    run_group(tmp_path, 2, WORKERS)


POLICY_LOG = JOBS / "dear_use_policy_log.py"


def test_the_choice_of_wfbp_is_one_log_line_of_rank_0_and_no_warning(tmp_path: Path) -> None:
    run_group(tmp_path, 2, POLICY_LOG)


TRIAL = JOBS / "dear_use_trial.py"


def test_what_a_policy_takes_when_it_is_tried_decides(tmp_path: Path) -> None:
    run_group(tmp_path, 2, TRIAL)


KILLED = JOBS / "dear_use_killed.py"


@pytest.mark.parametrize(
    ("mode", "policy"), [("gradients", "dear"), ("gradients", "wfbp"), ("parameters", "dear")]
)
def test_a_rank_that_dies_is_named_by_all_others(tmp_path: Path, mode: str, policy: str) -> None:
    ended = finish(start_group(tmp_path, 4, KILLED, "weft", mode, policy))
    assert ended[2][0] == -signal.SIGKILL, ended[2]
    killed = float(re.findall(r"<now ([\d.]+)", ended[2][1])[0])
    for rank in (0, 1, 3):
        code, output = ended[rank]
        assert code == 0, output
        lost, when, done = re.findall(r"<lost (\d+) ([\d.]+) (\d+)", output)[0]
        assert lost == "2"
        assert float(when) - killed < 20, time.time()  # a wait would take 60
        assert int(done) <= 12
