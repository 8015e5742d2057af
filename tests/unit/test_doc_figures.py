"""Figures in README.md and docs are those of the results in benchmarks/.

A table between ``<!-- benchmarks/lab/gallery.py: table -->`` and the comment that ends it is what the named
function of the named script makes of its result file; ``WEFT_UPDATE_GOLDEN=1`` writes it anew. A sentence is
written by hand, and compared with what benchmarks/sentences.py makes of the results.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(
    r"(?P<begin><!-- (?P<script>benchmarks/\S+\.py): (?P<function>\w+) -->\n)(?P<shown>.*?)"
    r"(?P<end><!-- end of (?P=script): (?P=function) -->\n)",
    re.DOTALL,
)
TABLES = [
    (page, found["script"], found["function"])
    for page in PAGES
    for found in TABLE.finditer(page.read_text("utf-8"))
]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a script of benchmarks/ as Python does when it runs it."""

    def load_script(name: str) -> ModuleType:
        path = ROOT / name
        monkeypatch.syspath_prepend(ROOT / "benchmarks")
        monkeypatch.syspath_prepend(path.parent)
        spec = importlib.util.spec_from_file_location(name.replace("/", "_").removesuffix(".py"), path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look it up there
        spec.loader.exec_module(module)
        return module

    return load_script


def plain(text: str) -> str:
    """Text without the line breaks and the links of Markdown."""
    return re.sub(r"\s+", " ", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


def test_every_comment_that_names_a_script_encloses_a_table() -> None:
    comments = [re.findall(r"<!-- (?:end of )?benchmarks/", page.read_text("utf-8")) for page in PAGES]
    assert sum(map(len, comments)) == 2 * len(TABLES) > 0


@pytest.mark.parametrize(
    ("page", "script", "function"), TABLES, ids=[f"{page.stem}-{script}" for page, script, _ in TABLES]
)
def test_table_is_that_of_the_results(
    page: Path, script: str, function: str, load: Callable[[str], ModuleType]
) -> None:
    wanted = getattr(load(script), function)()
    text = page.read_text("utf-8")
    (found,) = (one for one in TABLE.finditer(text) if (one["script"], one["function"]) == (script, function))
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        page.write_text(text[: found.start("shown")] + wanted + text[found.end("shown") :], "utf-8")
    else:
        assert found["shown"] == wanted


def test_sentences_have_the_figures_of_the_results(load: Callable[[str], ModuleType]) -> None:
    wanted = load("benchmarks/sentences.py").all_sentences()
    pages = {page.relative_to(ROOT).as_posix(): plain(page.read_text("utf-8")) for page in PAGES}
    missing = [
        f"{name} should say: {sentence}"
        for name, sentences in wanted.items()
        for sentence in sentences
        if sentence not in pages[name]
    ]
    assert missing == []
