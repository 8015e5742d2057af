"""What ranks do wrong, and how they are told: who is named, and that nothing comes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.jobs import end, finish, run_ranks, start_ranks

JOBS = Path(__file__).with_name("jobs")

LATE = JOBS / "misuse_late.py"


@pytest.mark.parametrize("elements", [10, 30_000])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_who_did_not_come_is_named_by_all_and_told_so(tmp_path: Path, transport: str, elements: int) -> None:
    found = finish(start_ranks(tmp_path, 4, LATE, transport, str(elements), str(tmp_path)))
    for rank, (code, output) in enumerate(found):
        assert code == 0, output
        if rank == 2:
            assert "gave up waiting for this rank, 2" in output
        else:
            assert output.strip() == "missing 2", (rank, output)


ODD = JOBS / "misuse_odd.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_who_calls_something_else_is_named_by_those_who_agree(tmp_path: Path, transport: str) -> None:
    found = [output.split() for _, output in finish(start_ranks(tmp_path, 4, ODD, transport, str(tmp_path)))]
    assert found[1:] == [["named", "0"]] * 3
    assert found[0][0] == "named"


FORKED = JOBS / "misuse_forked.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path, transport: str) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, FORKED, transport)):
        assert code == 0, output


WRONG = JOBS / "misuse_wrong.py"

MEDDLING = JOBS / "misuse_meddling.py"


CALLBACKS = JOBS / "misuse_callbacks.py"


def test_callbacks_may_wait_for_operations_and_close(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, CALLBACKS)):
        assert code == 0, output


def test_a_user_who_meddles_with_futures_harms_nothing(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, MEDDLING)):
        assert code == 0, output


NAMED = JOBS / "misuse_named.py"


@pytest.mark.parametrize("call", ["barrier", "split"])
def test_errors_name_the_call_and_say_that_a_rank_has_left(tmp_path: Path, call: str) -> None:
    ranks = start_ranks(tmp_path, 3, NAMED, call, stdin=subprocess.PIPE)
    try:
        for number in (0, 2):
            out = ranks[number].stdout
            assert out is not None
            said = out.readline()
            assert said.startswith("rank 1 (host "), said
            assert f"was lost during {call} #" in said, said
            assert said.endswith("it has closed its communicator\n"), said
    finally:
        for rank in ranks:
            end(rank)


def test_wrong_calls_are_refused_and_do_no_harm(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, WRONG)):
        assert code == 0, output


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_call_within_an_operation_of_the_same_thread_is_refused(tmp_path: Path, transport: str) -> None:
    for output in run_ranks(tmp_path, 2, JOBS / "misuse_nested.py", transport, str(tmp_path)):
        assert output == "told\n"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_threads_that_share_a_communicator_wait_for_each_other(tmp_path: Path, transport: str) -> None:
    for output in run_ranks(tmp_path, 2, JOBS / "misuse_threads.py", transport):
        assert output == "done\n"


IMPATIENT = JOBS / "misuse_impatient.py"


def test_a_rank_that_is_patient_is_told_who_gave_up_waiting_for_whom(tmp_path: Path) -> None:
    (code_0, impatient), (_, late), (code_2, patient) = finish(
        start_ranks(tmp_path, 3, IMPATIENT, str(tmp_path))
    )
    assert (code_0, code_2) == (0, 0), (impatient, patient)
    assert "rank 1 did not come within 1 s" in impatient
    assert "rank 0 gave up waiting for this rank, 1" in late
    assert "gave up waiting for rank 1, while this rank waits for up to 30 s" in patient
    assert "30000ms" not in patient
    assert "rank 0 did not come" not in patient
