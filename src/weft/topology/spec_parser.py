"""Topology spec strings: ``torus:8x8@bw=16GB/s,lat=150ns+fail=3-4``.

``KIND:SHAPE[@option=value,...][+fail=A-B,...][+fail=rank:R][+speed=A-B:SPEED,...]``. This module splits the
string and reads options; `weft.topology.kinds` has one function per kind.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft import limits, units
from weft.errors import TopologyError, UnitError, quote
from weft.topology import kinds
from weft.topology.faults import apply_faults, apply_speeds
from weft.topology.full_mesh import DEFAULT_LATENCY_PS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.topology.graph import Topology

_HEAD = re.compile(r"([a-z][a-z0-9-]*):([^@+]*)(?:@([^+]*))?\Z")
_SPEED_LIST = re.compile(r"/(?=[0-9.])")


@dataclass
class Spec:
    """One spec, read; each option is taken once, and what nobody took is an error."""

    text: str
    parts: list[list[int]]
    values: dict[str, str]

    @property
    def shape(self) -> list[int]:
        """The numbers of the shape, whether ``x`` or a comma joins them."""
        return [number for part in self.parts for number in part]

    def error(self, problem: str) -> TopologyError:
        """Error about this spec."""
        return TopologyError(f"{self.text}: {problem}")

    def sizes(self, count: int, form: str) -> list[int]:
        """The numbers of the shape, which are so many if it is of this form."""
        if len(self.shape) != count:
            raise self.error(f"expected {form}")
        return self.shape

    def take(self, name: str) -> str | None:
        """Text of an option, or None."""
        return self.values.pop(name, None)

    def speed(self, name: str, default: int) -> int:
        """Return the bandwidth that an option gives."""
        text = self.take(name)
        return default if text is None else self._read(name, text, units.parse_bandwidth)

    def speeds(self, name: str, default: Sequence[int], count: int, per: str) -> list[int]:
        """One bandwidth for all, or one for each, as in ``10GB/s/5GB/s``."""
        text = self.take(name)
        parts = () if text is None else _SPEED_LIST.split(text)
        found = [self._read(name, part, units.parse_bandwidth) for part in parts] or default
        return self._one_each(f"{name} lists {len(found)} speeds", found, count, per)

    def latency(self, name: str = "lat", default: int = DEFAULT_LATENCY_PS) -> int:
        """A latency in picoseconds."""
        text = self.take(name)
        return default if text is None else self._read(name, text, units.parse_time)

    def latencies(self, default: Sequence[int], count: int, per: str) -> list[int]:
        """One latency for all, or one for each, as in ``70ns/400ns``, in picoseconds."""
        text = self.take("lat")
        parts = () if text is None else text.split("/")
        found = [self._read("lat", part, units.parse_time) for part in parts] or default
        return self._one_each(f"lat lists {len(found)} latencies", found, count, per)

    def _read(self, name: str, text: str, parse: Callable[[str], int]) -> int:
        """Read a quantity; an error names the option that has it."""
        try:
            return parse(text)
        except UnitError as error:
            raise UnitError(f"{self.text}: option {name}: {error}") from error

    def _one_each(self, what: str, found: Sequence[int], count: int, per: str) -> list[int]:
        if len(found) == 1:
            return list(found) * count
        if len(found) != count:
            raise self.error(f"{what} for {count} {per}; give one, or one each")
        return list(found)

    def count(self, name: str, default: int, least: int = 1) -> int:
        """A whole number of at least `least`."""
        text = self.take(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise self.error(f"{name}={text} must be a whole number of at least {least}")
        return int(text)

    def division(self, name: str, total: int, of: str) -> list[int]:
        """How `total` things are divided: ``2/1``, or ``2`` for twos, of which the last may be smaller."""
        text = self.take(name) or ""
        parts = text.split("/")
        if not all(re.fullmatch(r"[0-9]{1,9}", part) and int(part) for part in parts):
            raise self.error(f"{name}={text} must be whole numbers of at least 1, such as 2 or 2/1")
        sizes = [int(part) for part in parts]
        if len(sizes) == 1:
            full, rest = divmod(total, sizes[0])
            return sizes * full + ([rest] if rest else [])
        if sum(sizes) != total:
            raise self.error(f"{name}={text} has room for {sum(sizes)} {of}, and there are {total}")
        return sizes

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One word out of several."""
        text = self.take(name)
        if text is not None and text not in allowed:
            raise self.error(f"{name}={text} is unknown, expected {' or '.join(allowed)}")
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
    text = text.strip()
    if len(text) > limits.MAX_SPEC_CHARACTERS:
        raise TopologyError(f"spec {text[:30]!r}...: {len(text):,} characters are too many; use a TOML file")
    head, *suffixes = text.split("+")
    match = _HEAD.match(head)
    if match is None:
        form = "KIND:SHAPE[@option=value,...][+fail=A-B,...]"
        raise TopologyError(f"spec {quote(text)}: expected {form}, such as torus:8x8@bw=25GB/s")
    kind, shape, options = match.groups()
    found = kinds.KINDS.get(kind)
    if found is None:
        close = difflib.get_close_matches(kind, kinds.KINDS, 1)
        hint = f"; did you mean {close[0]}?" if close else "."
        known = ", ".join(kinds.KINDS)
        raise TopologyError(f"spec {quote(text)}: unknown kind {quote(kind)}{hint} Known: {known}")
    changes = read_suffixes(text, suffixes)
    spec = Spec(text, read_shape(text, shape), read_options(text, options))
    return with_changes(build_routed(spec, found.build, kind, found.options), changes)


def build_routed(spec: Spec, build: Callable[[Spec], Topology], kind: str, options: str) -> Topology:
    """Build with the routing that a spec asks for; an option that nobody took is an error.

    `kind` and `options` say in messages what is built and what it takes.
    """
    routing = spec.take("routing")
    seeded = "seed" in spec.values
    seed = spec.count("seed", 0, least=0)
    if seeded and routing != "ecmp":
        raise spec.error("seed belongs to routing=ecmp; the other rules have nothing to seed")
    topology = build(spec)
    if spec.values:
        unknown = next(iter(spec.values))
        names = [name for name in options.split(", ") if name != "seed"]  # nobody means it by "speed"
        close = difflib.get_close_matches(unknown[:40], names, 1, cutoff=0.8)
        hint = f"did you mean {close[0]}? It" if close else "it"
        raise spec.error(f"unknown option {unknown!r} for {kind}; {hint} takes {options}")
    return topology if routing is None else topology.with_routing(routing, seed)


def with_changes(topology: Topology, changes: Sequence[tuple[str, str]]) -> Topology:
    """A topology after what `read_suffixes` found: other speeds first, then faults."""
    speeds = [change for kind, change in changes if kind == "speed"]
    faults = [change for kind, change in changes if kind == "fail"]
    topology = apply_speeds(topology, speeds) if speeds else topology
    return apply_faults(topology, faults) if faults else topology


def read_shape(spec: str, text: str) -> list[list[int]]:
    """The numbers of a shape, each at least 1: of each part between commas, those that ``x`` joins."""
    parts = [part.split("x") for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", number) for part in parts for number in part):
        msg = f"{spec}: shape {text!r} must be whole numbers joined by 'x' or ',', such as 8x8 or 4,8"
        raise TopologyError(msg)
    shape = [[int(number) for number in part] for part in parts]
    if any(0 in part for part in shape):
        raise TopologyError(f"{spec}: shape {text!r} has a zero; every dimension needs at least 1")
    return shape


def read_options(spec: str, text: str | None) -> dict[str, str]:
    """What stands behind ``@``, by name."""
    values: dict[str, str] = {}
    for part in () if text is None else text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise TopologyError(f"{spec}: option {part!r} must be written name=value")
        if name.strip() in values:
            raise TopologyError(f"{spec}: option {name.strip()!r} is given twice")
        values[name.strip()] = value.strip()
    return values


def read_suffixes(spec: str, suffixes: Sequence[str]) -> list[tuple[str, str]]:
    """What stands behind each ``+``: pairs such as ``("fail", "3-4")`` and ``("speed", "s0:10GB/s")``."""
    found: list[tuple[str, str]] = []
    for suffix in suffixes:
        name, equals, value = suffix.partition("=")
        if name not in ("fail", "speed") or not equals or not value:
            ways = (
                "+fail=A-B (both directions), +fail=A>B (one), +fail=rank:R, +fail=NAME or +speed=NAME:SPEED"
            )
            raise TopologyError(f"{spec}: '+{suffix}' must be {ways}")
        found.extend((name, part.strip()) for part in value.split(","))
    return found
