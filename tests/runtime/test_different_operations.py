"""Operations that move the same bytes are still told apart, by every rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine
from support.jobs import run_ranks

JOBS = Path(__file__).with_name("jobs")

JOB = JOBS / "different_operations.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_two_different_operations_never_pass_for_one(tmp_path: Path, transport: str) -> None:
    said = run_ranks(tmp_path, 2, JOB, transport)
    assert [output.split()[-1] for output in said] == ["98", "98"]


ON_ENGINE = JOBS / "different_operations_on_engine.py"


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_messages_gathers_scatters_and_parts_are_told_apart_on_other_engines(
    tmp_path: Path, engine: str
) -> None:
    assert run_engine(engine, tmp_path, 2, ON_ENGINE) == ["20"] * 2


AMONG_THREE = JOBS / "different_operations_among_three.py"


@pytest.mark.parametrize("elements", [3, 50_000])
@pytest.mark.parametrize("way", ["native:auto", "native:copy", "native:tcp", "mpi", "torch"])
def test_one_of_three_in_another_exchange_is_named(tmp_path: Path, way: str, elements: int) -> None:
    assert run_engine(way, tmp_path, 3, AMONG_THREE, str(elements)) == ["told"] * 3


EMPTY_SHARES = JOBS / "different_operations_empty_shares.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_ranks_whose_share_is_empty_are_told_too(tmp_path: Path, transport: str) -> None:
    assert [output.split()[-1] for output in run_ranks(tmp_path, 4, EMPTY_SHARES, transport)] == ["told"] * 4


OF_NOTHING = JOBS / "different_operations_of_nothing.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_ranks_without_elements_are_told_too(tmp_path: Path, transport: str) -> None:
    assert [output.split()[-1] for output in run_ranks(tmp_path, 5, OF_NOTHING, transport)] == ["told"] * 5
