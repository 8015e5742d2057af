"""``weft doctor``: what is there, what is not, and a self-test that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Run

from weft.cli import doctor
from weft.cli.accelerator_facts import describe_alike, find_accelerators


def test_a_sound_installation_passes(weft: Run) -> None:
    outcome = weft("doctor")
    assert outcome.code == 0
    assert outcome.err == ""
    assert "as the closed form says" in outcome.out
    for extra in doctor.EXTRAS:
        assert extra.name in outcome.out


def test_json_has_versions_machine_extras_and_checks(weft: Run) -> None:
    found = weft("doctor", "--json").document
    assert found["ok"] is True
    assert found["versions"]["numpy"]
    assert found["machine"]["cpus"] >= 1
    assert [check["name"] for check in found["checks"]] == list(doctor.CHECKS)
    assert {extra["name"] for extra in found["extras"]} >= {"torch", "mpi4py", "networkx", "iproute2"}


def test_a_check_that_fails_is_exit_code_one_and_hides_no_other(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> tuple[bool, str]:
        msg = "out of luck"
        raise RuntimeError(msg)

    monkeypatch.setitem(doctor.CHECKS, "directory", explode)
    outcome = weft("doctor", "--json")
    assert outcome.code == 1
    assert outcome.document["ok"] is False
    verdicts = {check["name"]: check for check in outcome.document["checks"]}
    assert verdicts["directory"]["detail"] == "RuntimeError: out of luck"
    assert verdicts["self-test"]["ok"] is True
    assert "FAILED" in weft("doctor").out


def test_a_missing_tool_says_what_it_is_for_and_how_to_get_it(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _name, **_where: None)
    outcome = weft("doctor")
    assert outcome.code == 0
    assert "emulated clusters: apt install iproute2" in outcome.out


def test_a_program_beside_this_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    (found,) = (extra.find() for extra in doctor.EXTRAS if extra.name == "Open MPI")
    assert found == str(program)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_gpus_and_rdma_devices_are_found_in_the_files_of_the_kernel(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0"
        write(folder / "information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\n")
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\n")
    write(nodes / "1/properties", "simd_count 1216\nvendor_id 4098\ngfx_target_version 90402\n")
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    for name, text in {
        "state": "4: ACTIVE\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "link_layer": "InfiniBand\n",
    }.items():
        write(port / name, text)
    found = find_accelerators(tmp_path)
    assert describe_alike(found.gpus) == "2 x NVIDIA H100 80GB HBM3, AMD gfx942"
    assert found.rdma == ("mlx5_0 port 1: InfiniBand, 400 Gb/sec (4X NDR), ACTIVE",)


def test_a_machine_without_gpus_says_so_and_is_sound(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_accelerators", lambda: find_accelerators(tmp_path))
    outcome = weft("doctor")
    assert outcome.code == 0
    assert "the drivers of NVIDIA and AMD list no device" in outcome.out
    assert weft("doctor", "--json").document["accelerators"]["gpus"] == []
