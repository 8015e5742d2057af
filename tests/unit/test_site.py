"""The documentation site: notebooks become pages, and the built site works in a real Chromium.

The slow test opens build/site, which ``make docs`` builds; it builds the site if it is not there.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import docs_site
import pytest
from support.browser import Browser, start_browser

TREE = Path(__file__).parents[2]
SITE = TREE / "build" / "site"
NOTEBOOKS = sorted((TREE / "examples" / "notebooks").glob("*.ipynb"))
PAGES = ("index", "report", "papers/ace", "repository/examples/notebooks/training.ipynb")
FOUND = "[...document.querySelectorAll('a.md-search-result__link')].map((one) => one.textContent)"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_its_code_and_outputs(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    place = path.relative_to(TREE).as_posix()
    page = docs_site.page_of_file(place)
    assert isinstance(page, str)
    assert page.startswith("# ")
    for cell in cells:
        assert "".join(cell["source"]) in page
    outputs = sum(len(cell.get("outputs", [])) for cell in cells)
    assert page.count('<div class="notebook-output">') + page.count("``````text\n") == outputs > 0
    assert f": {docs_site.place_on_site(place)}\n" in (TREE / "mkdocs.yml").read_text("utf-8")


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("docs/tutorial.md", "Tutorial"),
        ("docs/report.md", "Reports"),
        ("README.md", "Weft"),
        ("examples/notebooks/paper_multitree.ipynb", "A paper: MultiTree"),
        ("docs/nothing.md", None),
    ],
)
def test_a_page_is_called_by_its_title(path: str, title: str | None) -> None:
    assert docs_site.title_of(path) == title
    linked = docs_site.NAMED_PAGE.sub(lambda match: f"[{title}]", f"see [{path}]({path}#part), [it]({path})")
    assert linked == f"see [{title}]({path}#part), [it]({path})"


def test_an_output_of_html_has_no_blank_line_that_would_end_it() -> None:
    shown = docs_site.shown_output({"data": {"text/html": ["<b>\n", "\n", "    x</b>"], "text/plain": "y"}})
    assert shown == '<div class="notebook-output">\n<b>\nx</b>\n</div>'
    assert docs_site.shown_output({"text": ["a\n", "b\n"]}) == "``````text\na\nb\n``````"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check_site(browser: Browser, root: str) -> None:
    """Open pages wide and small, and search, with every request to the site itself and no complaint."""
    for name in PAGES:
        for width in (1100, 390):
            with browser.tab(f"{root}/{name}.html", width=width) as tab:
                assert tab.run("document.documentElement.scrollWidth") <= width, (name, width)
                assert [
                    url for url in tab.addresses if not url.startswith((f"{root}/", "data:", "blob:"))
                ] == []
                assert tab.complaints == [], (name, width)
    with browser.tab(f"{root}/index.html") as tab:
        tab.run(
            "(() => { document.querySelector('#__search').click();"
            " const input = document.querySelector('input.md-search__input'); input.focus();"
            " input.value = 'dragonfly'; input.dispatchEvent(new Event('keyup', {bubbles: true}));"
            " input.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
        tab.wait_until(f"{FOUND}.length > 0")
        assert any("topolog" in text.lower() for text in tab.run(FOUND))
        assert [url for url in tab.addresses if not url.startswith((f"{root}/", "data:", "blob:"))] == []
        assert tab.complaints == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_works_from_files_and_over_http() -> None:
    if not (SITE / "index.html").exists():
        subprocess.run(["make", "docs"], cwd=TREE, check=True, timeout=600)
    with start_browser() as browser:
        check_site(browser, SITE.as_uri())
        with serve(SITE) as root:
            check_site(browser, root)
