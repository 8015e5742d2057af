"""``weft import``: make one topology file of what a scheduler, a fabric and machines say about a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from weft import units
from weft.cli import options
from weft.cli.output import check_outputs, make_console, print_json, write_output
from weft.errors import InputError, printable
from weft.files import name_after

if TYPE_CHECKING:
    from weft.topology.cluster_import import ClusterImport

_SPEED = options.OptionType("SPEED", lambda _, text: units.parse_bandwidth(text))
_TIME = options.OptionType("TIME", lambda _, text: units.parse_time(text))
_RATIO = options.number("RATIO", lambda ratio: 0.001 <= ratio <= 1000, "give a ratio, such as 2 for 2:1")


@click.command(
    "import",
    epilog=options.examples(
        "weft import topology.conf -o cluster.toml",
        "weft import topology.conf --box dgx-h100:1 --nic-speed 400Gbit/s -o cluster.toml",
        "weft import ibnet.txt topology.conf --box nccl-topo.xml -o cluster.toml",
        "weft import ibnet.txt --nodes 'node[001-032]' --box a.xml --box 'node[017-032]=b.xml'",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="FILE", help="Write the topology file; - for standard output.")
@click.option(
    "--box", "boxes", multiple=True, metavar="[HOSTS=]WHAT", help="Inside of each machine, or of HOSTS."
)
@click.option("--nodes", metavar="HOSTS", help="Keep these machines, in this order: node[001-064,070].")
@click.option("--topology", "wanted", metavar="NAME", help="Topology of a topology.yaml that has several.")
@click.option("--nic-speed", type=_SPEED, default="50GB/s", help="Of a NIC, where no file says it.")
@click.option("--nics", type=click.IntRange(1, 256), help="NICs of a machine, else one for each GPU.")
@click.option("--latency", type=_TIME, default="1us", help="Of one link of the network.")
@click.option(
    "--oversubscription",
    type=_RATIO,
    default="1",
    help="What is below a switch, over what its uplinks carry.",
)
@click.option("--svg", metavar="FILE", help="Write a drawing.")
@options.as_json
def command(
    files: tuple[str, ...],
    output: str | None,
    boxes: tuple[str, ...],
    nodes: str | None,
    wanted: str | None,
    svg: str | None,
    as_json: bool,
    **open_values: Any,
) -> None:
    """Make one topology file of the files that describe a cluster.

    A FILE is Slurm's topology.conf or topology.yaml, or the output of ibnetdiscover, or both: Slurm then says
    which machines there are and in which order, ibnetdiscover how they are cabled. Slurm ignores
    topology.conf where topology.yaml exists, and so does this command. A single FILE may also be anything
    else that weft topology takes, such as one machine many times: topo.xml*16@fabric=rails.

    WHAT is a file or spec of one machine: an NCCL topology or graph XML file, the output of nvidia-smi topo
    -m, a TOML file, or a spec such as dgx-h100:1; with @speed=effective behind a file, links have the speeds
    that they achieve. Without --box a machine is one rank.
    """
    from weft.topology.cluster_fabric import ClusterOptions
    from weft.topology.cluster_import import import_cluster

    if files.count("-") > 1:
        raise InputError("- given twice; standard input can be read once")
    check_outputs(output, svg, as_json=as_json, inputs=(*files, *boxes))
    given = ClusterOptions(latency_ps=open_values.pop("latency"), **open_values)
    found = import_cluster(files, boxes=boxes, nodes=nodes, wanted=wanted, options=given)
    if output not in (None, "-") and found.nodes:
        # Slurm's file is called topology.conf on every cluster, which is no name to recognise one by.
        found = replace(found, topology=replace(found.topology, name=name_after(str(output), "cluster")))
    if svg is not None:
        from weft.topology.drawing import draw_svg

        write_output(svg, draw_svg(found.topology).encode())
    if output is not None:
        from weft.topology.toml_file import format_toml

        write_output(output, format_toml(found.topology).encode())
    if as_json:
        print_json(_as_dict(found))
    elif "-" not in (svg, output):
        _show(found)
        written = [printable(path) for path in (output, svg) if path is not None]
        done = f"wrote {', '.join(written)}" if written else "nothing was written; -o cluster.toml writes it"
        click.echo(f"\n{done}")


def _show(found: ClusterImport) -> None:
    from weft.topology.hostlist import format_hostlist

    topology, console = found.topology, make_console()
    console.print_line(printable(topology.name), "bold")
    facts = [(what, f"{getattr(topology, what):,}") for what in ("ranks", "switches", "links")]
    if found.nodes:
        facts.insert(0, ("machines", f"{len(found.nodes):,}: {format_hostlist(list(found.nodes))}"))
    labels = ["assumed", *[""] * len(topology.notes)]
    facts += zip(labels, map(printable, topology.notes), strict=False)
    console.print_facts(*facts)


def _as_dict(found: ClusterImport) -> dict[str, Any]:
    topology = found.topology
    first = 0
    machines = []
    for name, gpus in zip(found.nodes, found.gpus, strict=True):
        machines.append({"name": name, "ranks": list(range(first, first + gpus))})
        first += gpus
    return {
        **{name: getattr(topology, name) for name in ("name", "digest", "ranks", "switches", "links")},
        "machines": machines,
        "assumptions": list(topology.notes),
    }
