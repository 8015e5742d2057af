"""Pages of HTML: scripts, styles and data inline, and a policy that allows nothing else.

The page of a report is a pure function of its document. The document lies in a block of JSON that the browser
does not run; ``assets/page.js`` draws it and makes every text by ``textContent``, so that no name in it can
become markup. The policy names the scripts and styles by their hashes and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDER: Final = Path(__file__).parent
_STYLES: Final = ("vendor/uPlot.min.css", "assets/page.css")
_LIBRARY: Final = _FOLDER / "vendor" / "uPlot.iife.min.js"
_LICENCE: Final = _FOLDER / "vendor" / "LICENSE-uPlot"
_MODULES: Final = ("elements", "tables", "chart", "fabric", "timeline", "page")
"""Parts of the page's own script, in the order in which they need each other."""

_SHOW: Final = _FOLDER / "assets" / "show_document.js"


def make_page(document: dict[str, Any]) -> str:
    """Write the page of a document.

    Parameters
    ----------
    document
        The title and the sections, as docs/report.md describes them.

    Examples
    --------
    >>> make_page({"version": 1, "title": "a <b>", "sections": []}).count("<b>")
    0
    """
    return compose_page(str(document["title"]), document, scripts=(_SHOW,))


def compose_page(
    title: str,
    document: dict[str, Any],
    *,
    scripts: tuple[Path, ...],
    styles: tuple[Path, ...] = (),
    connect: str = "'none'",
) -> str:
    """Write a page that draws with the functions of reports.

    Parameters
    ----------
    title
        What the browser shows above the page.
    document
        The data that the scripts draw.
    scripts, styles
        Files that come after those of every page; the scripts share one scope with them.
    connect
        Where the page may send requests to, as in a content security policy.
    """
    style = _join(_STYLES, styles)
    modules = _join([f"assets/{name}.js" for name in _MODULES], scripts)
    own = f'(function () {{\n"use strict";\n{modules}\n}})();\n'
    # The MIT licence wants its text in every copy of the library, and every page is one.
    library = f"/*!\n{_read(_LICENCE).strip()}\n*/\n{_read(_LIBRARY)}"
    programs = (library, own)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_hash(program) for program in programs)}",
            f"style-src {_hash(style)}",
            f"connect-src {connect}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(_printable(title))}</title>",
        f"<style>{style}</style></head><body>",
        '<main id="report"><noscript>This page draws its data with a script.</noscript></main>',
        f'<script type="application/json" id="document">{_embed(document)}</script>',
        *(f"<script>{program}</script>" for program in programs),
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    """Text that can be written as UTF-8: names of files may have bytes that are none."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _embed(document: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in, whatever texts it has."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _join(names: Sequence[str], more: tuple[Path, ...]) -> str:
    return "\n".join(_read(path) for path in (*(_FOLDER / name for name in names), *more))


@cache
def _read(path: Path) -> str:
    return path.read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
