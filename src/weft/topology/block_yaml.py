"""The part of YAML that Slurm's topology.yaml is written in: indented mappings and lists of plain scalars.

Anchors, tags, several documents and texts of several lines are refused with their line: they are how a short
YAML file becomes a large or surprising one, and no topology.yaml needs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from weft import limits
from weft.errors import FormatError, quote

Value = str | list["Value"] | dict[str, "Value"]
"""A scalar is text: whoever reads the file knows which of them are numbers."""

_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_\-]*)\s*:(?:\s+(.*))?")
_REFUSED: Final = "&*!|>%@`{"


@dataclass(frozen=True, slots=True)
class _Line:
    indent: int
    text: str
    number: int


def read_yaml(text: str, source: str) -> Value:
    r"""Read one document.

    Raises
    ------
    FormatError
        If it is not of this part of YAML; says in which line.

    Examples
    --------
    >>> read_yaml("- topology: a\n  tree:\n    switches: [s1, s2]  # two\n", "t.yaml")
    [{'topology': 'a', 'tree': {'switches': ['s1', 's2']}}]
    """
    reader = _Reader(source, _lines(text, source))
    if not reader.lines:
        raise FormatError(source, "the file holds nothing but comments")
    value = reader.block(reader.lines[0].indent, 1)
    if reader.at < len(reader.lines):
        reader.fail("is indented less than the first line")
    return value


def _lines(text: str, source: str) -> list[_Line]:
    """Lines that say something, without their comments."""
    found: list[_Line] = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = _without_comment(raw.rstrip("\r"))
        bare = line.lstrip(" ")
        if bare.startswith("\t"):
            raise FormatError(source, "a tab in the indentation; YAML wants spaces", f"line {number}")
        bare = bare.rstrip()
        if not bare or (bare == "---" and not found):
            continue
        limits.check(f"{source}: lines", len(found) + 1, limits.MAX_YAML_LINES)
        found.append(_Line(len(line) - len(line.lstrip(" ")), bare, number))
    if found and found[-1].text == "...":
        found.pop()
    return found


def _without_comment(line: str) -> str:
    quoted = ""
    for index, character in enumerate(line):
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "'\"":
            quoted = character
        elif character == "#" and (index == 0 or line[index - 1] in " \t"):
            return line[:index]
    return line


class _Reader:
    """Reads blocks from the lines on; `at` is the next line."""

    def __init__(self, source: str, lines: list[_Line]) -> None:
        self.source, self.lines, self.at = source, lines, 0

    def fail(self, problem: str) -> NoReturn:
        line = self.lines[min(self.at, len(self.lines) - 1)]
        raise FormatError(self.source, f"{quote(line.text)}: {problem}", f"line {line.number}")

    def block(self, indent: int, depth: int) -> Value:
        """Read what is indented as the next line is."""
        if depth > limits.MAX_DEPTH:
            self.fail(f"nested deeper than {limits.MAX_DEPTH}")
        if _is_item(self.lines[self.at].text):
            return self.items(indent, depth)
        return self.mapping(indent, depth)

    def items(self, indent: int, depth: int) -> list[Value]:
        found: list[Value] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.indent != indent or not _is_item(line.text):
                break
            rest = line.text[1:].lstrip(" ")
            if not rest:
                self.at += 1
                found.append(self.below(indent, depth))
            elif _is_item(rest) or _KEY.fullmatch(rest):
                # What follows the dash is the first line of a block that is indented as far as it.
                inner = indent + len(line.text) - len(rest)
                self.lines[self.at] = _Line(inner, rest, line.number)
                found.append(self.block(inner, depth + 1))
            else:
                found.append(self.scalar(rest))
                self.at += 1
        return found

    def mapping(self, indent: int, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.indent < indent or _is_item(line.text):
                break
            match = _KEY.fullmatch(line.text)
            if line.indent > indent or match is None:
                self.fail("expected a line such as nodes: node[01-16], indented as those above")
            if match[1] in found:
                self.fail(f"{match[1]} is given twice")
            if match[2]:
                found[match[1]] = self.scalar(match[2])
                self.at += 1
            else:
                self.at += 1
                found[match[1]] = self.below(indent, depth, of_key=True)
        return found

    def below(self, indent: int, depth: int, *, of_key: bool = False) -> Value:
        """Read the block under a key or a dash, or nothing; the items of a key may be indented as it is."""
        if self.at < len(self.lines):
            line = self.lines[self.at]
            if line.indent > indent or (of_key and line.indent == indent and _is_item(line.text)):
                return self.block(line.indent, depth + 1)
        return ""

    def scalar(self, text: str, depth: int = 1) -> Value:
        """Read a value that stands on the line of its key."""
        if depth > limits.MAX_DEPTH:
            self.fail(f"nested deeper than {limits.MAX_DEPTH}")
        if text.startswith("["):
            if not text.endswith("]"):
                self.fail("a list in brackets must end on its line")
            inside = text[1:-1].strip()
            return [self.scalar(part.strip(), depth + 1) for part in inside.split(",")] if inside else []
        if text[:1] in ("'", '"'):
            if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
                self.fail("quotes that do not match; Weft reads quoted text without escapes")
            return text[1:-1]
        if not text or text[0] in _REFUSED:
            self.fail("anchors, tags, flow mappings and texts of several lines are not read here")
        return text


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")
