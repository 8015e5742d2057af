"""What torch's own backends do and people rely on: the same with a group of backend weft."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

ANY_SOURCE = JOBS / "compatibility_any_source.py"


def test_receives_from_any_source(tmp_path: Path) -> None:
    run_group(tmp_path, 3, ANY_SOURCE)


LEAVING = JOBS / "compatibility_leaving.py"


def test_a_rank_that_leaves_does_not_end_receives_from_others(tmp_path: Path) -> None:
    run_group(tmp_path, 3, LEAVING)


OPERATIONS = JOBS / "compatibility_operations.py"


def test_reductions_of_integers_and_of_sparse_tensors(tmp_path: Path) -> None:
    run_group(tmp_path, 3, OPERATIONS)


CALLS = JOBS / "compatibility_calls.py"


def test_calls_as_torch_and_its_users_make_them(tmp_path: Path) -> None:
    run_group(tmp_path, 3, CALLS)


SEEN = JOBS / "compatibility_seen.py"


def test_profilers_and_dispatch_modes_see_collectives(tmp_path: Path) -> None:
    run_group(tmp_path, 3, SEEN)


PASSED = JOBS / "compatibility_passed.py"


def test_who_leaves_after_a_monitored_barrier_takes_nobody_along(tmp_path: Path) -> None:
    run_group(tmp_path, 3, PASSED)
