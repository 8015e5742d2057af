"""Operations that are queued behind others: what they work on, why they are refused, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

JOBS = Path(__file__).with_name("jobs")

LATER = JOBS / "queued_operations_later.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_queued_operation_takes_arrays_as_they_are_when_its_turn_comes(
    tmp_path: Path, transport: str
) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, LATER, transport)):
        assert code == 0, output


EMPTIED = JOBS / "queued_operations_emptied.py"


def test_a_call_takes_an_array_as_the_queue_left_it_that_became_empty_meanwhile(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, EMPTIED, "auto")):
        assert code == 0, output


REFUSED = JOBS / "queued_operations_refused.py"


def test_a_wrong_timeout_is_refused_by_the_call_and_nothing_is_queued(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, REFUSED, "auto")):
        assert code == 0, output


FULL = JOBS / "queued_operations_full.py"


def test_a_rank_whose_arena_is_full_takes_part_all_the_same(tmp_path: Path) -> None:
    small = {"WEFT_ARENA": "4MiB"}
    ranks = start_ranks(tmp_path, 3, FULL, "auto", "recursive_doubling", variables=small)
    for code, output in finish(ranks):
        assert code == 0, output


OUT_OF_MEMORY = JOBS / "queued_operations_out_of_memory.py"


@pytest.mark.parametrize(
    ("transport", "where", "what"),
    [("auto", "run", "this operation"), ("tcp", "run", "this operation"), ("auto", "before", "a copy")],
)
def test_a_rank_that_runs_out_of_memory_in_an_operation_is_named_by_all(
    tmp_path: Path, transport: str, where: str, what: str
) -> None:
    ranks = start_ranks(tmp_path, 3, OUT_OF_MEMORY, transport, variables={"WHERE": where})
    said = [output for _, output in finish(ranks)]
    assert "could not do its part" in said[1]
    assert f"no memory for {what}" in said[1]
    for output in (said[0], said[2]):
        assert "PeerLost" in output, output
        assert "rank 1" in output, output


NESTED = JOBS / "queued_operations_nested.py"


def test_turns_may_be_nested_and_abort_may_be_called_within_an_operation(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, NESTED, "auto")):
        assert code == 0, output
        assert "refused" in output


FORKED = JOBS / "queued_operations_forked.py"


def test_a_future_is_not_waited_for_in_a_forked_child(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, FORKED, "auto", variables={"EVENTS": str(tmp_path)})
    for code, output in finish(ranks):
        assert code == 0, output
