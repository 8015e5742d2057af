"""Without an optional package, what needs it says so in one line, and everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = ("torch", "mpi4py", "networkx", "starlette", "uvicorn", "distributed", "ray")
HIDING = """
import importlib.machinery, os, sys

class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["HIDDEN_PACKAGES"].split(","):
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hiding
"""
"""Makes Python find packages as if some were not installed, in processes that a command starts as well."""

MODEL = "import torch\n\ndef make_model():\n    return torch.nn.Linear(4, 4), torch.zeros(2, 4)\n"
BRIDGE = "from weft.topology.networkx_bridge import to_networkx"


def run(folder: Path, *words: str, hidden: tuple[str, ...] = OPTIONAL) -> subprocess.CompletedProcess[str]:
    """Run Python with some words where packages are hidden."""
    (folder / "hiding").mkdir(exist_ok=True)
    (folder / "hiding" / "sitecustomize.py").write_text(HIDING, "utf-8")
    (folder / "model.py").write_text(MODEL, "utf-8")
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env={
            **os.environ,
            "COLUMNS": "120",
            "PYTHONPATH": str(folder / "hiding"),
            "HIDDEN_PACKAGES": ",".join(hidden),
        },
    )


@pytest.mark.parametrize(
    ("words", "package"),
    [
        ("train ring:2 --model model.py:make_model", "torch"),
        ("train ring:2 --model resnet50 --sweep policy=ddp,dear --executor mpi", "mpi4py"),
        ("compare ring:3 --size 1KiB --executor dask:tcp://127.0.0.1:9", "distributed"),
        ("plan ring:3 --size 1KiB --executor ray", "ray"),
        ("bench -n 2 -b 1KiB -e 1KiB --against gloo", "torch"),
        ("bench -n 2 -b 1KiB -e 1KiB --against mpi", "mpi4py"),
        ("bench -n 2 -b 1KiB -e 1KiB -d bfloat16", "torch"),
        ("studio ring:4 --no-browser", "starlette uvicorn"),
    ],
)
def test_a_command_names_the_package_that_is_missing(tmp_path: Path, words: str, package: str) -> None:
    done = run(tmp_path, "-m", "weft", *words.split())
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("weft: error: ")
    assert done.stderr.endswith(f"pip install {package}\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "package"),
    [
        ("weft.torch", "torch"),
        ("weft.init(engine='torch')", "torch"),
        ("weft.init(engine='mpi')", "mpi4py"),
        (f"{BRIDGE}; to_networkx(weft.load_topology('ring:3'))", "networkx"),
    ],
)
def test_a_call_raises_an_input_error_that_is_an_import_error(
    tmp_path: Path, code: str, package: str
) -> None:
    lines = ("import weft", "try:", f"    {code}", "except ImportError as error:")
    done = run(tmp_path, "-c", "\n".join((*lines, "    print(isinstance(error, weft.InputError), error)")))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True ")
    assert done.stdout.endswith(f"which is not installed; pip install {package}\n")


def test_a_package_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / "hiding" / "torch").mkdir(parents=True)
    (tmp_path / "hiding" / "torch" / "__init__.py").write_text("raise ImportError('libtorch.so: gone')")
    done = run(tmp_path, "-m", "weft", "train", "ring:2", "--model", "model.py:make_model", hidden=())
    assert done.returncode == 2
    assert "weft.torch needs torch, which cannot be imported (libtorch.so: gone)" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "compare ring:3 --size 1KiB --algorithm ring",
        "plan ring:3 --size 1KiB --algorithm ring",
        "topology ring:3",
        "export ring:3 --algorithm ring --format text -o -",
        "verify ring:3 --algorithm ring",
        "simulate ring:3 --algorithm ring --size 1KiB",
        "packets torus:2x2 --algorithm ring --size 1KiB",
        "train ring:3 --model multitree-ncf --algorithm ring",
        "reproduce",
        "bench -n 2 -b 1KiB -e 1KiB",
        "doctor",
    ],
)
def test_a_command_that_needs_none_of_them_works(tmp_path: Path, words: str) -> None:
    done = run(tmp_path, "-m", "weft", *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
