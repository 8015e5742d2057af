"""The wheel and the sdist of this clone, and environments that have one of them and nothing of the clone."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest
from support.installed import BUILD_S, COMPILERS, ROOT, Install, Installed, clean_environment, run


@pytest.fixture(scope="session")
def dist() -> Path:
    """An empty folder for what is built; it stays, so that it can be looked at."""
    folder = ROOT / "build" / "package"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    """The source distribution, made by the build backend itself."""
    make = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run([sys.executable, "-c", make, str(dist)], timeout=BUILD_S, cwd=ROOT)
    (found,) = dist.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel, compiled from the clone as a user would."""
    pip_wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-cache-dir",
        "-w",
        str(dist),
        ".",
    ]
    run(pip_wheel, timeout=BUILD_S, cwd=ROOT)
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Make a new environment that has what pip makes of some words."""

    def make(name: str, *words: str, compiler: bool) -> Installed:
        folder, work = tmp_path_factory.mktemp(name), tmp_path_factory.mktemp(f"{name}-work")
        venv.create(folder, with_pip=True)
        own = str(folder / "bin")
        path = f"{own}{os.pathsep}{os.environ['PATH']}" if compiler else own
        found = [program for program in COMPILERS if shutil.which(program, path=path)]
        assert bool(found) == compiler, found
        installed = Installed(folder, work, path)
        constraints = str(ROOT / "constraints.txt")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-c", constraints, *words]
        run(pip, timeout=BUILD_S, cwd=work, env=clean_environment(path))
        return installed

    return make
