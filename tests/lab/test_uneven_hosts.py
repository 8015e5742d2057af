"""DeAR trains on hosts with unequal uplinks, by the halves of FlexReduce, as one process would."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.seats import run_seated

from weft.lab import build
from weft.topology import load_topology
from weft.topology.toml_file import format_toml

JOB = Path(__file__).with_name("jobs") / "uneven_training.py"


@pytest.mark.namespaces
@pytest.mark.parametrize("mode", ["gradients", pytest.param("parameters", marks=pytest.mark.slow)])
def test_dear_trains_with_uneven_portions_as_one_process_would(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    with build(load_topology("hosts:2,1,1@uplink=80Mbit/s/40Mbit/s/20Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")
        said = run_seated(network, JOB, str(file), mode)
    for lines in map(str.splitlines, said):
        assert lines[-1] == "trained"
        (owned,) = (line.split()[1:] for line in lines if line.startswith("owned"))
        assert sum(map(int, owned)) == 12 * 200 + 200 * 200 + 200 * 5 + 405
        assert len(set(owned)) > 1
