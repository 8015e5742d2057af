"""Topology spec strings: ``torus:8x8@bw=16GB/s,lat=150ns+fail=3-4``.

``KIND:SHAPE[@option=value,...][+fail=A-B,...][+fail=rank:R]``. This module splits the string and reads
options; `weft.topology.kinds` has one function per kind.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft import limits, units
from weft.errors import TopologyError, quote
from weft.topology import kinds
from weft.topology.faults import apply_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.topology.graph import Topology

_HEAD = re.compile(r"([a-z][a-z0-9-]*):([^@+]*)(?:@([^+]*))?\Z")
_SPEED_LIST = re.compile(r"/(?=[0-9.])")


@dataclass
class SpecOptions:
    """Options of one spec; each is taken once, and what nobody took is an error."""

    spec: str
    values: dict[str, str]

    def take(self, name: str) -> str | None:
        """Text of an option, or None."""
        return self.values.pop(name, None)

    def speed(self, name: str, default: int) -> int:
        """Return the bandwidth that an option gives."""
        text = self.take(name)
        return default if text is None else units.parse_bandwidth(text)

    def speeds(self, name: str, default: Sequence[int], count: int, per: str) -> list[int]:
        """One bandwidth for all, or one for each, as in ``10GB/s/5GB/s``."""
        text = self.take(name)
        found = default if text is None else [units.parse_bandwidth(part) for part in _SPEED_LIST.split(text)]
        return self._one_each(f"{name} lists {len(found)} speeds", found, count, per)

    def latency(self, name: str = "lat", default: int = kinds.DEFAULT_LATENCY_PS) -> int:
        """A latency in picoseconds."""
        text = self.take(name)
        return default if text is None else units.parse_time(text)

    def latencies(self, default: Sequence[int], count: int, per: str) -> list[int]:
        """One latency for all, or one for each, as in ``70ns/400ns``, in picoseconds."""
        text = self.take("lat")
        found = default if text is None else [units.parse_time(part) for part in text.split("/")]
        return self._one_each(f"lat lists {len(found)} latencies", found, count, per)

    def _one_each(self, what: str, found: Sequence[int], count: int, per: str) -> list[int]:
        if len(found) == 1:
            return list(found) * count
        if len(found) != count:
            msg = f"{self.spec}: {what} for {count} {per}; give one, or one each"
            raise TopologyError(msg)
        return list(found)

    def count(self, name: str, default: int, least: int = 1) -> int:
        """A whole number of at least `least`."""
        text = self.take(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            msg = f"{self.spec}: {name}={text} must be a whole number of at least {least}"
            raise TopologyError(msg)
        return int(text)

    def division(self, name: str, total: int, of: str) -> list[int]:
        """How `total` things are divided: ``2/1``, or ``2`` for twos, of which the last may be smaller."""
        text = self.take(name) or ""
        parts = text.split("/")
        if not all(re.fullmatch(r"[0-9]{1,9}", part) and int(part) for part in parts):
            msg = f"{self.spec}: {name}={text} must be whole numbers of at least 1, such as 2 or 2/1"
            raise TopologyError(msg)
        sizes = [int(part) for part in parts]
        if len(sizes) == 1:
            full, rest = divmod(total, sizes[0])
            return sizes * full + ([rest] if rest else [])
        if sum(sizes) != total:
            msg = f"{self.spec}: {name}={text} has room for {sum(sizes)} {of}, and there are {total}"
            raise TopologyError(msg)
        return sizes

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One word out of several."""
        text = self.take(name)
        if text is not None and text not in allowed:
            msg = f"{self.spec}: {name}={text} is unknown, expected {' or '.join(allowed)}"
            raise TopologyError(msg)
        return default if text is None else text


def is_spec(text: str) -> bool:
    """Whether a string looks like a spec rather than a file name."""
    head = text.split(":", 1)[0]
    return ":" in text and "/" not in head and "." not in head and "\\" not in head


def parse_spec(text: str) -> Topology:
    """Build the topology that a spec string describes.

    Examples
    --------
    >>> parse_spec("torus:4x4@bw=16GB/s,lat=150ns")
    <Topology torus:4x4@bw=16GB/s,lat=150ns: 16 ranks, 0 switches, 64 links>
    >>> parse_spec("torus:4x4+fail=0-1").links
    62
    """
    spec = text.strip()
    if len(spec) > limits.MAX_SPEC_CHARACTERS:
        msg = f"spec {spec[:30]!r}...: {len(spec):,} characters are too many; use a TOML file"
        raise TopologyError(msg)
    head, *suffixes = spec.split("+")
    match = _HEAD.match(head)
    if match is None:
        form = "KIND:SHAPE[@option=value,...][+fail=A-B,...]"
        msg = f"spec {quote(spec)}: expected {form}, such as torus:8x8@bw=25GB/s"
        raise TopologyError(msg)
    kind, shape, option_text = match[1], match[2], match[3]
    found = kinds.KINDS.get(kind)
    if found is None:
        close = difflib.get_close_matches(kind, kinds.KINDS, 1)
        hint = f"; did you mean {close[0]}?" if close else "."
        known = ", ".join(kinds.KINDS)
        msg = f"spec {quote(spec)}: unknown kind {quote(kind)}{hint} Known: {known}"
        raise TopologyError(msg)
    faults = _read_faults(spec, suffixes)
    options = SpecOptions(spec, _read_options(spec, option_text))
    routing = options.take("routing")
    seeded = "seed" in options.values
    seed = options.count("seed", 0, least=0)
    if seeded and routing != "ecmp":
        msg = f"{spec}: seed belongs to routing=ecmp; the other rules have nothing to seed"
        raise TopologyError(msg)
    topology = found.build(spec, _read_shape(spec, shape), options)
    if options.values:
        unknown = next(iter(options.values))
        msg = f"{spec}: unknown option {unknown!r} for {kind}; it takes {found.options}"
        raise TopologyError(msg)
    if routing is not None:
        topology = topology.with_routing(routing, seed)
    return apply_faults(topology, faults) if faults else topology


def _read_shape(spec: str, text: str) -> list[int]:
    parts = re.split(r"[x,]", text)
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        msg = f"{spec}: shape {text!r} must be whole numbers joined by 'x' or ',', such as 8x8 or 4,8"
        raise TopologyError(msg)
    shape = [int(part) for part in parts]
    if 0 in shape:
        msg = f"{spec}: shape {text!r} has a zero; every dimension needs at least 1"
        raise TopologyError(msg)
    return shape


def _read_options(spec: str, text: str | None) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in () if text is None else text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            msg = f"{spec}: option {part!r} must be written name=value"
            raise TopologyError(msg)
        if name.strip() in values:
            msg = f"{spec}: option {name.strip()!r} is given twice"
            raise TopologyError(msg)
        values[name.strip()] = value.strip()
    return values


def _read_faults(spec: str, suffixes: list[str]) -> list[str]:
    faults: list[str] = []
    for suffix in suffixes:
        name, equals, value = suffix.partition("=")
        if name != "fail" or not equals or not value:
            msg = f"{spec}: '+{suffix}' must be +fail=A-B (both directions), +fail=A>B (one) or +fail=rank:R"
            raise TopologyError(msg)
        faults.extend(part.strip() for part in value.split(","))
    return faults
