"""Results in an array of the caller's, without more copies than needed; several operations in one turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine
from support.jobs import run_ranks

JOBS = Path(__file__).with_name("jobs")

OUT = JOBS / "results_out.py"

MEANWHILE = JOBS / "results_meanwhile.py"


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_the_input_of_a_reduce_scatter_may_be_read_meanwhile(
    tmp_path: Path, transport: str, algorithm: str
) -> None:
    run_engine(f"native:{transport}", tmp_path, 3, MEANWHILE, algorithm)


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_results_go_where_the_caller_wants_them(tmp_path: Path, transport: str, algorithm: str) -> None:
    run_engine(f"native:{transport}", tmp_path, 3, OUT, algorithm)


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_results_go_where_the_caller_wants_them_on_any_engine(tmp_path: Path, engine: str) -> None:
    run_engine(engine, tmp_path, 2, OUT)


TURNS = JOBS / "results_turns.py"


def test_several_operations_in_one_turn(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, TURNS)


UNEVEN = JOBS / "results_uneven.py"


def test_a_rank_that_a_schedule_gives_nothing_has_an_empty_share(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, UNEVEN)


CLOSED = JOBS / "results_closed.py"


def test_a_communicator_that_is_closed_finishes_the_turns_that_were_started(tmp_path: Path) -> None:
    run_ranks(tmp_path, 3, CLOSED)
