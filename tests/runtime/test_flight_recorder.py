"""The flight recorder: every surviving rank says what it was doing, and the records together say why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import WEFT, finish, start_ranks

from weft import limits
from weft.errors import FormatError, InputError
from weft.runtime.diagnosis import diagnose, load_flight
from weft.runtime.flight_recorder import (
    FORMAT,
    CommunicatorRecord,
    FlightRecord,
    PeerWait,
    RecordedOperation,
)

JOB = Path(__file__).with_name("jobs") / "flying.py"
RANKS = 3


def fly(folder: Path, how: str, transport: str = "auto") -> list[subprocess.Popen[str]]:
    variables = {"WEFT_FLIGHT_DIR": str(folder)}
    return start_ranks(folder, RANKS, JOB.read_text("utf-8"), how, transport, variables=variables)


def explain(folder: Path) -> dict[str, Any]:
    names = sorted(str(path) for path in folder.glob("flight-*.json"))
    command = [str(WEFT), "explain", "--json", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_survivors_of_a_killed_rank_leave_bounded_private_records_that_name_it(
    tmp_path: Path, transport: str
) -> None:
    finish(fly(tmp_path, "kill", transport))
    files = sorted(tmp_path.glob("flight-*.json"))
    assert [path.name for path in files] == ["flight-test-r0.json", "flight-test-r2.json"]
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_size <= limits.MAX_FLIGHT_BYTES
        (flight,) = load_flight(path).flights
        numbers = [one.number for one in flight.operations]
        assert numbers == list(range(numbers[-1] - 1023, numbers[-1] + 1))
        assert flight.blamed == 1
    found = explain(tmp_path)
    assert (found["absent"], found["culprits"]) == ([1], [1])


def test_a_rank_in_another_operation_is_found(tmp_path: Path) -> None:
    finish(fly(tmp_path, "differs"))
    found = explain(tmp_path)
    assert found["culprits"][0] == 1
    assert "different operations at #1501: rank 1 in all_gather" in found["findings"][0]


def test_a_slow_rank_is_named_and_the_job_goes_on(tmp_path: Path) -> None:
    ends = finish(fly(tmp_path, "slow"))
    for rank, (code, output) in enumerate(ends):
        assert code == 0
        assert "done 3.0" in output
        assert ("for rank 1 (host" in output) == (rank != 1), output
    assert not list(tmp_path.glob("flight-*.json"))


def test_a_signal_makes_a_rank_that_waits_write_its_record(tmp_path: Path) -> None:
    ranks = fly(tmp_path, "signal")
    assert ranks[0].stdout is not None
    assert ranks[0].stdout.readline() == "waiting\n"
    ranks[0].send_signal(signal.SIGUSR2)
    assert [code for code, _ in finish(ranks)] == [0] * RANKS
    record = load_flight(tmp_path / "flight-test-r0.json")
    assert record.reason == "SIGUSR2"
    assert record.flights[0].failure is None


def test_a_record_that_cannot_be_written_does_not_hide_the_failure(tmp_path: Path) -> None:
    variables = {"WEFT_FLIGHT_DIR": str(tmp_path / "missing")}
    ranks = start_ranks(tmp_path, RANKS, JOB.read_text("utf-8"), "kill", "auto", variables=variables)
    for rank, (_, output) in enumerate(finish(ranks)):
        assert rank == 1 or ("PeerLost: rank 1" in output and "cannot be written" in output), output


def test_nothing_is_written_where_that_is_not_wanted(tmp_path: Path) -> None:
    variables = {"WEFT_FLIGHT_DIR": ""}
    ranks = start_ranks(tmp_path, RANKS, JOB.read_text("utf-8"), "kill", "auto", variables=variables)
    for rank, (_, output) in enumerate(finish(ranks)):
        assert rank == 1 or ("PeerLost: rank 1" in output and "flight" not in output), output
    assert not list(tmp_path.glob("flight-*"))


def record(rank: int, waits_for: int | None, number: int = 7, *, over: bool = False) -> FlightRecord:
    flown = RecordedOperation(number, "all_reduce", "ring", 64, "0" * 16, 100.0, 101.0 if over else None)
    wait = None if waits_for is None else PeerWait(waits_for, 5.0)
    return FlightRecord(
        FORMAT, "job", rank, "host", 10, 110.0, "why", (CommunicatorRecord((0, 1, 2, 3), (flown,), wait),)
    )


def test_the_end_of_a_chain_of_waiting_is_the_culprit() -> None:
    late = record(3, None, 6, over=True)
    found = diagnose([record(0, 1), record(1, 2), record(2, 3), late])
    assert found.culprits == (3,)
    assert "rank 2 waited for rank 3, which had finished #6 (all_reduce) 9.0 s before" in found.findings[0]


def test_ranks_that_wait_for_each_other_are_found() -> None:
    found = diagnose([record(0, 1), record(1, 2), record(2, 1)])
    assert found.culprits == (1, 2)
    assert "ranks 1, 2 waited for each other" in found.findings


def test_records_of_two_jobs_or_twice_of_one_rank_are_refused() -> None:
    with pytest.raises(InputError, match="two flight records are of rank 0"):
        diagnose([record(0, 1), record(0, 1)])
    with pytest.raises(InputError, match="flight records of 2 jobs"):
        diagnose([record(0, 1), msgspec.structs.replace(record(1, 0), job="other")])
    with pytest.raises(InputError, match="flight records of 0 jobs"):
        diagnose([])


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_as_a_record(data: bytes) -> None:
    path = Path(os.environ["WEFT_FLIGHT_DIR"], f"any-{os.getpid()}.json")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="not a flight record"):
        load_flight(path)
