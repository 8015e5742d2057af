"""Every block of Python or of a shell in README and docs is run by a test, which this file names.

A new block, or a new page with one, fails here until it is listed. Blocks that nothing here can run are
listed in ``NOT_RUN``, with the reason and with what is checked of them instead.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(console|sh|bash|python|diff)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)

CONSOLE = "tests/cli/test_docs.py"  # of all pages, and what they print is compared
TORCH = "tests/torch/test_pages.py"

RUN_BY: dict[str, dict[str, list[tuple[int, str]]]] = {
    "README.md": {
        "sh": [(1, "tests/unit/test_page_blocks.py")],
        "console": [(1, CONSOLE)],
        "python": [(1, "tests/unit/test_python_blocks.py"), (1, "tests/runtime/test_pages.py"), (1, TORCH)],
    },
    "docs/bounds.md": {"python": [(10, "tests/bounds/test_collective_bound.py")]},
    "docs/cli.md": {"console": [(23, CONSOLE)]},
    "docs/concepts.md": {"console": [(6, CONSOLE)]},
    "docs/dear.md": {"python": [(10, TORCH)]},
    "docs/engines.md": {"python": [(2, "tests/runtime/test_engines.py")]},
    "docs/failures.md": {"python": [(1, "tests/runtime/test_pages.py")]},
    "docs/flexreduce.md": {"python": [(3, "tests/algorithms/test_flexreduce.py")]},
    "docs/forest.md": {"console": [(1, CONSOLE)], "python": [(1, "tests/algorithms/test_forest.py")]},
    "docs/hdrm.md": {"python": [(4, "tests/algorithms/test_hdrm.py")]},
    "docs/libraries.md": {"console": [(1, CONSOLE)]},
    "docs/migration.md": {"diff": [(4, TORCH)]},
    "docs/multitree.md": {"python": [(3, "tests/algorithms/test_multitree.py")]},
    "docs/nccl.md": {"console": [(1, CONSOLE)], "python": [(1, "tests/unit/test_python_blocks.py")]},
    "docs/own-algorithm.md": {
        "console": [(4, CONSOLE)],
        "python": [(2, "tests/unit/test_python_blocks.py")],
    },
    "docs/packets.md": {"python": [(2, "tests/unit/test_python_blocks.py")]},
    "docs/papers/ace.md": {"console": [(3, CONSOLE)]},
    "docs/papers/dear.md": {"console": [(1, CONSOLE)]},
    "docs/papers/eflops.md": {"console": [(3, CONSOLE)]},
    "docs/papers/flexreduce.md": {"console": [(3, CONSOLE)]},
    "docs/papers/multitree.md": {"console": [(3, CONSOLE)]},
    "docs/planning.md": {"python": [(1, "tests/unit/test_python_blocks.py")]},
    "docs/policies.md": {"python": [(2, "tests/training/test_pages.py")]},
    "docs/pytorch.md": {"python": [(4, TORCH), (1, "tests/torch/test_surviving.py")]},
    "docs/report.md": {"python": [(1, "tests/unit/test_python_blocks.py")]},
    "docs/runtime.md": {"python": [(3, "tests/runtime/test_pages.py")]},
    "docs/schedule.md": {"python": [(4, "tests/schedule/test_docs.py")]},
    "docs/sweeps.md": {"console": [(1, CONSOLE)], "python": [(1, "tests/unit/test_python_blocks.py")]},
    "docs/topology.md": {"console": [(1, CONSOLE)], "python": [(1, "tests/topology/test_load.py")]},
    "docs/training.md": {"python": [(2, "tests/training/test_pages.py")]},
    "docs/tutorial.md": {"console": [(10, CONSOLE)], "python": [(2, "tests/cli/test_tutorial.py")]},
    "docs/verification.md": {"python": [(1, "tests/unit/test_python_blocks.py")]},
    "docs/workflow.md": {"python": [(1, "tests/simulation/test_workflow.py")]},
    "docs/workloads.md": {"python": [(1, "tests/training/test_workloads.py")]},
}

# Page, first line of the block, why it is not run. Checked of each: its syntax, and its imports of Weft.
NOT_RUN = [
    ("docs/engines.md", "# gpus.py", "needs GPUs and NCCL"),
    (
        "docs/failures.md",
        "weft.torch.init_process_group(weft.init())",
        "an excerpt with three dots; tests/torch/test_surviving.py runs the whole of it from docs/pytorch.md",
    ),
    (
        "docs/flexreduce.md",
        "schedule = flexreduce.all_reduce(weft.load_topology",
        "needs cluster.toml and a model, plans its halves; tests/lab/test_uneven_hosts.py trains like that",
    ),
    (
        "docs/workloads.md",
        "# train.py",
        "stands for the model of a reader; tests/torch/test_tracing.py traces others the same way",
    ),
    (
        "docs/lab.md",
        "import sys, threading",
        "needs root, and takes as long as the script; tests/lab run the same calls",
    ),
    ("docs/frameworks.md", "trainer = lightning.Trainer(", "needs an optional package; see below"),
    ("docs/frameworks.md", 'dist.init_process_group("weft")', "needs an optional package; see below"),
    ("docs/frameworks.md", 'deepspeed.init_distributed(dist_backend="weft")', "needs an optional package"),
]


def blocks(text: str) -> list[tuple[str, str]]:
    """Return kind and text of every block that a reader could run."""
    return BLOCK.findall(text)


def is_not_run(page: str, block: str) -> bool:
    return any(page == name and block.startswith(first) for name, first, _ in NOT_RUN)


def unnamed(page: str, text: str) -> list[str]:
    """Return what this file does not know, or knows wrongly, of the blocks of a page."""
    found = Counter(kind for kind, block in blocks(text) if not is_not_run(page, block))
    named = {kind: sum(count for count, _ in tests) for kind, tests in RUN_BY.get(page, {}).items()}
    return [
        f"{page}: {found[kind]} blocks of {kind}, of which tests run {named.get(kind, 0)}"
        for kind in sorted({*found, *named})
        if found[kind] != named.get(kind, 0)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_test_is_named_for_every_block(page: Path) -> None:
    assert unnamed(str(page.relative_to(ROOT)), page.read_text("utf-8")) == []


def test_a_new_page_with_a_block_is_found() -> None:
    assert unnamed("docs/new.md", "# New\n\n```python\nimport weft\n```\n") == [
        "docs/new.md: 1 blocks of python, of which tests run 0"
    ]
    assert unnamed("docs/planning.md", "```python\n1\n```\n```sh\nls\n```\n") == [
        "docs/planning.md: 1 blocks of sh, of which tests run 0"
    ]


def test_the_tests_that_are_named_read_those_pages() -> None:
    for page, kinds in RUN_BY.items():
        assert (ROOT / page).exists()
        for tests in kinds.values():
            for _, test in tests:
                if test == CONSOLE:
                    continue  # it looks for such blocks in all pages
                assert Path(page).name in (ROOT / test).read_text("utf-8"), (page, test)


@pytest.mark.parametrize(("page", "first", "why"), NOT_RUN, ids=lambda value: str(value)[:30])
def test_what_is_not_run_is_there_and_names_what_exists(page: str, first: str, why: str) -> None:
    found = [block for _, block in blocks((ROOT / page).read_text("utf-8")) if block.startswith(first)]
    assert found, first
    assert why
    for block in found:
        if "\n...\n" in block:
            continue  # an excerpt, which is no program
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("weft"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, name.name) for name in node.names)


def test_the_calls_of_the_page_on_frameworks_are_those_of_the_examples_that_are_run() -> None:
    """tests/frameworks run the examples, with the name of the backend from the command line."""
    examples = (ROOT / "examples" / "frameworks").glob("train_*.py")
    code = [ast.parse(path.read_text("utf-8")) for path in examples]
    written = {
        (ast.unparse(call.func), word.arg)
        for tree in code
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for word in (*call.keywords, ast.keyword(None, ast.Constant(None)))
    }
    for _, block in blocks((ROOT / "docs" / "frameworks.md").read_text("utf-8")):
        for call in ast.walk(ast.parse(block)):
            if isinstance(call, ast.Call):
                words = {word.arg for word in call.keywords} or {None}
                assert {(ast.unparse(call.func), word) for word in words} <= written, ast.unparse(call)


def test_the_targets_of_the_readme_exist() -> None:
    (block,) = (text for kind, text in blocks((ROOT / "README.md").read_text("utf-8")) if kind == "sh")
    targets = re.findall(r"^make ([a-z-]+)", block, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
