"""Every Python block of the pages on training is run by two ranks; of a diff, what it becomes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.groups import start_group
from support.jobs import finish
from support.ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": 1,
    "docs/dear.md": 4,
    "docs/migration.md": 4,
    "docs/pytorch.md": 3,
}  # with so many blocks at least
JOB = Path(__file__).with_name("jobs") / "pages_blocks.py"
BLOCK = re.compile(r"```(python|diff)\n(.*?)```\n", re.DOTALL)


def new_side(diff: str) -> str:
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] != "-") + "\n"


def blocks(page: str) -> list[str]:
    """Return the blocks for PyTorch, for two ranks; surviving a loss has a test of its own."""
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    texts = [text if kind == "python" else new_side(text) for kind, text in found]
    chosen = [text for text in texts if "torch" in text and "shrink()" not in text]
    return [text.replace("torus:2x4", "ring:2") for text in chosen]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert len(found) >= PAGES[page]
    given = json.dumps([(text, free_port()) for text in found])
    ended = finish(start_group(tmp_path, 2, JOB, given, str(tmp_path)), 100)
    assert [code for code, _ in ended] == [0, 0], "\n".join(output[-3000:] for _, output in ended)
    for _, output in ended:
        assert re.findall(r"^done (\d+)$", output, re.MULTILINE) == [str(n) for n in range(len(found))]
