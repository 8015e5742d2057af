"""tools/gpu-check: it says that there is no GPU, runs all parts on CPUs, and reports parts that fail."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

TOOL = Path(__file__).parents[2] / "tools" / "gpu-check"


def check(*words: str, timeout: float = 250) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TOOL), *words],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", TOOL.with_name("gpu_check.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_parts(folder: Path, *parts: str) -> list[dict[str, Any]]:
    """Details of each part; all must pass."""
    file = folder / "report.json"
    ended = check(
        "--cpu", "--seconds", "240", "--part-seconds", "120", "--json", str(file), "--parts", *parts
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(parts)} of {len(parts)} parts passed" in ended.stdout
    report = json.loads(file.read_text("utf-8"))
    assert report["device"] == "cpu"
    assert report["machine"]["torch"] == torch.__version__
    assert [part["part"] for part in report["parts"]] == list(parts)
    return [part["details"] for part in report["parts"]]


def test_two_groups_and_the_engine_pass_on_cpus(tmp_path: Path) -> None:
    _, engine = run_parts(tmp_path, "two-groups", "engine")
    assert engine["algorithms"] == ["ring", "direct", "halving_doubling"]


@pytest.mark.slow
def test_the_group_the_hook_and_dear_pass_on_cpus(tmp_path: Path) -> None:
    group, hook, dear = run_parts(tmp_path, "group", "hook", "dear")
    assert group["group"] == "WeftProcessGroup"
    assert hook["largest_difference"] <= 1e-6
    assert all(dear[way]["largest_difference"] <= 1e-6 for way in ("gradients", "parameters", "auto"))


def test_all_parts_are_run_unless_some_are_named(tool: ModuleType) -> None:
    assert tool.parse([]).parts == list(tool.PARTS) == ["group", "two-groups", "engine", "hook", "dear"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_gpus_is_told_so(tmp_path: Path) -> None:
    ended = check("--json", str(tmp_path / "report.json"))
    assert ended.returncode == 2
    assert "finds no GPU here, so nothing was checked" in ended.stderr
    assert "--cpu" in ended.stderr
    assert not (tmp_path / "report.json").exists()


STUB = """
import json, os, sys, time
file, rank = sys.argv[-1], int(os.environ["RANK"])
print("output of", rank, flush=True)
{body}
"""


def run_stub(tool: ModuleType, folder: Path, body: str, seconds: float) -> dict[str, object]:
    script = folder / "stub.py"
    script.write_text(STUB.format(body=body), "utf-8")
    found: dict[str, object] = tool.run_part([sys.executable, str(script)], "stub", 2, seconds)
    return found


@pytest.mark.parametrize(
    ("body", "outcome", "errors"),
    [
        ('open(file, "w").write(json.dumps({"details": {"rank": rank}}))', "passed", None),
        ("time.sleep(600)", "timed out", {0: "still at work", 1: "still at work"}),
        ("os.kill(os.getpid(), 9) if rank else time.sleep(600)", "failed", {0: "still", 1: "SIGKILL"}),
        ('open(file, "w").write(json.dumps({"error": "E: no"})); sys.exit(1)', "failed", {0: "E", 1: "E"}),
    ],
)
def test_a_part_ends_in_its_time_and_says_how(
    body: str, outcome: str, errors: dict[int, str] | None, tool: ModuleType, tmp_path: Path
) -> None:
    begun = time.monotonic()
    found = run_stub(tool, tmp_path, body, seconds=8)
    assert time.monotonic() - begun < 100  # what it ends would sleep for 600
    assert found["outcome"] == outcome, found
    if errors is None:
        assert found["details"] == {"rank": 0}
        return
    assert {rank: word in found["errors"][rank] for rank, word in errors.items()} == {0: True, 1: True}
    assert "output of 0" in found["output"][0]


def test_a_part_without_time_is_not_run(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    assert tool.main(["--cpu", "--seconds", "1", "--parts", "group", "hook", "--json", str(file)]) == 1
    assert "0 of 2 parts passed" in capsys.readouterr().out
    assert [part["outcome"] for part in json.loads(file.read_text("utf-8"))["parts"]] == ["not run"] * 2
