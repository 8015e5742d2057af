"""Without `weft._runtime`, as on systems other than Linux, everything works but running collectives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = "import sys; sys.modules['weft._runtime'] = None\n"
COMMAND = BLOCKED + "from weft.cli import main; sys.exit(main(sys.argv[1:]))"
MISSING = "running collectives needs the extension weft._runtime, which cannot be loaded"
JOB = {
    "WEFT_RANK": "0",
    "WEFT_SIZE": "1",
    "WEFT_ADDRESS": "127.0.0.1",
    "WEFT_PORT": "1",
    "WEFT_JOB": "test",
    "WEFT_SECRET": "00" * 32,
}
REMEDY = "build Weft there, from its clone, with `make build` or `pip install .`"


def run(folder: Path, code: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", **variables},
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("compare torus:4x4 --size 1MiB --algorithm multitree --algorithm ring", "multitree"),
        ("plan ring:4 --time-limit 5 -o plan.weft", "plan.weft"),
        ("verify torus:4x4 --algorithm bucket", "semantics"),
        ("simulate torus:4x4 --algorithm bucket --size 1MiB", "bucket"),
        ("train torus:2x2 --model resnet50 --device v100", "iteration"),
        ("packets torus:2x2 --algorithm multitree --size 16KiB", "packets"),
        ("topology torus:4x4", "ranks"),
        ("export ring:4 --algorithm ring --format text -o -", "all_reduce"),
        ("run --help", "Start the ranks of a job"),
    ],
)
def test_a_command_that_runs_no_collectives_works(tmp_path: Path, words: str, shown: str) -> None:
    done = run(tmp_path, COMMAND, *words.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


def test_doctor_lists_the_runtime_as_something_to_have(tmp_path: Path) -> None:
    done = run(tmp_path, COMMAND, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (runtime,) = (extra for extra in found["extras"] if extra["name"] == "runtime")
    assert (runtime["found"], runtime["purpose"]) == (None, "running collectives")
    assert found["ok"]


@pytest.mark.parametrize(
    "words", ["run -n 2 script.py", "bench -R 2 -b 1K -e 1K", "soak --seconds 1", "probe -o cluster.toml"]
)
def test_a_command_that_runs_collectives_says_in_one_line_what_is_missing(tmp_path: Path, words: str) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('started')\n", "utf-8")
    done = run(tmp_path, COMMAND, *words.split(), **(JOB if words.startswith("probe") else {}))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"weft: error: {MISSING}" in done.stderr
    assert REMEDY in done.stderr


def test_init_says_what_is_missing_before_it_waits_for_anybody(tmp_path: Path) -> None:
    call = (
        "import weft\n"
        "assert weft.Communicator\n"
        "try:\n"
        "    weft.init()\n"
        "except weft.InputError as error:\n"
        "    print(error)"
    )
    done = run(tmp_path, BLOCKED + call)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(MISSING)
    assert REMEDY in done.stdout


def test_a_torch_group_says_what_is_missing(tmp_path: Path) -> None:
    call = (
        "import torch.distributed as dist, weft, weft.torch\n"
        "try:\n"
        "    dist.init_process_group('weft', rank=0, world_size=1, store=dist.HashStore())\n"
        "except weft.InputError as error:\n"
        "    print(error)"
    )
    done = run(tmp_path, BLOCKED + call)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(MISSING)
