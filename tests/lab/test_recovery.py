"""A cable is cut under load: every rank names it, and the job goes on without it, exact throughout."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest

from weft.errors import DisconnectedError
from weft.lab import build
from weft.runtime.launcher.launch import launch
from weft.topology import load_topology
from weft.topology.toml_file import format_toml

JOBS = Path(__file__).with_name("jobs")

pytestmark = pytest.mark.namespaces

JOB = JOBS / "recovery_job.py"


@pytest.mark.parametrize("algorithm", ["planned", "ring"])
def test_a_job_goes_on_without_a_cable_that_is_cut(tmp_path: Path, algorithm: str) -> None:
    file, begun, cut = (tmp_path / name for name in ("topology.toml", "begun", "cut"))
    out, err = io.BytesIO(), io.BytesIO()
    with build(load_topology("ring:4@bw=40Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")

        def cut_when_asked() -> None:
            deadline = time.monotonic() + 60
            while not begun.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            network.cut(network.topology.links_between(1, 2)[0])
            cut.touch()

        cutter = threading.Thread(target=cut_when_asked)
        cutter.start()
        words = [str(file), str(begun), str(cut), algorithm]
        result = launch([sys.executable, str(JOB), *words], 4, out=out, err=err, seats=network.seats())
        cutter.join()
    said = out.getvalue().decode().splitlines()
    assert result.exit_code == 0, err.getvalue().decode()
    for rank in range(4):
        assert said.count(f"[{rank}] lost (1, 2)") == 1
        assert f"[{rank}] schedules 2" in said
        assert any(line.startswith(f"[{rank}] part ") for line in said)


def test_the_only_way_cannot_be_cut() -> None:
    with build(load_topology("switch:2@bw=40Mbit/s")) as network:
        with pytest.raises(DisconnectedError):
            network.cut(0)
        network.set_speed(0, 1_000_000)


LATE = JOBS / "recovery_late.py"


def test_a_rank_that_is_late_is_not_taken_for_a_cut(tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    out, err = io.BytesIO(), io.BytesIO()
    with build(load_topology("ring:4@bw=100Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")
        line = [sys.executable, str(LATE), str(file)]
        result = launch(line, 4, out=out, err=err, seats=network.seats())
    assert result.exit_code == 0, err.getvalue().decode()
