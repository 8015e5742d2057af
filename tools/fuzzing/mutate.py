"""Change bytes, texts and trees at random, as a hostile or broken writer might."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Final

from packets import test_table_file as ni_tables

from fuzzing.target import MOST_BYTES, Chance

_NUMBERS: Final = (
    *(0, 1, 2, 3, 7, 8, 64, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**62),
    *(2**63 - 1, 2**63, 2**64, 2**70, -1, -2, -(2**31), -(2**63)),
)
_VALUES: Final = (
    *_NUMBERS,
    *range(12),
    None,
    True,
    False,
    "",
    "x",
    "reduce",
    "é\x1b\0",
    [],
    [0],
    {},
    0.5,
    1e300,
)
_BYTES: Final = (
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\n",
    b'"',
    b"[",
    b"{",
    b"=",
    b",",
    b"-",
    b"@",
    b"+",
    b"<",
    b"&",
)


def change_bytes(data: bytes, chance: Chance, other: bytes = b"") -> bytes:
    """Bytes changed, cut out, put in, repeated, or taken from another file."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at, length = chance.randrange(len(changed) + 1), chance.choice((0, 1, 1, 2, 4, 8, 64))
        kind = chance.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at : at + length] = chance.randbytes(chance.randrange(9))
        elif kind == 2:
            changed[at : at + length] = chance.choice(_BYTES)
        elif kind == 3:
            changed[at : at + length] = b""
        elif kind == 4:
            first = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[first : first + chance.choice((1, 8, 64, 512))] * chance.choice(
                (1, 1, 2, 50)
            )
        elif kind == 5 and other:
            first = chance.randrange(len(other))
            changed[at : at + length] = other[first : first + chance.choice((8, 64, 512))]
        elif kind == 6 and chance.random() < 0.1:
            del changed[at:]
    return bytes(changed[:MOST_BYTES])


def change_text(data: bytes, chance: Chance, other: bytes = b"") -> bytes:
    """The same, and numbers, words and lines changed as who knows the format would."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        kind = chance.randrange(4)
        if kind == 0:
            data = change_bytes(data, chance, other)
        elif kind == 1:
            data = _replace(rb"\d+", data, chance, str(chance.choice(_NUMBERS)).encode())
        elif kind == 2:
            words = re.findall(rb"[\w.:/-]+", other or data) or [b"x"]
            data = _replace(rb"[\w.:/-]+", data, chance, chance.choice(words))
        else:
            lines = data.splitlines(keepends=True)
            at = chance.randrange(len(lines) + 1)
            lines[at : at + chance.randrange(3)] = (
                chance.choices(lines, k=chance.randrange(3)) if lines else []
            )
            data = b"".join(lines)
    return data[:MOST_BYTES]


def _replace(pattern: bytes, data: bytes, chance: Chance, by: bytes) -> bytes:
    found = list(re.finditer(pattern, data))
    if not found:
        return data
    one = chance.choice(found)
    return data[: one.start()] + by + data[one.end() :]


def change_tree(tree: Any, chance: Chance) -> Any:
    """A document of maps and lists with something else at a few places."""
    tree = deepcopy(tree)
    for _ in range(chance.choice((1, 1, 2, 4))):
        known = ni_tables.places(tree)
        if not known:
            break
        # Some key at the top first: most places are in the longest list, and that is not what matters most.
        top = chance.choice(sorted({place[0] for place in known}, key=str))
        place = chance.choice([place for place in known if place[0] == top])
        inner: Any = tree
        for key in place[:-1]:
            inner = inner[key]
        _change_entry(inner, place[-1], chance)
    return tree


def _change_entry(inner: Any, key: Any, chance: Chance) -> None:
    kind, value = chance.randrange(6), inner[key]
    if kind == 0:
        del inner[key]
    elif kind == 1 and isinstance(inner, list):
        inner.insert(chance.randrange(len(inner) + 1), deepcopy(chance.choice(inner)))
    elif kind == 2 and isinstance(inner, dict):
        inner[chance.choice([*inner, "x"])] = deepcopy(value)
    elif kind == 3 and isinstance(value, int):
        inner[key] = value + chance.choice((-1, 1))
    elif kind == 4 and isinstance(value, list):
        chance.shuffle(value)
    else:
        inner[key] = deepcopy(chance.choice(_VALUES))
