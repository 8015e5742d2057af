"""The pages of the documentation: links lead somewhere, lines are short, and every page is in the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
INDEX = TREE / "docs" / "index.md"
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(TREE / name for name in TOP), *sorted((TREE / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONGEST_LINE = 120
LONGEST_README = 150

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


@each_page
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


def test_every_page_is_in_the_index() -> None:
    named = {(INDEX.parent / link).resolve() for link in LINK.findall(INDEX.read_text("utf-8"))}
    assert [page.name for page in PAGES if page != INDEX and page not in named] == []
