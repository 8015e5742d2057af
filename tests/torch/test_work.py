"""Operations under way, as torch and its users hold them: futures and their callbacks."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

CALLBACKS = JOBS / "work_callbacks.py"


STUCK = JOBS / "work_stuck.py"


def test_a_group_that_is_destroyed_names_the_operation_of_a_callback_that_hangs(tmp_path: Path) -> None:
    run_group(tmp_path, 2, STUCK)


def test_callbacks_may_wait_for_collectives_and_messages(tmp_path: Path) -> None:
    run_group(tmp_path, 2, CALLBACKS)


ELSEWHERE = JOBS / "work_elsewhere.py"


def test_a_callback_that_takes_long_holds_up_nothing_else(tmp_path: Path) -> None:
    run_group(tmp_path, 2, ELSEWHERE)
