"""The benchmark of start-up: one small job of it, and what it makes of jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "runtime"))

import result_files
import start_up
from bounded_run import BoundedRun


def job(seconds: float) -> dict[str, float]:
    """What a job of that many seconds would have told."""
    names = ("whole_s", "after_import_s", "import_s", "join_s", "first_all_reduce_s", "cpu_s")
    return dict.fromkeys(names, seconds)


def test_a_job_tells_the_times_of_its_slowest_rank_and_the_processor_seconds_of_all() -> None:
    found = start_up.start("weft", 2)
    assert found["whole_s"] > found["after_import_s"] >= found["join_s"] > 0
    assert found["cpu_s"] > 0
    assert found["import_s"] > 0


def test_a_job_is_expected_to_take_as_long_as_the_last_or_in_proportion_to_its_ranks() -> None:
    found = {(4, "gloo"): [job(8), job(6)]}
    assert start_up.expected_s((4, "gloo"), found) == 6
    assert start_up.expected_s((16, "gloo"), found) == 24
    assert start_up.expected_s((16, "weft"), found) > 0


def test_without_time_nothing_is_started_and_the_reason_is_told() -> None:
    clock = BoundedRun(minutes=0)
    assert start_up.measure({2: 1}, clock) == {}
    assert clock.stopped == "0 minutes were over"


def test_table_has_medians_and_what_gloo_takes_in_comparison(tmp_path: Path) -> None:
    found = {(4, "gloo"): [job(8), job(6), job(7)], (4, "weft"): [job(2), job(2), job(5)]}
    path = tmp_path / "found.json"
    started = result_files.start()
    result_files.write(path, started, parameters={}, results=start_up.rows_of(found))
    assert start_up.table(path).splitlines()[2:] == [
        "| 4 | weft | 3 | 2.00 | 2.00, 5.00 | 3.50x | 2.00 | 2.00 | 3.50x | 2.0 |",
        "| 4 | gloo | 3 | 7.00 | 6.00, 8.00 | 1.00x | 7.00 | 7.00 | 1.00x | 7.0 |",
    ]


def test_a_rank_that_fails_ends_the_job_with_what_it_said() -> None:
    with pytest.raises(start_up.RuntimeFailure, match="ended with"):
        start_up.start("no such way", 1)
