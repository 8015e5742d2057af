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

pytestmark = pytest.mark.namespaces

JOB = """
import sys
from pathlib import Path

import numpy as np
import weft

topology, begun, cut, algorithm = sys.argv[1:]
chosen = {"algorithm": algorithm} if algorithm != "planned" else {}
with weft.init(topology=topology, timeout=60, **chosen) as comm:
    part = comm.split(0)
    ran, step = [], 0
    while step < 8:
        if step == 3 and comm.rank == 0 and not Path(cut).exists():
            Path(begun).touch()
            while not Path(cut).exists():
                pass
        array = np.arange(60_000, dtype=np.int64) + step * comm.rank
        try:
            comm.all_reduce(array)
        except weft.LinkLost as error:
            print("lost", error.ranks)
            step -= comm.repair()
            try:
                part.barrier()
            except weft.RuntimeFailure as error:
                print("part", error)
            continue
        assert (array == comm.size * np.arange(60_000) + step * sum(range(comm.size))).all()
        ran.append(comm.last.digest)
        step += 1
    print("schedules", len(set(ran)))
"""


@pytest.mark.parametrize("algorithm", ["planned", "ring"])
def test_a_job_goes_on_without_a_cable_that_is_cut(tmp_path: Path, algorithm: str) -> None:
    script, file, begun, cut = (tmp_path / name for name in ("job.py", "topology.toml", "begun", "cut"))
    script.write_text(JOB, "utf-8")
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
        result = launch([sys.executable, str(script), *words], 4, out=out, err=err, seats=network.seats())
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


LATE = """
import sys, time
import numpy as np
import weft

with weft.init(topology=sys.argv[1], algorithm="ring", timeout=60) as comm:
    if comm.rank == 2:
        time.sleep(9)
    array = np.full(2_000_000, comm.rank, np.int64)
    comm.all_reduce(array)
    assert (array == 6).all()
"""


def test_a_rank_that_is_late_is_not_taken_for_a_cut(tmp_path: Path) -> None:
    script, file = tmp_path / "job.py", tmp_path / "topology.toml"
    script.write_text(LATE, "utf-8")
    out, err = io.BytesIO(), io.BytesIO()
    with build(load_topology("ring:4@bw=100Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")
        line = [sys.executable, str(script), str(file)]
        result = launch(line, 4, out=out, err=err, seats=network.seats())
    assert result.exit_code == 0, err.getvalue().decode()
