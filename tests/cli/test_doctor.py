"""``weft doctor``: what is there, what is not, and a self-test that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Run

from weft.cli import doctor
from weft.cli.accelerator_facts import describe_alike, find_accelerators


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


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


def test_a_program_beside_this_python_goes_before_those_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, elsewhere = tmp_path / "own/mpirun", tmp_path / "elsewhere/mpirun"
    for program in (beside, elsewhere):
        write(program, "#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    monkeypatch.setattr(doctor.sys, "executable", str(beside.with_name("python")))
    (mpi,) = (extra for extra in doctor.EXTRAS if extra.name == "Open MPI")
    assert mpi.find() == str(beside)
    beside.unlink()
    assert mpi.find() == str(elsewhere)


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


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15 2023", "535.104.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs)",
            "550.54.15",
        ),
        ("something else", None),
    ],
)
def test_the_version_of_the_driver_is_that_of_the_module(
    tmp_path: Path, line: str, version: str | None
) -> None:
    write(tmp_path / "proc/driver/nvidia/version", f"{line}\nGCC version:  gcc version 12.2.0 (Debian)\n")
    assert find_accelerators(tmp_path).driver == version


def test_nccl_of_the_system_is_listed_once_with_its_version(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    write(folder / "libnccl.so.2.18.3", "")
    for link in (folder / "libnccl.so.2", folder / "libnccl.so", tmp_path / "usr/lib/libnccl.so.2.18.3"):
        link.symlink_to(folder / "libnccl.so.2.18.3")
    write(tmp_path / "usr/local/lib/libnccl.so.2.30.7", "")
    write(tmp_path / "usr/local/lib/libnccl-net.so.2.30.7", "")
    found = find_accelerators(tmp_path)
    assert found.nccl_libraries == (
        "2.18.3 (/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3)",
        "2.30.7 (/usr/local/lib/libnccl.so.2.30.7)",
    )
    monkeypatch.setattr(doctor, "find_accelerators", lambda: find_accelerators(tmp_path))
    said = weft("doctor").out
    assert "2.18.3 (/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3)" in said
    assert "2.30.7 (/usr/local/lib/libnccl.so.2.30.7)" in said


def test_a_machine_without_gpus_says_so_and_is_sound(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_accelerators", lambda: find_accelerators(tmp_path))
    outcome = weft("doctor")
    assert outcome.code == 0
    assert "the drivers of NVIDIA and AMD list no device" in outcome.out
    assert weft("doctor", "--json").document["accelerators"]["gpus"] == []
