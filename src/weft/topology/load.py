"""The one door to topologies: a spec string, a file, or a networkx graph."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from weft import limits
from weft.errors import FormatError, InputError, TopologyError, check_choice
from weft.files import decode_text, exists, name_after, read_bytes, standard_input
from weft.topology.graph import Topology
from weft.topology.kinds import KINDS
from weft.topology.rated_links import RATINGS
from weft.topology.repeated_box import parse_repeated, split_repeated
from weft.topology.spec_parser import is_spec, parse_spec, read_suffixes, with_changes

_CHANGED_FILE: Final = re.compile(
    r"(?P<file>.+?)(?:@speed=(?P<rating>[a-z]*))?(?P<changes>(?:\+(?:fail|speed)=.*)?)\Z", re.DOTALL
)
_MOST_NAMES: Final = 1000
"""Files of a folder in which a name that is nearly right is looked for."""


def load_topology(source: str | Path | Topology | Any) -> Topology:
    """Build a topology from whatever describes it.

    Parameters
    ----------
    source
        A spec such as ``"torus:8x8@bw=16GB/s"``; one machine many times on a fabric,
        ``"node.xml*16@fabric=rails"``; the name of a TOML file, an NCCL XML file, the saved output
        of ``nvidia-smi topo -m`` or ``ibnetdiscover``, or Slurm's topology.conf or topology.yaml, with
        ``+fail=3-4`` behind it if something broke, and ``@speed=effective`` behind a machine's file for what
        links achieve; ``"-"`` for any of those files on standard input; a
        networkx graph; or a `Topology`, which is returned as it is.

    Raises
    ------
    InputError
        If it cannot be read, does not exist or describes no possible cluster.

    Examples
    --------
    >>> load_topology("hosts:4,2@intra=100GB/s,uplink=10GB/s")
    <Topology hosts:4,2@intra=100GB/s,uplink=10GB/s: 6 ranks, 3 switches, 16 links>
    """
    if isinstance(source, Topology):
        return source
    if isinstance(source, Path):
        return _load_file(source)
    if not isinstance(source, str):
        if all(hasattr(source, name) for name in ("nodes", "edges", "graph", "is_directed")):
            from weft.topology.networkx_bridge import from_networkx

            return from_networkx(source)
        raise TopologyError(f"a topology is a spec, a file or a networkx graph, not {type(source).__name__}")
    if not source.strip():
        raise InputError("the topology is empty; a spec looks like torus:8x8 or hosts:8,4,2")
    if source == "-":
        return read_topology(standard_input(), "<stdin>")
    repeated = split_repeated(source)
    if repeated is not None:
        return parse_repeated(source, repeated)
    if is_spec(source):
        return parse_spec(source)
    changed = split_changes(source)
    if changed is None:
        return _load_file(Path(source))
    loaded = _load_file(Path(changed.file), "nominal" if changed.rating is None else changed.rating)
    return with_faults(loaded, changed.changes) if changed.changes else loaded


class ChangedFile(NamedTuple):
    """The name of a file, and what stands behind it: the rating of its speeds, and changes of links."""

    file: str
    rating: str | None
    changes: str


def split_changes(text: str) -> ChangedFile | None:
    """Take apart the name of a file with ``@speed=``, ``+fail=`` or ``+speed=`` behind it.

    None where nothing stands behind the name, and where a file is called like the whole text.

    Examples
    --------
    >>> split_changes("node.xml@speed=effective+fail=0-1")
    ChangedFile(file='node.xml', rating='effective', changes='+fail=0-1')
    >>> split_changes("node.xml") is None
    True
    """
    match = _CHANGED_FILE.match(text)
    if match is None or (match["rating"] is None and not match["changes"]) or exists(Path(text)):
        return None
    return ChangedFile(match["file"], match["rating"], match["changes"])


def with_faults(topology: Topology, suffix: str) -> Topology:
    """A topology from a file after what ``+fail=...`` or ``+speed=...`` says; its name says so too.

    Examples
    --------
    >>> with_faults(load_topology("ring:4"), "+fail=0-1")
    <Topology ring:4+fail=0-1: 4 ranks, 0 switches, 6 links>
    """
    changes = read_suffixes(topology.name, suffix.split("+")[1:])
    return with_changes(replace(topology, name=f"{topology.name}{suffix}"), changes)


def _load_file(path: Path, rating: str = "nominal") -> Topology:
    if not exists(path):
        kind = re.split("[@+]", str(path), maxsplit=1)[0]
        hint = "a spec looks like torus:8x8 or hosts:8,4,2"
        if kind in KINDS:
            hint = f"did you mean {kind}:{KINDS[kind].example}{str(path)[len(kind) :]}?"
        elif str(path)[len(kind) :].startswith("@") and exists(Path(kind)):
            hint = f"options other than speed= are for machines on a fabric: {kind}*2{str(path)[len(kind) :]}"
        elif near := _find_near(path):
            hint = f"did you mean {near}?"
        raise InputError(f"{path}: no such file, and not a spec either; {hint}")
    return read_topology(path, str(path), rating)


def _find_near(path: Path) -> Path | None:
    """A file beside a path that is not there, with a name that is nearly the same."""
    try:
        names = [entry.name for entry in islice(path.parent.iterdir(), _MOST_NAMES) if entry.is_file()]
    except (OSError, ValueError):
        return None
    close = difflib.get_close_matches(path.name, names, 1, cutoff=0.8)
    return path.parent / close[0] if close else None


def read_topology(stream: Path | BinaryIO, source: str, rating: str = "nominal") -> Topology:
    """Read a topology file of any format; `source` is its name in messages.

    `rating` says whether speeds that a file leaves to Weft are ``"nominal"`` or ``"effective"``.

    Raises
    ------
    InputError
        If it is no topology, or one that cannot be.
    """
    data = read_bytes(source, stream, limits.MAX_TEXT_BYTES)
    if data.startswith(b"\x89WEFT") or (data.lstrip()[:1] == b"{" and b'"weft_schedule"' in data):
        problem = "a schedule, not a topology; weft verify, simulate and export take it without --algorithm"
        raise FormatError(source, problem)
    return parse_topology(decode_text(source, data), source, rating)


def is_nvidia_smi(text: str) -> bool:
    """Whether a text has the table of ``nvidia-smi topo -m``, be it below a shell prompt or other lines."""
    if "GPU0" in text:
        from weft.topology.nvidia_smi import find_table

        if find_table(text) is not None:
            return True
    return text.lstrip("\ufeff \t\r\n").startswith("\x1b")


def parse_topology(text: str, source: str, rating: str = "nominal") -> Topology:
    """Read the text of a topology file; formats are told apart by their first words, not by file endings."""
    check_choice("speed", rating, RATINGS, TopologyError)
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        from weft.topology.nccl_xml import parse_nccl_xml

        return parse_nccl_xml(text, source, rating)
    if is_nvidia_smi(text):
        from weft.topology.nvidia_smi import parse_nvidia_smi

        return parse_nvidia_smi(text, source, rating)
    if not start:
        problem = "the file is empty; expected a TOML topology or a file that weft import --help names"
        raise FormatError(source, problem)
    if rating != "nominal":
        raise FormatError(source, "only files of machines leave speeds open; leave @speed= out")
    from weft.topology.cluster_import import fabric_kind, read_fabric

    kind = fabric_kind(text)
    if kind is not None:
        from weft.topology.cluster_fabric import join_cluster

        return join_cluster(name_after(source, "cluster"), read_fabric(text, source, kind), {})
    from weft.topology.toml_file import parse_toml

    return parse_toml(text, source)
