"""Single ranks that deal with each other, and communicators of some of the ranks: on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine, start_engine
from support.jobs import finish, run_ranks, start_ranks

JOBS = Path(__file__).with_name("jobs")

WAYS = ["native:auto", "native:tcp", "mpi", "torch"]

DEALINGS = JOBS / "split_dealings.py"


@pytest.mark.parametrize("way", WAYS)
def test_ranks_deal_with_each_other(tmp_path: Path, way: str) -> None:
    assert run_engine(way, tmp_path, 4, DEALINGS) == ["dealt"] * 4


PARTS = JOBS / "split_parts.py"


@pytest.mark.parametrize("way", WAYS)
def test_some_of_the_ranks_make_a_communicator_and_a_key_orders_them(tmp_path: Path, way: str) -> None:
    assert run_engine(way, tmp_path, 5, PARTS) == ["parted"] * 5


FULL = JOBS / "split_full.py"


def test_there_is_room_for_so_many_communicators(tmp_path: Path) -> None:
    assert run_engine("native:auto", tmp_path, 2, FULL) == ["14"] * 2


MISUSED = JOBS / "split_misused.py"


@pytest.mark.parametrize("way", WAYS)
def test_a_split_that_is_refused_keeps_no_room_and_a_receiver_of_another_size_is_told(
    tmp_path: Path, way: str
) -> None:
    assert run_engine(way, tmp_path, 2, MISUSED) == ["told", "whole"] * 2  # sorted


LOST = JOBS / "split_lost.py"


@pytest.mark.parametrize("way", ["native:auto", "native:tcp"])
def test_a_part_without_the_dead_goes_on(tmp_path: Path, way: str) -> None:
    ended = finish(start_engine(way, tmp_path, 4, LOST))
    assert [output.strip() for _, output in ended] == [
        "<0 unharmed >",
        "",
        "<2 lost 0 True >",
        "<3 unharmed >",
    ]


CYCLES = JOBS / "split_cycles.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_parts_that_were_closed_leave_nothing(tmp_path: Path, transport: str) -> None:
    run_ranks(tmp_path, 3, CYCLES, transport)


def test_a_rank_that_dies_while_a_part_connects_is_named_at_once(tmp_path: Path) -> None:
    job = JOBS / "dying_split.py"
    said = [output.strip() for _, output in finish(start_ranks(tmp_path, 4, job))]
    assert said == ["2 True True", "2 True True", "", "2 True True"]


def test_a_rank_that_leaves_because_another_died_is_not_taken_for_that_one(tmp_path: Path) -> None:
    job = JOBS / "leaving_after_a_loss.py"
    for _ in range(5):  # each job has a chance of a third or more to show it
        ranks = start_ranks(tmp_path, 3, job, variables={"WEFT_FLIGHT_DIR": ""})
        said = [output.strip() for _, output in finish(ranks)]
        assert said == ["2", "1", ""]  # rank 2 of all is rank 1 of the part
