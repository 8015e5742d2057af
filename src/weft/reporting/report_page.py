"""A page of HTML from a document: scripts, styles and data inline, and a policy that allows nothing else.

The page is a pure function of the document. The document lies in a block of JSON that the browser does not
run; ``assets/page.js`` reads it and makes every text by ``textContent``, so that no name in it can become
markup. The policy names the scripts and styles by their hashes and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent
_STYLES: Final = ("vendor/uPlot.min.css", "assets/page.css")
_LIBRARY: Final = "vendor/uPlot.iife.min.js"
_MODULES: Final = ("elements", "tables", "chart", "fabric", "timeline", "page")
"""Parts of the page's own script, in the order in which they need each other."""


def make_page(document: dict[str, Any]) -> str:
    """Write the page of a document.

    Parameters
    ----------
    document
        Title, sections and all: docs/report.md describes it.

    Examples
    --------
    >>> make_page({"version": 1, "title": "a <b>", "sections": []}).count("<b>")
    0
    """
    style, scripts = _style(), _scripts()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_hash(script) for script in scripts)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(str(document['title']))}</title>",
        f"<style>{style}</style></head><body>",
        '<main id="report"><noscript>This page draws its data with a script.</noscript></main>',
        f'<script type="application/json" id="document">{_embed(document)}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _embed(document: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in, whatever texts it has."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _style() -> str:
    return "\n".join((_FOLDER / name).read_text("utf-8") for name in _STYLES)


@cache
def _scripts() -> tuple[str, str]:
    """The library and the page's own script, whose parts share one scope of their own."""
    parts = [(_FOLDER / "assets" / f"{name}.js").read_text("utf-8") for name in _MODULES]
    own = '(function () {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"
    return (_FOLDER / _LIBRARY).read_text("utf-8"), own


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
