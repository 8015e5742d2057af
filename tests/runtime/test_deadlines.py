"""No call waits for ever: a rank that is there and takes no part is named when time is up."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

JOBS = Path(__file__).with_name("jobs")

ABSENT = JOBS / "deadlines_absent.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_no_operation_waits_for_ever_for_a_rank_that_takes_no_part(tmp_path: Path, transport: str) -> None:
    assert finish(start_ranks(tmp_path, 2, ABSENT, transport, str(tmp_path))) == [(0, ""), (0, "")]
