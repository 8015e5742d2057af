"""Several files that describe one cluster: the network from one, the machines from others.

`import_cluster` is behind ``weft import``. Files are told apart by what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft import limits
from weft.errors import FormatError, InputError, TopologyError, check_choice, quote
from weft.files import decode_text, exists, name_after, read_source
from weft.topology.cluster_fabric import ClusterOptions, ImportedBox, join_cluster
from weft.topology.hostlist import expand_hostlist
from weft.topology.ibnetdiscover import is_ibnetdiscover, parse_ibnetdiscover
from weft.topology.rated_links import RATINGS
from weft.topology.slurm import is_slurm_conf, is_slurm_yaml, parse_slurm_conf, parse_slurm_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.topology.cluster_fabric import ClusterFabric
    from weft.topology.graph import Topology
    from weft.topology.load import ChangedFile


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
        another kind, or a spec, is read as `weft.load_topology` reads it; a single file may have ``+fail=``
        or ``+speed=`` behind it, whatever its kind.
    boxes
        Files or specs of a machine, with ``HOSTS=`` before those that are not for all machines, and
        ``@speed=effective`` behind those of files whose links are to have the speeds that they achieve.
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
    changed = _split_file(str(files[0])) if len(files) == 1 else None
    if changed is not None and changed.changes:
        from weft.topology.load import with_faults

        unchanged = str(files[0]).removesuffix(changed.changes)
        found = import_cluster([unchanged], boxes=boxes, nodes=nodes, wanted=wanted, options=options)
        return replace(found, topology=with_faults(found.topology, changed.changes))
    texts = {}
    for file in files:
        if (changed := _split_file(str(file))) is not None:
            behind = str(file).removeprefix(changed.file)
            raise InputError(f"{quote(behind)} behind {changed.file}: leave it out, or give it with --box")
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
    """Whether a text is a spec, one machine many times, or a file with a rating behind its name."""
    from weft.topology.repeated_box import split_repeated
    from weft.topology.spec_parser import is_spec

    if text == "-" or exists(Path(text)):
        return False
    if is_spec(text) or split_repeated(text) is not None:
        return True
    changed = _split_file(text)
    return changed is not None and changed.rating is not None


def _split_file(text: str) -> ChangedFile | None:
    """Take apart the name of a file with changes behind it; None for a spec and for a file that exists."""
    from weft.topology.load import split_changes
    from weft.topology.spec_parser import is_spec

    return None if text == "-" or is_spec(text) else split_changes(text)


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
        what, names = text, list(fabric.nodes)
        head = _hosts_before(text)
        if head is not None:
            what, names = text[len(head) + 1 :], expand_hostlist(head, "--box")
            fabric.only(names, f"--box {quote(head)}")
        if not what:
            problem = "names no machine; give a file or spec of one, such as dgx-h100:1"
            raise InputError(f"--box {quote(text)}: {problem}")
        box = read_box(what)
        placed.update(dict.fromkeys(names, box))
    return placed


def _hosts_before(text: str) -> str | None:
    """What stands before the ``=`` of ``HOSTS=WHAT``; None where the text is a file or spec alone."""
    head, equals, _ = text.partition("=")
    if not equals or any(sign in head for sign in ":@+"):
        return None
    changed = _split_file(text)
    return None if exists(Path(text if changed is None else changed.file)) else head


def read_box(text: str, rating: str = "nominal") -> ImportedBox:
    """Read the file or spec of one machine.

    Parameters
    ----------
    text
        The name of a file, perhaps with ``@speed=effective`` behind it, or a spec.
    rating
        As for `weft.topology.load.read_topology`, where the text does not say it.

    Raises
    ------
    InputError
        If it cannot be read, is of several machines, or has changes such as ``+fail=`` behind a file that
        says what NICs there are.

    Examples
    --------
    >>> read_box("dgx-h100:1").gpus
    8
    """
    from weft.topology.load import is_nvidia_smi, load_topology, parse_topology, with_faults
    from weft.topology.nccl_xml import parse_nccl_box
    from weft.topology.nvidia_smi import parse_nvidia_smi_box
    from weft.topology.spec_parser import is_spec

    changed = _split_file(text)
    file, own, changes = (text, None, "") if changed is None else changed
    check_choice("speed", rating if own is None else own, RATINGS, TopologyError)
    if file == "-" or (not is_spec(text) and exists(Path(file))):
        source, data = read_source(file, limits.MAX_TEXT_BYTES)
        content = decode_text(source, data)
        if fabric_kind(content) is not None:
            raise FormatError(source, "describes a network between machines; a box is one machine")
        for is_of_kind, parse in ((_is_xml, parse_nccl_box), (is_nvidia_smi, parse_nvidia_smi_box)):
            if is_of_kind(content):
                if changes:
                    problem = "is not for the file of a box; write it behind the whole cluster"
                    raise FormatError(source, f"{quote(changes)} {problem}")
                return parse(content, source, rating if own is None else own)
        inside = parse_topology(content, source, "nominal" if own is None else own)
        inside = with_faults(inside, changes) if changes else inside
    else:
        source, inside = text, load_topology(text)
    if len(inside.hosts) > 1:
        problem = f"has {inside.ranks:,} GPUs on {len(inside.hosts):,} machines; a box is one machine"
        raise FormatError(source, problem)
    if inside.ranks > limits.MAX_GPUS:
        raise FormatError(source, f"has {inside.ranks:,} GPUs; one machine has {limits.MAX_GPUS} at most")
    return ImportedBox(source, inside.ranks, inside, None, inside.notes)


def _is_xml(text: str) -> bool:
    return text.lstrip("\ufeff \t\r\n").startswith("<")
