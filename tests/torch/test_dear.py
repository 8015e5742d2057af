"""DeAR computes what one process would: every feature, both modes, 2 and 4 ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

CASES = Path(__file__).with_name("dear_cases.py").read_text("utf-8")
NAMES = re.findall(r'^    "([a-z0-9 ,]+)": \{', CASES, re.MULTILINE)
GRADIENTS_ONLY = {"gradients that are never cleared"}
ON_FOUR = (
    "sgd",
    "adamw in two groups",
    "clipping",
    "accumulation",
    "tied weights",
    "unused, frozen and listed parameters",
    "bfloat16 autocast",
)
WAYS = [
    ("gradients", "dear", 2, NAMES),
    ("parameters", "dear", 2, NAMES),
    ("gradients", "wfbp", 2, ON_FOUR),
    ("gradients", "auto", 4, ON_FOUR[:3]),
    ("parameters", "auto", 4, ON_FOUR),
    pytest.param("gradients", "wfbp", 2, NAMES, marks=pytest.mark.slow),
    pytest.param("gradients", "auto", 4, ON_FOUR, marks=pytest.mark.slow),
    pytest.param("gradients", "dear", 4, ON_FOUR, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("mode", "policy", "ranks", "names"), WAYS)
def test_training_equals_that_of_one_process(
    mode: str, policy: str, ranks: int, names: Sequence[str], tmp_path: Path
) -> None:
    # One job for all cases: starting it takes longer than most of them.
    started = start_ranks(tmp_path, ranks, CASES, mode, policy, *names, variables={"OMP_NUM_THREADS": "1"})
    ended = finish(started)
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(output[-3000:] for _, output in ended)
    for _, output in ended:
        found = dict(re.findall(r"<\d+\|(.*)\|.*\|(.*)>", output))
        assert found == dict.fromkeys(expected(mode, names), "ok"), output


def expected(mode: str, names: Sequence[str]) -> list[str]:
    """Cases that a mode has."""
    return [name for name in names if mode == "gradients" or name not in GRADIENTS_ONLY]
