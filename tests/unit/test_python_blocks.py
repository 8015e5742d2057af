"""Python blocks of pages that need no other process are run in order, and print what the page shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("README.md", 1),
        ("docs/nccl.md", 1),
        ("docs/packets.md", 2),
        ("docs/planning.md", 1),
        ("docs/own-algorithm.md", 2),
        ("docs/report.md", 1),
        ("docs/sweeps.md", 1),
    ],
    ids=str,
)
def test_the_first_blocks_of_a_page_run(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCK.findall((ROOT / page).read_text("utf-8"))[:count]):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert {"schedule", "large", "plan", "found", "NcclCluster"} & set(names)


def test_the_examples_of_the_page_on_verification_print_what_it_shows() -> None:
    page = str(ROOT / "docs" / "verification.md")
    failed, tried = doctest.testfile(page, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert (failed, tried) == (0, 3)
