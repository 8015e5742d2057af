"""DeAR computes what one process would: every feature, both modes, 2 and 4 ranks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

CASES = Path(__file__).with_name("dear_cases.py").read_text("utf-8")
NAMES = re.findall(r'^    "([a-z0-9 ,]+)": \{', CASES, re.MULTILINE)
ONE_MODE = {"gradients that are never cleared"}
WAYS = [
    ("gradients", "dear", 2),
    ("gradients", "wfbp", 2),
    ("parameters", "dear", 2),
    ("gradients", "auto", 4),
    ("parameters", "auto", 4),
]


@cache
def results(mode: str, policy: str, ranks: int, folder: Path) -> list[dict[str, tuple[float, str]]]:
    started = start_ranks(folder, ranks, CASES, mode, policy, variables={"OMP_NUM_THREADS": "1"})
    ended = finish(started, timeout=240)
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(output[-3000:] for _, output in ended)
    return [
        {name: (float(error), word) for name, error, word in re.findall(r"<\d+\|(.*)\|(.*)\|(.*)>", output)}
        for _, output in ended
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dear")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("mode", "policy", "ranks"), WAYS)
def test_training_equals_that_of_one_process(
    mode: str, policy: str, ranks: int, name: str, folder: Path
) -> None:
    if mode == "parameters" and name in ONE_MODE:
        assert all(name not in found for found in results(mode, policy, ranks, folder))
        return
    for found in results(mode, policy, ranks, folder):
        error, word = found[name]
        assert word == "ok", error
