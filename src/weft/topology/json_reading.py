"""JSON files that embed a topology: decoded by a form, every complaint with its place in the file.

Schedules and tables of network interfaces are read with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weft import limits
from weft.errors import FormatError, InputError
from weft.topology.record import TopologyRecord, from_record
from weft.topology.spec_parser import parse_spec

if TYPE_CHECKING:
    from weft.topology.graph import Topology

_Form = TypeVar("_Form")


def check_length(source: str, data: bytes, instead: str = "") -> None:
    """Refuse a file that is too long before anything is made of it."""
    if len(data) > limits.MAX_TEXT_BYTES:
        most = limits.MAX_TEXT_BYTES >> 20
        raise FormatError(source, f"larger than the {most} MiB of JSON that Weft accepts{instead}")


def decode_json(source: str, data: bytes, form: type[_Form], what: str) -> _Form:
    """Decode a file that should hold `what`.

    Raises
    ------
    FormatError
        If it does not; says where.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except RecursionError as error:
        raise FormatError(source, f"nested too deeply to be {what}") from error
    except UnicodeDecodeError as error:
        raise FormatError(source, "not UTF-8 text") from error
    except msgspec.DecodeError as error:
        raise _located(source, data, str(error)) from error


def embedded_topology(source: str, described: str | TopologyRecord) -> Topology:
    """Make the topology that a file holds, or names by a spec; never one of another file.

    Raises
    ------
    FormatError
        If it cannot be.
    """
    try:
        return from_record(described) if isinstance(described, TopologyRecord) else parse_spec(described)
    except InputError as error:
        raise FormatError(source, str(error), "topology") from error


def split_place(message: str) -> tuple[str, str | None]:
    """Problem and place of a message of msgspec; the place is empty for the whole, None if it says none.

    Examples
    --------
    >>> split_place("Expected `int`, got `str` - at `$.links[0].src`")
    ('Expected `int`, got `str`', 'links[0].src')
    """
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    return (match[1], match[2]) if match else (message, None)


def _located(source: str, data: bytes, message: str) -> FormatError:
    """Move the place that msgspec puts at the end of its message to where ours have it."""
    problem, place = split_place(message)
    if place is not None:
        return FormatError(source, problem, place or None)
    if match := re.fullmatch(r"(.*) \(byte ([0-9]+)\)", message, re.DOTALL):
        line = data.count(b"\n", 0, int(match[2])) + 1
        return FormatError(source, match[1], f"line {line}")
    return FormatError(source, message)
