"""What the texts say about versions and about installing: one version, and nothing from an index."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FROM_AN_INDEX = re.compile(r"pip3? install (?:\S+ )*?[\"']?weft\b(?![./])|\bweft\[\w+[\w, ]*\]")
"""Weft is on no index: what is installed by its name from one is somebody else's."""


def texts() -> Iterator[Path]:
    """All that users read or run: documentation, programs, and the messages within them."""
    yield from ROOT.glob("*.md")
    code = (("src", "*.py"), ("src", "*.js"), ("cpp", "*.?pp"), ("examples", "*"), ("tools", "*"))
    for folder, pattern in (("docs", "*.md"), ("benchmarks", "*.md"), ("benchmarks", "*.py"), *code):
        yield from (
            path for path in (ROOT / folder).rglob(pattern) if path.is_file() and path.suffix != ".pyc"
        )


def test_nothing_tells_users_to_install_weft_from_an_index() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if FROM_AN_INDEX.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["pip install weft", "pip install -U weft", "run `pip install 'weft[torch]'`", "needs weft[torch,mpi]"],
)
def test_the_check_finds_an_installation_from_an_index(line: str) -> None:
    assert FROM_AN_INDEX.search(line)


@pytest.mark.parametrize("line", ["pip install torch", "pip install .", "pip install weft/", "import weft"])
def test_the_check_lets_other_packages_and_the_clone_pass(line: str) -> None:
    assert not FROM_AN_INDEX.search(line)


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == project["version"]


def test_the_citation_names_the_package_and_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    fields = dict(re.findall(r"^([a-z-]+): *(.*)$", citation, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= set(fields)  # those that the format demands
    assert fields["cff-version"] == "1.2.0"
    assert fields["version"] == project["version"]
    # The package also has a library of others; what one cites is Weft alone.
    assert fields["license"] == project["license"].partition(" AND ")[0]
    assert f"  - name: {project['authors'][0]['name']}\n" in citation
