"""Types of parameters on the pages of the API reference: an extension of griffe, which mkdocs.yml names.

Docstrings describe parameters that belong together in one entry, ``topology, collective, root``. Griffe gives
all of them the type of the first. With an entry for each, each has its own.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_TOGETHER = re.compile(
    r"^(?P<indent> *)(?P<names>\**\w+(?:, \**\w+)+)\n(?P<text>(?:(?P=indent) +.*\n|\n)+)", re.MULTILINE
)
_SECTION = re.compile(
    r"^(?:Other )?Parameters\n-+\n(?P<entries>(?:.*\n)*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE
)


def part(docstring: str) -> str:
    """Return the text of a docstring with an entry for each parameter."""

    def split(found: re.Match[str]) -> str:
        text = found["text"].rstrip("\n") + "\n"
        entries = "".join(f"{found['indent']}{name}\n{text}" for name in found["names"].split(", "))
        return entries + "\n" * (len(found["text"]) - len(text))

    def each(section: re.Match[str]) -> str:
        return section[0].replace(section["entries"], _TOGETHER.sub(split, section["entries"]), 1)

    return _SECTION.sub(each, f"{docstring}\n").rstrip("\n")


class ParameterTypes(griffe.Extension):
    """Parts the docstring of every object before it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change a docstring."""
        if obj.docstring is not None and "Parameters\n---" in obj.docstring.value:
            obj.docstring.value = part(obj.docstring.value)
