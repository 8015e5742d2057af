"""The pages of the documentation: links lead somewhere, lines are short, and every page is in the index."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import docs_site
import pytest

import weft

TREE = Path(__file__).parents[2]
INDEX = TREE / "docs" / "index.md"
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(TREE / name for name in TOP), *sorted((TREE / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONGEST_LINE = 120
LONGEST_README = 150
LONGEST_CELL = 250

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))


def prose(text: str) -> Iterator[str]:
    """Yield the lines of a page that are neither code nor a row of a table."""
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith(("|", "    ")):
            yield line


def headings(text: str) -> list[str]:
    return [line for line in prose(text) if re.match(r"#+ ", line)]


def anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^#+ ", "", heading)).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def leads_somewhere(page: Path, link: str) -> bool:
    place, _, name = link.partition("#")
    if place.startswith(("http:", "https:")):
        return True
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return False
    return not name or name in {anchor(line) for line in headings(target.read_text("utf-8"))}


def broken_links(page: Path, text: str) -> list[str]:
    return [link for link in LINK.findall(text) if not leads_somewhere(page, link)]


@each_page
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_the_check_finds_broken_links() -> None:
    text = "[a](index.md#train-models) [b](nowhere.md) [c](index.md#nothing) [d](https://example.org)"
    assert broken_links(INDEX, text) == ["nowhere.md", "index.md#nothing"]


@pytest.mark.parametrize(
    "page", [*PAGES, TREE / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(TREE))
)
def test_lines_of_prose_are_short(page: Path) -> None:
    assert [line for line in prose(page.read_text("utf-8")) if len(line) > LONGEST_LINE] == []


@each_page
def test_a_page_has_one_title_and_no_heading_twice(page: Path) -> None:
    found = headings(page.read_text("utf-8"))
    assert found[0].startswith("# ")
    assert [line for line in found if line.startswith("# ")] == found[:1]
    assert len(set(found)) == len(found)


def test_the_readme_is_short() -> None:
    assert len((TREE / "README.md").read_text("utf-8").splitlines()) <= LONGEST_README


def test_the_tables_of_the_readme_can_be_read() -> None:
    rows = [line for line in (TREE / "README.md").read_text("utf-8").splitlines() if line.startswith("|")]
    cells = [LINK.sub("]", cell).strip() for row in rows for cell in row.split("|")]
    assert [cell for cell in cells if len(cell) > LONGEST_CELL] == []


def test_every_page_is_in_the_index() -> None:
    named = {(INDEX.parent / link).resolve() for link in LINK.findall(INDEX.read_text("utf-8"))}
    assert [page.name for page in PAGES if page != INDEX and page not in named] == []


def test_every_page_is_once_in_the_navigation_of_the_site() -> None:
    lines = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (TREE / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    found = [line for line in lines if not line.startswith("reference/") and not line.endswith(".ipynb.md")]
    pages = [*PAGES, TREE / "CHANGELOG.md"]
    assert sorted(found) == sorted(docs_site.place_on_site(str(page.relative_to(TREE))) for page in pages)


def test_every_public_package_has_its_page_in_the_reference() -> None:
    packages = ["weft", *sorted(f"weft.{name}" for name in [*weft.__all__, "errors"] if is_package(name))]
    assert docs_site.documented() == packages
    page = (TREE / "docs" / "reference.md").read_text("utf-8")
    table = re.findall(r"^\| \[(weft[.\w]*)\]\((\S+)\)", page, re.MULTILINE)
    assert [name for name, _ in table] == packages
    for name, link in table:
        target = docs_site.resolve("docs/reference.md", link)
        assert docs_site.place_on_site(target) == f"reference/{name}.md"
        assert f"- {name}: reference/{name}.md\n" in (TREE / "mkdocs.yml").read_text("utf-8")


def test_the_reference_of_weft_leads_to_the_very_objects() -> None:
    found = docs_site.homes()
    assert {"Plan", "compare", "init", "PeerLost"} <= set(found)
    assert "simulate" not in found  # weft.simulate checks the schedule, weft.simulation.simulate does not
    for name, home in found.items():
        assert getattr(weft, name, None) is getattr(importlib.import_module(home), name)


def is_package(name: str) -> bool:
    path = TREE / "src" / "weft" / name
    return path.is_dir() or path.with_suffix(".py").exists()


def test_the_site_gives_headings_the_anchors_of_github() -> None:
    for heading in ("Import nvidia-smi topo -m", "What NCCL would do?", '`sharing="queue"` (default)'):
        assert docs_site.github_anchor(heading) == anchor(f"## {heading}")


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ('<script src="https://example.org/a.js"></script>', True),
        ('<link rel="stylesheet" href="//example.org/a.css">', True),
        ("@import url(https://example.org/a.css);", True),
        ("a{background:url('https://example.org/a.png')}", True),
        ('<a href="https://example.org">x</a>', False),
        ('<link rel="canonical" href="https://example.org/">', False),
        ('<img src="images/a.svg"><script src="assets/a.js"></script>', False),
    ],
)
def test_the_site_notices_what_is_loaded_from_another_server(text: str, loads: bool) -> None:
    assert bool(docs_site.LOADED.search(text)) is loads


def test_links_of_the_site_lead_to_pages_of_the_site() -> None:
    def place(page: str, link: str) -> str:
        return docs_site.place_on_site(docs_site.resolve(page, link))

    assert place("docs/papers/ace.md", "../bench.md") == "bench.md"
    assert place("docs/index.md", "../README.md") == "repository/README.md"
    assert place("docs/index.md", "../benchmarks") == "repository/benchmarks/README.md"
    assert place("README.md", "src/weft/schedule/ir.py") == "repository/src/weft/schedule/ir.py.md"
    assert place("README.md", "docs/bench.md") == "bench.md"
    assert docs_site.links("[a](b.md#c) [d](https://e.f)\n```\n[g](h.md)\n```\n") == ["b.md"]
