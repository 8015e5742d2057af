"""The tool that takes pictures of pages takes each in every look."""

from __future__ import annotations

import struct
from pathlib import Path

import screenshots
from support.browser import start_browser

import weft


def test_a_page_is_taken_light_dark_and_small(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    weft.report(weft.load_topology("ring:4"), output=page)
    with start_browser() as browser:
        taken = screenshots.take(browser, page, "ring", tmp_path)
    assert [path.name for path in taken] == ["ring-light.png", "ring-dark.png", "ring-small.png"]
    pictures = [path.read_bytes() for path in taken]
    assert [struct.unpack(">I", picture[16:20])[0] for picture in pictures] == [1100, 1100, 390]
    assert pictures[0] != pictures[1]
