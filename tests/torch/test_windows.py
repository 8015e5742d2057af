"""Small gathers and scatters in flight share messages; each gives what it would give alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

MANY = JOBS / "windows_many.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_many_in_flight_give_what_each_gives_alone(tmp_path: Path, ranks: int) -> None:
    run_group(tmp_path, ranks, MANY)


MORE = JOBS / "windows_more.py"


def test_a_rank_that_gathers_more_than_the_others_is_named(tmp_path: Path) -> None:
    run_group(tmp_path, 3, MORE)
