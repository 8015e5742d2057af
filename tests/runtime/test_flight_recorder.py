"""The flight recorder: every surviving rank says what it was doing, and the records together say why."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import await_condition
from support.faults.strangers import find_listening_ports
from support.jobs import WEFT, end, finish, start_ranks

from weft import limits
from weft.errors import FormatError, InputError
from weft.runtime import flight_recorder
from weft.runtime.diagnosis import diagnose, load_flight
from weft.runtime.flight_recorder import (
    FORMAT,
    CommunicatorRecord,
    FlightRecord,
    PeerWait,
    RecordedOperation,
)

JOBS = Path(__file__).with_name("jobs")

JOB = JOBS / "flying.py"
RANKS = 3


def fly(
    folder: Path, how: str, transport: str = "auto", *, count: int = 20, flights: str | None = None
) -> list[subprocess.Popen[str]]:
    variables = {"WEFT_FLIGHT_DIR": str(folder) if flights is None else flights}
    return start_ranks(folder, RANKS, JOB, how, transport, str(count), variables=variables)


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
    finish(fly(tmp_path, "kill", transport, count=1500))  # more than the recorder keeps
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


@pytest.mark.parametrize(
    ("how", "fate"),
    [
        ("kill", "its process was killed or has crashed"),
        ("freeze", "it is frozen, or its machine or network is down"),
        ("close", "it has closed its communicator"),
    ],
)
def test_the_records_of_the_others_tell_what_became_of_a_rank(tmp_path: Path, how: str, fate: str) -> None:
    ranks = fly(tmp_path, how)
    finish([ranks[0], ranks[2]])
    end(ranks[1])
    findings = explain(tmp_path)["findings"]
    assert any(text.endswith(fate) for text in findings), findings


def test_a_rank_in_another_operation_is_found(tmp_path: Path) -> None:
    finish(fly(tmp_path, "differs"))
    found = explain(tmp_path)
    assert found["culprits"][0] == 1
    assert "different operations at #21: rank 1 in all_gather" in found["findings"][0]


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
    ranks = fly(tmp_path, "kill", flights=str(tmp_path / "missing"))
    for rank, (_, output) in enumerate(finish(ranks)):
        assert rank == 1 or ("PeerLost: rank 1" in output and "cannot be written" in output), output


def test_nothing_is_written_where_that_is_not_wanted(tmp_path: Path) -> None:
    ranks = fly(tmp_path, "kill", flights="")
    for rank, (_, output) in enumerate(finish(ranks)):
        assert rank == 1 or ("PeerLost: rank 1" in output and "flight" not in output), output
    assert not list(tmp_path.glob("flight-*"))


SHRINKING = """
import os, signal, sys, threading, time
import numpy as np
import weft

def reduce_until(victim, comm):
    for _ in range(5):
        comm.all_reduce(array)
    if me == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            comm.all_reduce(array)
    except weft.PeerLost as error:
        print(error, flush=True)
    return comm.shrink()

comm = weft.init(timeout=20)
me, array = comm.rank, np.ones(10, np.float32)
comm = reduce_until(1, comm)
if sys.argv[1] == "again":
    comm = reduce_until(2, comm)
else:
    comm.barrier()
    threading.Timer(1.5, comm.flight).start()
    if me == 2:
        time.sleep(6)
comm.all_reduce(array)
"""


@pytest.mark.parametrize("how", ["again", "hangs"])
def test_after_a_loss_that_was_survived_the_trouble_since_is_explained(tmp_path: Path, how: str) -> None:
    ranks = start_ranks(tmp_path, 4, SHRINKING, how, variables={"WEFT_FLIGHT_DIR": str(tmp_path)})
    ends = finish(ranks)
    found = explain(tmp_path)
    assert (found["ranks"], found["culprits"]) == ([0, 2, 3], [2])
    assert len(found["earlier"]) == 1
    assert found["earlier"][0].startswith("communicator of ranks 0-3: rank 1 (host")
    states = {one["rank"]: one for one in found["states"]}
    if how == "again":
        assert (found["absent"], sorted(states)) == ([2], [0, 3])
        assert f"during all_reduce #{states[0]['number']} (" in ends[0][1].splitlines()[-1]
    else:
        assert any(one["waits_for"] == 2 for one in states.values())


def test_a_log_line_after_a_shrink_names_ranks_as_the_job_does(tmp_path: Path) -> None:
    source = SHRINKING.replace("time.sleep(6)", "time.sleep(9)")
    ends = finish(start_ranks(tmp_path, 4, source, "hangs", variables={"WEFT_FLIGHT_DIR": ""}))
    assert re.search(r"waits [5-9]\.\d s for rank 1 \(rank 2 of the job, host", ends[3][1])
    assert "rank 2 (rank 3 of the job): all_reduce #" in ends[3][1]
    assert "rank 0: all_reduce #" in ends[0][1]


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


def test_no_record_and_two_of_one_rank_are_refused() -> None:
    with pytest.raises(InputError, match="two flight records are of rank 0"):
        diagnose([record(0, 1), record(0, 1)])
    with pytest.raises(InputError, match="there is no flight record"):
        diagnose([])


def test_the_latest_of_several_jobs_is_explained_and_the_others_are_named() -> None:
    old = [msgspec.structs.replace(record(rank, 1), job="old", written_s=50.0) for rank in range(4)]
    found = diagnose([*old, record(0, 1), record(1, None, 6, over=True)])
    assert (found.job, found.other_jobs, found.culprits) == ("job", ("old",), (1,))


def test_a_folder_stands_for_the_records_in_it(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"flight-job-r{rank}.json").write_bytes(msgspec.json.encode(record(rank, 1 - rank)))
    command = [str(WEFT), "explain", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "ranks 0, 1 waited for each other" in done.stdout
    (tmp_path / "empty").mkdir()
    command = [str(WEFT), "explain", str(tmp_path / "empty")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no flight-*.json in this folder" in done.stderr


def test_explain_alone_says_which_files_it_wants_and_where_they_are() -> None:
    done = subprocess.run([str(WEFT), "explain"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert all(text in done.stderr for text in ("flight-*.json", "WEFT_FLIGHT_DIR", "where they run"))


def test_every_attempt_of_a_job_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEFT_RANK", "WEFT_SIZE", "WEFT_JOB"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "bd4aa948-2f50-4c59-bc18-9f2a32912345")
    names = []
    for attempt in range(2):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        name, rank = flight_recorder._identity()
        assert rank == 1
        assert len(name) <= 40
        assert name.startswith("torchrun-")
        assert name.endswith(f"-{attempt}")
        names.append(name)
    assert names[0] != names[1]


def lost(rank: int, pids: tuple[int, ...], written_s: float, **more: Any) -> FlightRecord:
    """A record of a rank that has lost rank 2, of a communicator with these processes."""
    flown = RecordedOperation(7, "all_reduce", "ring", 64, "0" * 16, written_s - 1)
    wait = PeerWait(2, 1.0, more.pop("silent_s", 0.0))
    settings = {"failure": "lost", "blamed": 2, "failure_kind": "PeerLost", "pids": pids, **more}
    flight = CommunicatorRecord((0, 1, 2), (flown,), wait, **settings)
    return FlightRecord(FORMAT, "job", rank, "host", pids[rank], written_s, "why", (flight,))


def test_a_record_of_an_earlier_start_is_left_out() -> None:
    now, before = (10, 11, 12), (20, 21, 22)
    found = diagnose([lost(0, now, 200.0), lost(1, now, 200.0), lost(2, before, 100.0)])
    assert (found.absent, found.culprits) == ((2,), (2,))
    assert len(found.left_out) == 1
    assert "its record is of pid 22, and newer records know rank 2 as pid 12" in found.left_out[0]
    found = diagnose([lost(0, (30,), 200.0), lost(1, before, 100.0)])
    assert "names other processes than newer ones do" in found.left_out[0]


@pytest.mark.parametrize(
    ("more", "fate"),
    [
        ({}, "its process was killed or has crashed"),
        ({"silent_s": 5.0}, "silent for 5.0 s, it is frozen, or its machine or network is down"),
        ({"reason": "it has closed its communicator"}, "it has closed its communicator"),
        ({"failure": None, "blamed": None, "failure_kind": None}, "it was alive, but slow"),
        ({"failure_kind": "TimedOut", "blamed": None}, "it was alive, but slow"),
        (
            {"failure": None, "blamed": None, "failure_kind": None, "silent_s": 2.0},
            "silent for 2.0 s, it is frozen, or overloaded",
        ),
    ],
)
def test_what_became_of_a_rank_without_a_record_is_told(more: dict[str, Any], fate: str) -> None:
    pids = (10, 11, 12)
    found = diagnose([lost(0, pids, 200.0, **more), lost(1, pids, 200.0, **more)])
    assert f"ranks 0, 1 waited for rank 2, of which there is no record: {fate}" in found.findings[0]


def test_operations_of_one_name_and_size_are_told_apart(tmp_path: Path) -> None:
    source = """
import numpy as np, weft
comm = weft.init(timeout=20)
comm.all_reduce(np.ones(64, np.int32 if comm.rank == 1 else np.float32))
"""
    finish(start_ranks(tmp_path, 3, source, variables={"WEFT_FLIGHT_DIR": str(tmp_path)}))
    finding = explain(tmp_path)["findings"][0]
    assert (
        "rank 1 in all_reduce of 256 bytes (int32); ranks 0, 2 in all_reduce of 256 bytes (float32)"
        in finding
    )


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_as_a_record(data: bytes) -> None:
    path = Path(os.environ["WEFT_FLIGHT_DIR"], f"any-{os.getpid()}.json")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="not a flight record"):
        load_flight(path)


STARTING = JOBS / "flight_recorder_starting.py"


def wait_for_handler(pid: int, sign: signal.Signals) -> None:
    """Wait until a process has a handler for a signal, which would end it before."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text("utf-8"), re.MULTILINE)
        assert caught is not None
        if int(caught[1], 16) >> (sign - 1) & 1:
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} has no handler for {sign.name} after 60 s")


def test_a_rank_that_waits_for_others_to_join_writes_its_record_on_a_signal(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, STARTING, variables={"WEFT_FLIGHT_DIR": str(tmp_path)}, own=True)
    assert ranks[0].stdout is not None
    assert ranks[0].stdout.readline() == "here\n"
    wait_for_handler(ranks[0].pid, signal.SIGUSR2)
    await_condition(lambda: bool(find_listening_ports(ranks[0].pid)), "rank 0 waits for rank 1")
    ranks[0].send_signal(signal.SIGUSR2)
    ends = finish(ranks)
    assert [code for code, _ in ends] == [0, 0], ends
    written = load_flight(tmp_path / "flight-test-r0.json")
    assert (written.reason, written.flights) == ("SIGUSR2", ())
    assert written.starting is not None
    assert "joining the job" in written.starting
    assert "rank 0 had not come out of weft.init: joining" in diagnose([written]).findings[0]


FLOODED = JOBS / "flight_recorder_flooded.py"


def test_signals_that_come_while_a_record_is_written_neither_nest_nor_block(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, FLOODED, variables={"WEFT_FLIGHT_DIR": str(tmp_path)}, own=True)
    for code, output in finish(ranks):
        assert code == 0, output[-2000:]
        assert output.endswith("done\n")


OWN_HANDLER = JOBS / "flight_recorder_own_handler.py"


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, OWN_HANDLER, variables={"WEFT_FLIGHT_DIR": str(tmp_path)}, own=True)
    assert finish(ranks) == [(0, "mine\n")] * 2
    assert not list(tmp_path.glob("flight-*"))
