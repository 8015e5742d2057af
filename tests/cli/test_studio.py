"""``weft studio`` as a command: its address, its end, and what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cli.running import Run
from support.studio import start_studio

from weft.files import exists


def workers_of(pid: int) -> list[int]:
    """Processes that the studio has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in found.split()]


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(exists(Path(f"/proc/{pid}/cmdline")) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 0, "Ctrl-C ends it.\n"),
        (signal.SIGTERM, 143, "Ctrl-C ends it.\nweft: stopped by SIGTERM\n"),
    ],
)
def test_a_signal_ends_it_with_all_its_processes(number: int, code: int, said: str) -> None:
    with start_studio("torus:16x16") as studio:
        path = studio.open("torus:16x16")
        connection = studio.send("POST", f"{path}/comparisons", {"size": "1GiB", "time_limit": 60})
        stream = connection.getresponse()
        stream.readline()
        pids = workers_of(studio.process.pid)
        assert len(pids) >= 2
        assert studio.stop(number) == (code, said)
        assert b'"cancelled"' in stream.read().splitlines()[-1]
        connection.close()
        wait_for_end(pids)


def test_workers_end_when_the_studio_is_killed() -> None:
    with start_studio("ring:4") as studio:
        deadline = time.monotonic() + 30
        while len(pids := workers_of(studio.process.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        studio.stop(signal.SIGKILL)
        wait_for_end(pids)


def test_a_worker_that_dies_is_replaced_and_its_comparison_fails() -> None:
    with start_studio("torus:16x16") as studio:
        path = studio.open("torus:16x16")
        body = {"size": "1GiB", "algorithms": ["forest"], "time_limit": 60}
        connection = studio.send("POST", f"{path}/comparisons", body)
        stream = connection.getresponse()
        deadline = time.monotonic() + 60
        while not studio.counts()["running"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for pid in workers_of(studio.process.pid):
            subprocess.run(["kill", "-KILL", str(pid)], check=True, timeout=30)
        assert b"has ended" in stream.read().splitlines()[-1]
        connection.close()
        events = studio.ask("POST", f"{path}/comparisons", {"size": "1KiB", "algorithms": ["ring"]}).events
        assert events[-1]["event"] == "done"
        counts = studio.settle()
        assert (counts["finished"], counts["failed"], counts["cancelled"]) == (1, 1, 0)


def test_a_port_that_is_taken_is_one_line(weft: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = weft("studio", "ring:4", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert outcome.code == 2
    assert "Address already in use; give another --port, or 0 for any" in outcome.err
    assert outcome.err.count("\n") == 1


def test_the_address_is_always_loopback(weft: Run) -> None:
    assert "--host" not in weft("studio", "--help").out
