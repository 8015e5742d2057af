"""The writer of SVG: what comes from outside stays text, and no other module writes markup by hand."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from weft.svg import Markup, document, element, hint, label, legend

TREE = Path(__file__).parents[2]
HOSTILE = "</text><script>alert(1)</script>\"'&\x00\ud800"
WRITERS = {"src/weft/reporting/report_page.py", "src/weft/svg.py"}
"""The writer, and the page of a report, which has a title of HTML."""


def test_hostile_text_stays_text_in_every_place() -> None:
    parts = [label(HOSTILE, 0, 0, HOSTILE), element("g", hint(HOSTILE), id=HOSTILE)]
    key, _, _ = legend([(Markup(""), HOSTILE)], 100)
    text = document(100, 100, *parts, key, scope="weft-test", title=HOSTILE, style="")
    root = ET.fromstring(text)
    assert "script" not in {node.tag.rpartition("}")[2] for node in root.iter()}
    assert sum("alert(1)" in (node.text or "") for node in root.iter()) == 4


def test_a_document_has_colours_for_dark_pages_and_every_rule_is_its_own() -> None:
    text = document(100, 100, scope="weft-test", title="", style="")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "prefers-color-scheme:dark" in style[1]
    rules = [line for line in style[1].splitlines() if "{" in line and not line.startswith("@media")]
    assert all(
        selector.startswith(".weft-test") for rule in rules for selector in rule.split("{")[0].split(",")
    )


def test_no_other_module_writes_svg_by_hand() -> None:
    by_hand = re.compile(r"<(?:svg|path|rect|circle|text|polyline|line|g) |<title>")
    found = {
        str(path.relative_to(TREE))
        for folder in ("src", "benchmarks", "tools")
        for path in (TREE / folder).rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if by_hand.search(line) and not line.lstrip().startswith((">>>", "'<", "..."))
    }
    assert found - WRITERS == set()
