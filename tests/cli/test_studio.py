"""``weft studio`` as a command: its address, its end, and what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import Run
from support.browser import start_browser
from support.studio import Studio, start_studio

from weft.files import exists


def workers_of(pid: int) -> list[int]:
    """Processes that the studio has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in found.split()]


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
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
        deadline = time.monotonic() + 60
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


RECORDER = """#!/bin/sh
cat /proc/$$/cmdline > {folder}/arguments
cp -p "${{1#file://}}" {folder}/page.html
stat -c %a "${{1#file://}}" "$(dirname "${{1#file://}}")" > {folder}/modes
echo done > {folder}/done
"""


@contextmanager
def studio_in_a_browser(folder: Path) -> Iterator[Studio]:
    """A studio that opens a browser: a program that keeps its own command line and the page that it gets."""
    program = folder / "browser"
    program.write_text(RECORDER.format(folder=folder))
    program.chmod(0o700)
    private = folder / "tmp"
    private.mkdir()
    environment = {"BROWSER": str(program), "TMPDIR": str(private)}
    with start_studio("ring:4", "--browser", environment=environment) as studio:
        deadline = time.monotonic() + 60
        while not exists(folder / "done"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield studio


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_browser_is_opened_by_a_private_file_that_is_gone_in_the_end(number: int, tmp_path: Path) -> None:
    with studio_in_a_browser(tmp_path) as studio:
        arguments = (tmp_path / "arguments").read_bytes().split(b"\0")
        assert any(one.startswith(b"file:///") for one in arguments)
        assert studio.token.encode() not in b" ".join(arguments)
        assert (tmp_path / "modes").read_text().split() == ["600", "700"]
        assert studio.url in (tmp_path / "page.html").read_text("utf-8")
        assert list((tmp_path / "tmp").iterdir())
        studio.stop(number)
        assert not list((tmp_path / "tmp").iterdir())


def test_the_page_that_opens_the_browser_goes_on_to_the_studio(tmp_path: Path) -> None:
    with (
        studio_in_a_browser(tmp_path) as studio,
        start_browser() as browser,
        browser.tab("about:blank") as tab,
    ):
        tab.follow(tmp_path / "page.html", f"http://127.0.0.1:{studio.port}/")
        tab.wait_until("document.querySelector('.status')?.textContent.includes('is the fastest of')")
        assert tab.run("location.href") == f"http://127.0.0.1:{studio.port}/"
        assert tab.complaints == []
