"""The topology file: a cluster written down by hand, by ``weft probe`` or by `format_toml`.

``docs/topology.md`` describes every key. The shape is fixed, so a key that nobody reads is an error that
names its place and the key that was probably meant. `parse_toml` and `format_toml` are inverses: link
numbers, and with them the digest, survive.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np

from weft import limits, units
from weft.errors import DisconnectedError, FormatError, InputError, TopologyError, UnitError
from weft.files import name_after, write_bytes
from weft.topology.graph import ROUTING_KINDS, Routing, Topology, node_number
from weft.topology.json_reading import split_place
from weft.topology.record import checked_grid
from weft.topology.size_bounds import size_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from weft.topology.graph import Grid

    _Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]


_DIGITS: Final = bytes(
    ord("0") if chr(byte) in "0123456789abcdefABCDEFox_" else ord(" ") for byte in range(256)
)
_DOTTED_KEY: Final = re.compile(r"\.[ \t]*[\w\"'-]")
_MOST_QUOTED: Final = 60
_SYNTAX: Final = re.compile(r"(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)\Z", re.DOTALL)

_PLAIN: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a decimal number",
    "int": "a whole number",
    "object": "a table",
    "str": "text",
}

_Count = Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_LINKS)]


class LinkEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[links]]`` table."""

    src: int | str
    dst: int | str
    bandwidth: int | str
    latency: int | str
    duplex: bool = False
    count: _Count = 1
    back: int | str | None = None
    src_address: str | None = None
    dst_address: str | None = None


class TopologyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    ranks: Annotated[int, msgspec.Meta(ge=2, le=limits.MAX_RANKS)]
    links: list[LinkEntry]
    name: str | None = None
    switches: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SWITCHES)] = 0
    hosts: list[list[int]] = msgspec.field(default_factory=list)
    routing: str | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SEED)] = 0
    grid: list[int] | None = None
    wrap: list[bool] | None = None
    rank_labels: list[Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_RANKS)]] = msgspec.field(
        default_factory=list
    )
    switch_names: list[str] = msgspec.field(default_factory=list)


def parse_toml(text: str, source: str) -> Topology:
    """Build the topology that a TOML file describes.

    Parameters
    ----------
    text
        Contents of the file.
    source
        Its name, for error messages.

    Raises
    ------
    FormatError
        If something is wrong with the file; says where.
    DisconnectedError
        If its links leave ranks that cannot reach each other.

    Examples
    --------
    >>> parse_toml('''
    ... ranks = 2
    ... links = [{src = 0, dst = 1, bandwidth = "10GB/s", latency = "5us", duplex = true}]
    ... ''', "pair.toml")
    <Topology pair: 2 ranks, 0 switches, 2 links>
    """
    file = _decode(text, source)
    name = file.name if file.name is not None else name_after(source, "topology")
    columns, addresses = _read_links(file, source)
    try:
        return Topology(
            name,
            file.ranks,
            file.switches,
            *columns,
            hosts=_read_hosts(file, source),
            grid=_read_grid(file, source),
            routing=_read_routing(file, source),
            rank_labels=tuple(file.rank_labels),
            addresses=addresses,
            switch_names=tuple(file.switch_names),
        )
    except DisconnectedError as error:
        one_way = sum(not entry.duplex for entry in file.links)
        hint = f"; {one_way:,} of the links go one way, and a cable has duplex = true" if one_way else ""
        raise DisconnectedError(f"{source}: {error}{hint}") from error
    except TopologyError as error:
        raise FormatError(source, str(error)) from error


def save_topology(topology: Topology, path: str | Path) -> None:
    """Write a topology file, which `load_topology` reads again.

    Parameters
    ----------
    topology
        What to write, the addresses of its cables included.
    path
        A file there is replaced whole or not at all.
    """
    write_bytes(path, format_toml(topology).encode())


def format_toml(topology: Topology, remarks: Mapping[int, str] | None = None) -> str:
    """Write a topology as a file that `parse_toml` reads back to the same digest.

    Parameters
    ----------
    topology
        What to write.
    remarks
        One line for some of the links, as a comment of theirs.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> print(format_toml(load_topology("ring:3@back=1GB/s")))
    name = "ring:3@back=1GB/s"
    ranks = 3
    grid = [3]
    wrap = [true]
    <BLANKLINE>
    [[links]]
    src = 0
    dst = 1
    bandwidth = "25GB/s"
    back = "1GB/s"
    latency = "1us"
    duplex = true
    ...
    """
    lines = [f"# assumed: {line}" for note in topology.notes for line in note.splitlines()]
    lines += [f"name = {_quote(topology.name)}", f"ranks = {topology.ranks}"]
    if topology.switches:
        lines.append(f"switches = {topology.switches}")
    if topology.hosts:
        lines.append(f"hosts = {json.dumps(topology.hosts)}")
    if topology.grid is not None:
        lines.append(f"grid = {json.dumps(topology.grid.shape)}")
        lines.append(f"wrap = {json.dumps(topology.grid.wrap)}")
    if topology.routing.kind != _default_routing(topology.grid):
        lines.append(f"routing = {_quote(topology.routing.kind)}")
    if topology.routing.seed:
        lines.append(f"seed = {topology.routing.seed}")
    if topology.rank_labels:
        lines.append(f"rank_labels = {json.dumps(topology.rank_labels)}")
    if topology.switch_names:
        lines.append(f"switch_names = [{', '.join(map(_quote, topology.switch_names))}]")
    for entry, same in groupby(_entries(topology, remarks or {})):
        lines += ["", "[[links]]", *entry]
        if (count := len(list(same))) > 1:
            lines.append(f"count = {count}")
    return "\n".join(lines) + "\n"


def _decode(text: str, source: str) -> TopologyFile:
    text = text.removeprefix("\ufeff")
    _check_size(text, source)
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise FormatError(source, "nested too deeply; a topology file nests twice at most") from None
    except tomllib.TOMLDecodeError as error:
        match = _SYNTAX.match(str(error))
        line = int((match and match[2]) or text.count("\n") + 1)
        quoted = _quote_line(text.split("\n")[line - 1])
        problem = f"not TOML: {match[1] if match else error}{quoted}"
        raise FormatError(source, problem, f"line {line}") from error
    except ValueError as error:  # Python reads no integer of more than 4,300 digits, and no day 0 of a month
        raise FormatError(source, f"not TOML: {error}") from error
    _refuse_unknown(tree, TopologyFile, source, "")
    links = tree.get("links")
    for index, entry in enumerate(links if isinstance(links, list) else ()):
        _refuse_unknown(entry, LinkEntry, source, f"links[{index}]")
    try:
        return msgspec.convert(tree, TopologyFile)
    except msgspec.ValidationError as error:
        raise _explained(source, str(error)) from error


def _quote_line(line: str) -> str:
    """Add a line of the file to a message, as much of it as is worth reading."""
    shown = re.sub(r"[^\x20-\x7e]", "?", line.strip())
    if not shown:
        return ""
    cut = shown if len(shown) <= _MOST_QUOTED else f"{shown[: _MOST_QUOTED - 3]}..."
    return f", in `{cut}`"


def _explained(source: str, message: str) -> FormatError:
    """Say what msgspec found wrong in the words of a TOML file."""
    problem, place = split_place(message)
    missing = re.search(r"missing required field `(\w+)`", problem)
    if missing:
        return FormatError(source, f"{missing[1]} is missing", place or None)
    words = re.sub(
        r"`([a-z |]+)`",
        lambda types: " or ".join(_PLAIN.get(word, word) for word in types[1].split(" | ") if word != "null"),
        problem,
    )
    return FormatError(source, words[:1].lower() + words[1:], place or None)


def _check_size(text: str, source: str) -> None:
    """Refuse what would keep tomllib busy: it takes microseconds a token, and squares dotted keys."""
    tokens = text.count("\n") + text.count(",") + text.count("\\") + text.count(".") // 2
    if tokens > limits.MAX_TOML_TOKENS:
        problem = f"{tokens:,} lines and values, more than the {limits.MAX_TOML_TOKENS:,} that Weft reads"
        raise FormatError(source, problem)
    # Python's pattern matcher keeps a hundred bytes for every digit.
    runs = text.encode("ascii", "replace").translate(_DIGITS)
    long = runs.find(b"0" * (limits.MAX_LINE_CHARACTERS + 1))
    if long >= 0:
        place = f"line {text.count(chr(10), 0, long) + 1}"
        raise FormatError(source, f"more than {limits.MAX_LINE_CHARACTERS:,} digits in a row", place)
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > limits.MAX_DEPTH and len(_DOTTED_KEY.findall(line)) > limits.MAX_DEPTH:
            problem = f"a key of more than {limits.MAX_DEPTH} parts; no key has a dot"
            raise FormatError(source, problem, f"line {number}")


def _refuse_unknown(table: Any, struct: type[msgspec.Struct], source: str, path: str) -> None:
    if not isinstance(table, dict):
        return
    known = struct.__struct_fields__
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key[:40], known, 1)
            hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(known)}"
            shown = re.sub(r"[^\x20-\x7e]", "?", key[:40])
            raise FormatError(source, f"unknown key, {hint}", f"{path}.{shown}" if path else shown)


def _read_links(file: TopologyFile, source: str) -> tuple[_Columns, tuple[tuple[int, str, str], ...]]:
    """Columns of directed links, forward and back of each cable in turn, and their addresses."""
    sizes = np.array([entry.count << entry.duplex for entry in file.links], np.int64)
    size_bounds().check(source, file.ranks, file.switches, int(sizes.sum()))
    starts = np.cumsum(sizes) - sizes
    ends = np.empty((len(file.links), 2), np.int32)
    speed = np.empty((len(file.links), 2), np.int64)
    latency = np.empty(len(file.links), np.int64)
    addresses: list[tuple[int, str, str]] = []
    named = {name: file.ranks + number for number, name in enumerate(file.switch_names)}
    for index, entry in enumerate(file.links):
        place = f"links[{index}]"
        ends[index, 0] = _node(file, named, entry.src, source, f"{place}.src")
        ends[index, 1] = _node(file, named, entry.dst, source, f"{place}.dst")
        if ends[index, 0] == ends[index, 1]:
            raise FormatError(source, f"joins {entry.src} to itself", place)
        speed[index] = _speed(entry.bandwidth, source, f"{place}.bandwidth")
        if entry.back is not None:
            speed[index, 1] = _speed(entry.back, source, f"{place}.back")
            if not entry.duplex:
                problem = "only a duplex link has a way back; add duplex = true"
                raise FormatError(source, problem, f"{place}.back")
        latency[index] = _quantity(units.parse_time, entry.latency, source, f"{place}.latency")
        rows = range(starts[index], starts[index] + sizes[index])
        addresses.extend(_link_addresses(entry, source, place, rows))
    duplex = np.array([entry.duplex for entry in file.links], bool)
    of = np.repeat(np.arange(len(file.links)), sizes)
    way = np.where(duplex[of], (np.arange(len(of)) - starts[of]) % 2, 0)
    return (ends[of, way], ends[of, 1 - way], speed[of, way], latency[of]), tuple(addresses)


def _link_addresses(entry: LinkEntry, source: str, place: str, rows: range) -> Iterator[tuple[int, str, str]]:
    src, dst = entry.src_address, entry.dst_address
    if src is None and dst is None:
        return
    if src is None or dst is None:
        raise FormatError(source, "src_address and dst_address are given together or not at all", place)
    for name, text in (("src_address", src), ("dst_address", dst)):
        if not text or len(text) > limits.MAX_SPEC_CHARACTERS:
            problem = f"an address has 1 to {limits.MAX_SPEC_CHARACTERS} characters"
            raise FormatError(source, problem, f"{place}.{name}")
    for k, row in enumerate(rows):
        yield (row, dst, src) if entry.duplex and k % 2 else (row, src, dst)


def _node(file: TopologyFile, named: dict[str, int], value: int | str, source: str, place: str) -> int:
    text = str(value).strip()
    node = node_number(text, file.ranks, file.switches)
    node = named.get(text) if node is None else node
    if node is not None:
        return node
    switches = f" and switches s0..s{file.switches - 1}" if file.switches else " and no switches"
    close = difflib.get_close_matches(text, named, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    problem = f"there is no node {text[:40]!r}; the file has ranks 0..{file.ranks - 1}{switches}{hint}"
    raise FormatError(source, problem, place)


def _speed(value: int | str, source: str, place: str) -> int:
    if isinstance(value, int):
        raise FormatError(source, 'a speed needs its unit; write text such as "25GB/s"', place)
    return _quantity(units.parse_bandwidth, value, source, place)


def _quantity(parse: Any, value: int | str, source: str, place: str) -> int:
    try:
        return int(parse(value))
    except UnitError as error:
        raise FormatError(source, str(error), place) from error


def _read_hosts(file: TopologyFile, source: str) -> tuple[tuple[int, ...], ...]:
    seen: set[int] = set()
    for index, host in enumerate(file.hosts):
        place = f"hosts[{index}]"
        if not host:
            raise FormatError(source, "a host without ranks; leave it out", place)
        for rank in host:
            if not 0 <= rank < file.ranks:
                raise FormatError(source, f"there is no rank {rank}; ranks are 0..{file.ranks - 1}", place)
            if rank in seen:
                raise FormatError(source, f"rank {rank} is already on a host", place)
            seen.add(rank)
    if file.hosts and len(seen) < file.ranks:
        missing = next(rank for rank in range(file.ranks) if rank not in seen)
        problem = f"rank {missing} is on no host; name every rank, or leave hosts out"
        raise FormatError(source, problem, "hosts")
    return tuple(tuple(host) for host in file.hosts)


def _read_grid(file: TopologyFile, source: str) -> Grid | None:
    if file.grid is None:
        if file.wrap is not None:
            raise FormatError(source, "says which dimensions of a grid close, but there is no grid", "wrap")
        return None
    wrap = file.wrap if file.wrap is not None else [False] * len(file.grid)
    try:
        return checked_grid(source, file.grid, wrap, file.ranks)
    except InputError as error:
        raise FormatError(source, str(error).removeprefix(f"{source}: "), "grid") from error


def _read_routing(file: TopologyFile, source: str) -> Routing:
    kind = _default_routing(file.grid) if file.routing is None else file.routing
    if kind not in ROUTING_KINDS:
        problem = f"{kind[:40]!r} is unknown, expected one of {', '.join(ROUTING_KINDS)}"
        raise FormatError(source, problem, "routing")
    return Routing(kind, file.seed)


def _default_routing(grid: object) -> str:
    return "shortest" if grid is None else "dimension-order"


def _entries(topology: Topology, remarks: Mapping[int, str]) -> Iterator[list[str]]:
    """Lines of one table for each cable or single direction, in link order."""
    columns = (topology.link_src, topology.link_dst, topology.bandwidth, topology.latency_ps)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    rows.append((-1, -1, -1, -1))  # after the last one: the way back of none
    addresses = {link: (src, dst) for link, src, dst in topology.addresses}
    link = 0
    while link < topology.links:
        src, dst, speed, latency = rows[link]
        there = addresses.get(link)
        mirrored = there and there[::-1]
        next_src, next_dst, back, next_latency = rows[link + 1]
        turned = (next_dst, next_src, next_latency) == (src, dst, latency)
        duplex = turned and addresses.get(link + 1) == mirrored
        of_entry = (link, link + 1) if duplex else (link,)
        entry = [f"# {' '.join(remarks[one].split())}" for one in of_entry if one in remarks]
        entry += [f"src = {_node_value(topology, src)}", f"dst = {_node_value(topology, dst)}"]
        entry.append(f'bandwidth = "{units.format_bandwidth(speed)}"')
        if duplex and back != speed:
            entry.append(f'back = "{units.format_bandwidth(back)}"')
        entry.append(f'latency = "{units.format_time(latency)}"')
        if duplex:
            entry.append("duplex = true")
        if there is not None:
            entry += [f"src_address = {_quote(there[0])}", f"dst_address = {_quote(there[1])}"]
        yield entry
        link += 2 if duplex else 1


def _node_value(topology: Topology, node: int) -> str:
    return str(node) if node < topology.ranks else f'"{topology.node_key(node)}"'


def _quote(text: str) -> str:
    """Write a TOML basic string; JSON's escapes are the same but for one character."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
