"""Several files that describe one cluster: the network from one, the machines from others.

`import_cluster` is behind ``weft import``. Files are told apart by what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weft import limits
from weft.errors import FormatError, InputError, quote
from weft.files import decode_text, exists, name_after, read_source
from weft.topology.cluster_fabric import ClusterOptions, ImportedBox, join_cluster
from weft.topology.hostlist import expand_hostlist
from weft.topology.ibnetdiscover import is_ibnetdiscover, parse_ibnetdiscover
from weft.topology.slurm import is_slurm_conf, is_slurm_yaml, parse_slurm_conf, parse_slurm_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.topology.cluster_fabric import ClusterFabric
    from weft.topology.graph import Topology


@dataclass(frozen=True)
class ClusterImport:
    """A topology, and which machine its ranks are on.

    Parameters
    ----------
    topology
        The cluster.
    nodes
        Names of machines, in the order of their ranks; empty where the file describes one machine.
    gpus
        Ranks of each machine.
    """

    topology: Topology
    nodes: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()


def fabric_kind(text: str) -> str | None:
    """Which of the formats of networks a text is of; None where it is of none.

    Examples
    --------
    >>> fabric_kind("SwitchName=s0 Nodes=n[0-3]"), fabric_kind("ranks = 4")
    ('topology.conf', None)
    """
    if is_ibnetdiscover(text):
        return "ibnetdiscover"
    if is_slurm_conf(text):
        return "topology.conf"
    return "topology.yaml" if is_slurm_yaml(text) else None


def read_fabric(text: str, source: str, kind: str, wanted: str | None = None) -> ClusterFabric:
    """Read a text of one of the formats that `fabric_kind` names."""
    if kind == "ibnetdiscover":
        return parse_ibnetdiscover(text, source)
    return (
        parse_slurm_conf(text, source) if kind == "topology.conf" else parse_slurm_yaml(text, source, wanted)
    )


def import_cluster(
    files: Sequence[str | Path],
    *,
    boxes: Sequence[str] = (),
    nodes: str | None = None,
    wanted: str | None = None,
    options: ClusterOptions | None = None,
) -> ClusterImport:
    """Make one topology of several files.

    Parameters
    ----------
    files
        At least one. Of a network: Slurm's topology.conf or topology.yaml, the output of ibnetdiscover, or
        both, where Slurm then says which machines there are and in which order, and ibnetdiscover how they
        are cabled. Where topology.yaml is given topology.conf is not used, as in Slurm. A single file of
        another kind, or a spec, is read as `weft.load_topology` reads it.
    boxes
        Files or specs of a machine, with ``HOSTS=`` before those that are not for all machines.
    nodes
        Hostlist of the machines to keep, in this order.
    wanted
        Name of the topology in a topology.yaml that has several.
    options
        What the files leave open.

    Raises
    ------
    InputError
        If a file cannot be read, or the files do not fit together.
    """
    if len(files) == 1 and not boxes and nodes is None and _is_no_file(str(files[0])):
        from weft.topology.load import load_topology

        return ClusterImport(load_topology(str(files[0])))
    texts = {}
    for file in files:
        source, data = read_source(str(file), limits.MAX_TEXT_BYTES)
        texts[source] = decode_text(source, data)
    kinds = {source: fabric_kind(text) for source, text in texts.items()}
    others = [source for source, kind in kinds.items() if kind is None]
    if others and len(texts) == 1 and not boxes and nodes is None:
        from weft.topology.load import parse_topology

        return ClusterImport(parse_topology(texts[others[0]], others[0]))
    if others:
        problem = "describes no network between machines; give a file that describes one machine with --box"
        raise FormatError(others[0], problem)
    if not texts:
        raise InputError("nothing to import; give a file, such as topology.conf")
    fabric, notes = _merge_fabrics(texts, kinds, wanted)
    if nodes is not None:
        fabric = fabric.only(expand_hostlist(nodes, "--nodes"), "--nodes")
    placed = _place_boxes(boxes, fabric)
    topology = join_cluster(name_after(fabric.source, "cluster"), fabric, placed, options, notes)
    gpus = tuple(placed[node].gpus if node in placed else 1 for node in fabric.nodes)
    return ClusterImport(topology, fabric.nodes, gpus)


def _is_no_file(text: str) -> bool:
    """Whether a text is a spec, or one machine many times, rather than the name of a file."""
    from weft.topology.repeated_box import split_repeated
    from weft.topology.spec_parser import is_spec

    return text != "-" and not exists(Path(text)) and (is_spec(text) or split_repeated(text) is not None)


def _merge_fabrics(
    texts: dict[str, str], kinds: dict[str, str | None], wanted: str | None
) -> tuple[ClusterFabric, list[str]]:
    found: dict[str, str] = {}
    for source, kind in kinds.items():
        assert kind is not None
        if kind in found:
            raise InputError(f"{found[kind]} and {source} are both of the kind {kind}; give one of them")
        found[kind] = source
    if wanted is not None and "topology.yaml" not in found:
        raise InputError(f"--topology {quote(wanted)}: only a topology.yaml has several topologies")
    notes = []
    if "topology.yaml" in found and "topology.conf" in found:
        ignored = found.pop("topology.conf")
        notes.append(f"{ignored} is not used: Slurm ignores topology.conf where topology.yaml exists")
    fabrics = {kind: read_fabric(texts[source], source, kind, wanted) for kind, source in found.items()}
    slurm = next((fabrics[kind] for kind in fabrics if kind != "ibnetdiscover"), None)
    cabled = fabrics.get("ibnetdiscover")
    if slurm is None or cabled is None:
        return next(iter(fabrics.values())), notes
    notes.append(f"machines and their order are those of {slurm.source}, cables those of {cabled.source}")
    return cabled.only(slurm.nodes, slurm.source), notes


def _place_boxes(boxes: Sequence[str], fabric: ClusterFabric) -> dict[str, ImportedBox]:
    """Box of each machine; a later one takes the place of an earlier one."""
    placed: dict[str, ImportedBox] = {}
    for text in boxes:
        hosts, names = text, list(fabric.nodes)
        head, equals, rest = text.partition("=")
        if equals and ":" not in head and not exists(Path(text)):
            hosts, names = rest, expand_hostlist(head, "--box")
            fabric.only(names, f"--box {quote(head)}")
        box = read_box(hosts)
        placed.update(dict.fromkeys(names, box))
    return placed


def read_box(text: str, rating: str = "nominal") -> ImportedBox:
    """Read the file or spec of one machine; `rating` is as for `weft.topology.load.read_topology`.

    Raises
    ------
    InputError
        If it cannot be read, or is of several machines.

    Examples
    --------
    >>> read_box("dgx-h100:1").gpus
    8
    """
    from weft.topology.load import is_nvidia_smi, load_topology, parse_topology
    from weft.topology.nccl_xml import parse_nccl_box
    from weft.topology.nvidia_smi import parse_nvidia_smi_box
    from weft.topology.spec_parser import is_spec

    if text == "-" or (not is_spec(text) and exists(Path(text))):
        source, data = read_source(text, limits.MAX_TEXT_BYTES)
        content = decode_text(source, data)
        if fabric_kind(content) is not None:
            raise FormatError(source, "describes a network between machines; a box is one machine")
        if content.lstrip("\ufeff \t\r\n").startswith("<"):
            return parse_nccl_box(content, source, rating)
        if is_nvidia_smi(content):
            return parse_nvidia_smi_box(content, source, rating)
        inside = parse_topology(content, source)
    else:
        source, inside = text, load_topology(text)
    if inside.ranks > limits.MAX_GPUS or len(inside.hosts) > 1:
        problem = f"has {inside.ranks} GPUs on {max(1, len(inside.hosts))} machines; a box is one machine"
        raise FormatError(source, problem)
    return ImportedBox(source, inside.ranks, inside, None, inside.notes)
