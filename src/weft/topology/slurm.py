"""Slurm's description of a network: ``topology.conf``, or the newer ``topology.yaml``.

::

    SwitchName=leaf1 Nodes=node[001-016]          - topology: default
    SwitchName=leaf2 Nodes=node[017-032]            tree:
    SwitchName=core Switches=leaf[1-2]                switches:
                                                        - switch: leaf1
    BlockName=rack1 Nodes=node[001-018]                   nodes: node[001-016]

A tree names the switches that nodes hang on, and those above. A block is a set of nodes that are close, such
as an NVLink domain; here it is a switch, and all blocks are on one core switch. Neither knows speeds: Slurm's
LinkSpeed is in arbitrary units, and Slurm itself does not use it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import FormatError, list_some, no_such, quote
from weft.topology.block_yaml import read_yaml
from weft.topology.cluster_fabric import ClusterFabric, FabricPort, FabricTrunk
from weft.topology.hostlist import expand_hostlist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.topology.block_yaml import Value

_SETTING: Final = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_INCLUDE: Final = re.compile(r"include\s+[^\s=]", re.IGNORECASE)
_KEYS: Final = {
    "switchname": {"switchname", "switches", "nodes", "linkspeed"},
    "blockname": {"blockname", "nodes"},
    "blocksizes": {"blocksizes"},
}
_CORE: Final = "core of all blocks"


@dataclass(frozen=True, slots=True)
class SlurmSwitch:
    """One switch, or one block: what is below it, and where the file says so."""

    name: str
    children: tuple[str, ...]
    nodes: tuple[str, ...]
    place: str
    is_block: bool = False


def is_slurm_conf(text: str) -> bool:
    """Whether the first line that says something is one of a ``topology.conf``."""
    line = _first_line(text)
    return line.partition("=")[0].strip().lower() in _KEYS or _INCLUDE.match(line) is not None


def is_slurm_yaml(text: str) -> bool:
    """Whether this is a list of YAML, as ``topology.yaml`` is and no other file that Weft reads."""
    return re.match(r"-(\s|$)", _first_line(text)) is not None


def _first_line(text: str) -> str:
    for line in re.finditer(r"[^\n]*", text.removeprefix("\ufeff")):
        found = line[0].strip()
        if found and not found.startswith("#") and found != "---":
            return found[: limits.MAX_SPEC_CHARACTERS]
    return ""


def parse_slurm_conf(text: str, source: str) -> ClusterFabric:
    """Read a ``topology.conf``.

    Raises
    ------
    FormatError
        If it is none; says in which line.

    Examples
    --------
    >>> parse_slurm_conf("SwitchName=s1 Nodes=n[1-3]", "topology.conf").nodes
    ('n1', 'n2', 'n3')
    """
    switches: list[SlurmSwitch] = []
    notes: list[str] = []
    for number, line in _logical_lines(text):
        place = f"line {number}"
        if _INCLUDE.match(line):
            problem = "Weft follows no Include; put the lines of that file in its place"
            raise FormatError(source, f"{quote(line)}: {problem}", place)
        found = _settings(line, source, place)
        kind = next((kind for kind in _KEYS if kind in found), None)
        if kind is None or set(found) - _KEYS[kind]:
            wrong = quote(line) if kind is None else list_some(sorted(set(found) - _KEYS[kind]))
            problem = (
                f"{wrong}: expected SwitchName=, Switches=, Nodes= and LinkSpeed=, or BlockName= and Nodes="
            )
            raise FormatError(source, problem, place)
        if kind == "blocksizes":
            continue
        if "linkspeed" in found and not notes:
            notes.append("LinkSpeed is in arbitrary units, says Slurm, and is not used")
        below = (
            tuple(expand_hostlist(found[key], source, place)) if key in found else ()
            for key in ("switches", "nodes")
        )
        children, nodes = below
        for name in expand_hostlist(found[kind], source, place):
            limits.check(f"{source}: switches", len(switches) + 1, limits.MAX_SWITCHES)
            switches.append(SlurmSwitch(name, children, nodes, place, kind == "blockname"))
    return build_slurm_fabric(switches, source, notes)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; a backslash at its end joins a line to the next."""
    held, start = "", 0
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.partition("#")[0].strip()
        start = start if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
        elif held or line:
            yield start, (held + line).strip()
            held = ""
    if held.strip():
        yield start, held.strip()


def _settings(line: str, source: str, place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    end = 0
    for match in _SETTING.finditer(line):
        key = match[1].lower()
        if line[end : match.start()].strip() or key in found:
            problem = f"{quote(line[end : match.end()])} is not understood; expected KEY=VALUE, each key once"
            raise FormatError(source, problem, place)
        found[key] = match[2]
        end = match.end()
    if not found or line[end:].strip():
        raise FormatError(source, f"{quote(line[end:].strip())} is not understood; expected KEY=VALUE", place)
    return found


def parse_slurm_yaml(text: str, source: str, wanted: str | None = None) -> ClusterFabric:
    """Read a ``topology.yaml``: the topology of that name, else that of the whole cluster, else the first.

    Raises
    ------
    FormatError
        If it is none.
    InputError
        If it has no topology of that name.
    """
    topologies = _maps(read_yaml(text, source), source, "the file")
    names = [_text(one, "topology", source, f"topology {number}") for number, one in enumerate(topologies, 1)]
    if not topologies:
        raise FormatError(source, "holds no topology")
    if wanted is not None and wanted not in names:
        raise no_such(f"topology in {source}", wanted, names)
    chosen = next((i for i, one in enumerate(topologies) if one.get("cluster_default") == "true"), 0)
    chosen = chosen if wanted is None else names.index(wanted)
    notes = []
    if len(names) > 1:
        notes.append(f"{names[chosen]} is read of the topologies {list_some(names)} (--topology)")
    one, where = topologies[chosen], f"topology {quote(names[chosen])}"
    kinds = [kind for kind in one if kind not in ("topology", "cluster_default")]
    if kinds == ["tree"]:
        switches = list(_yaml_switches(one["tree"], source, where))
    elif kinds == ["block"]:
        switches = list(_yaml_blocks(one["block"], source, where))
    else:
        found = list_some(kinds) or "nothing"
        problem = f"{where} has {found}; Weft reads tree or block, because flat and others name no switches"
        raise FormatError(source, problem)
    return build_slurm_fabric(switches, source, notes)


def _yaml_switches(tree: Value, source: str, where: str) -> Iterator[SlurmSwitch]:
    rows = _maps(_map(tree, source, where).get("switches", []), source, f"{where}, switches")
    for number, row in enumerate(rows, 1):
        place = f"{where}, switch {number}"
        _known(row, {"switch", "children", "nodes"}, source, place)
        children, nodes = (_hosts(row, key, source, place) for key in ("children", "nodes"))
        for name in expand_hostlist(_text(row, "switch", source, place), source, place):
            yield SlurmSwitch(name, children, nodes, place)


def _yaml_blocks(block: Value, source: str, where: str) -> Iterator[SlurmSwitch]:
    rows = _maps(_map(block, source, where).get("blocks", []), source, f"{where}, blocks")
    for number, row in enumerate(rows, 1):
        place = f"{where}, block {number}"
        _known(row, {"block", "nodes"}, source, place)
        nodes = _hosts(row, "nodes", source, place)
        yield SlurmSwitch(_text(row, "block", source, place), (), nodes, place, is_block=True)


def _map(value: Value, source: str, where: str) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise FormatError(source, f"{where}: expected keys and values")
    return value


def _maps(value: Value, source: str, where: str) -> list[dict[str, Value]]:
    if not isinstance(value, list):
        raise FormatError(source, f"{where}: expected a list, lines that begin with a dash")
    return [_map(one, source, where) for one in value]


def _known(row: dict[str, Value], keys: set[str], source: str, place: str) -> None:
    unknown = sorted(set(row) - keys)
    if unknown:
        raise FormatError(source, f"{place}: unknown {list_some(unknown)}; known: {', '.join(sorted(keys))}")


def _text(row: dict[str, Value], key: str, source: str, place: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise FormatError(source, f"{place} has no {key}")
    return value


def _hosts(row: dict[str, Value], key: str, source: str, place: str) -> tuple[str, ...]:
    if key not in row:
        return ()
    value = row[key]
    given = value if isinstance(value, list) else [value]
    words = [word for word in given if isinstance(word, str) and word]
    if not words or len(words) < len(given):
        raise FormatError(source, f"{place}: {key} must be a hostlist such as node[01-16]")
    return tuple(expand_hostlist(",".join(words), source, place))


def build_slurm_fabric(switches: list[SlurmSwitch], source: str, notes: list[str]) -> ClusterFabric:
    """Check that the switches are a network, and number them.

    Raises
    ------
    FormatError
        If a switch is described twice or not at all, or a node is on two.
    """
    blocks = [switch for switch in switches if switch.is_block]
    if not switches or (blocks and len(blocks) < len(switches)):
        problem = "describes both a tree and blocks" if switches else "describes no switch and no block"
        raise FormatError(source, problem)
    if blocks:
        notes = [*notes, "a block is a switch, and all blocks are on one core switch"]
        if len(blocks) > 1:
            switches = [*blocks, SlurmSwitch(_CORE, tuple(block.name for block in blocks), (), "")]
    number = {switch.name: index for index, switch in enumerate(switches)}
    twice = [name for name, count in Counter(switch.name for switch in switches).items() if count > 1]
    if twice:
        raise FormatError(source, f"{list_some(twice, 4)} described twice")
    limits.check(f"{source}: machines", sum(len(switch.nodes) for switch in switches), limits.MAX_RANKS)
    limits.check(f"{source}: cables", sum(len(switch.children) for switch in switches), limits.MAX_LINKS // 2)
    home: dict[str, int] = {}
    trunks: list[FabricTrunk] = []
    for index, switch in enumerate(switches):
        for node in switch.nodes:
            if node in home:
                both = f"{switches[home[node]].name} and {switch.name}"
                raise FormatError(
                    source, f"node {node} is on {both}; Weft needs one switch for it", switch.place
                )
            home[node] = index
        for child in switch.children:
            if child not in number:
                problem = f"switch {quote(child)} below {switch.name} is not described"
                raise FormatError(source, problem, switch.place)
            if child == switch.name:
                raise FormatError(source, f"switch {switch.name} is below itself", switch.place)
            trunks.append(FabricTrunk(number[child], index))
    if not home:
        raise FormatError(source, "names no nodes")
    ports = tuple((FabricPort(index),) for index in home.values())
    return ClusterFabric(source, tuple(home), tuple(number), ports, tuple(trunks), tuple(notes))
