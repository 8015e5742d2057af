"""DeAR trains on hosts with unequal uplinks, by the halves of FlexReduce, as one process would."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from weft.lab import build
from weft.runtime.launcher.launch import launch
from weft.topology import load_topology
from weft.topology.toml_file import format_toml

JOB = Path(__file__).with_name("jobs") / "uneven_training.py"


@pytest.mark.namespaces
@pytest.mark.parametrize("mode", ["gradients", pytest.param("parameters", marks=pytest.mark.slow)])
def test_dear_trains_with_uneven_portions_as_one_process_would(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    out, err = io.BytesIO(), io.BytesIO()
    with build(load_topology("hosts:2,1,1@uplink=80Mbit/s/40Mbit/s/20Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")
        line = [sys.executable, str(JOB), str(file), mode]
        result = launch(line, 4, out=out, err=err, seats=network.seats())
    said = out.getvalue().decode().splitlines()
    assert result.exit_code == 0, err.getvalue().decode()
    for rank in range(4):
        assert f"[{rank}] trained" in said
        (owned,) = (line.split()[2:] for line in said if line.startswith(f"[{rank}] owned"))
        assert sum(map(int, owned)) == 12 * 200 + 200 * 200 + 200 * 5 + 405
        assert len(set(owned)) > 1
