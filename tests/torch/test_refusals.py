"""A wrong argument is refused where it is given, whether the call waits or not, and the group lives on."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

REFUSED = JOBS / "refusals_refused.py"


def test_a_wrong_argument_is_refused_at_the_call_and_the_group_lives_on(tmp_path: Path) -> None:
    run_group(tmp_path, 2, REFUSED)


UNSERVED = JOBS / "refusals_unserved.py"


def test_what_no_schedule_serves_is_refused_at_the_call(tmp_path: Path) -> None:
    run_group(tmp_path, 3, UNSERVED)
