"""``weft topology``: describe, draw or convert a cluster."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from weft.cli import options
from weft.cli.link_load import LoadOptions, load_document, show_load
from weft.cli.output import check_outputs, make_console, make_table, print_json, write_output, write_page
from weft.errors import printable
from weft.files import name_after

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.cli.facts import Distances
    from weft.topology import Topology

_MOST_GROUPS = 8
_MOST_CLASSES = 12
_LONGEST_NAME = 80


@click.command(
    "topology",
    epilog=options.examples(
        "weft topology torus:4x4",
        "weft topology hosts:8,4,2@intra=100GB/s,uplink=10GB/s --svg cluster.svg",
        "weft topology torus:4x4+fail=5-6 --load ring --size 64MiB --svg load.svg",
        "weft topology rails:128x8 --report cluster.html",
        "weft topology dgx-h100:2+fail=host0.nic1 --routes 1 9",
        "weft topology nccl-topo.xml --toml cluster.toml",
        "weft topology 'nccl-topo.xml*16@fabric=leafspine,oversub=3' --svg cluster.svg",
    ),
)
@click.argument("topology")
@click.option("--svg", metavar="FILE", help="Write a drawing.")
@click.option("--toml", metavar="FILE", help="Write a topology file; - for standard output.")
@click.option("--routes", nargs=2, metavar="A B", help="Show the path from rank A to rank B.")
@click.option(
    "--load",
    cls=options.AlgorithmOption,
    metavar=options.OR_OWN,
    help="Simulate this algorithm; the drawing shows how long each link is busy.",
)
@click.option("--size", type=options.SIZE, help="Bytes per rank for --load, such as 64MiB.")
@options.collective
@options.root
@options.segment
@options.report
@options.as_json
def command(
    topology: str,
    svg: str | None,
    toml: str | None,
    routes: tuple[str, str] | None,
    load: str | None,
    size: int | None,
    collective: str,
    root: int,
    segment: str | int,
    page: str | None,
    as_json: bool,
) -> None:
    """Describe, draw or convert a cluster.

    TOPOLOGY is a spec KIND:SHAPE[@option=value,...][+fail=A-B,...], a TOML file, an NCCL XML file, the output
    of nvidia-smi topo -m or ibnetdiscover, Slurm's topology.conf or topology.yaml, a plan, or - for one of
    these on standard input. weft import joins several of these.

    With --load, the links of the drawing have the colour of the time that each is busy in one collective.
    --collective, --root and --segment are for --load.

    \b
    ring:8  mesh:4x4  torus:4x4x4  hypercube:6  fullmesh:8    ranks wired to ranks
    switch:8  fattree:LEAVES,SPINES,RANKS  bigraph:m,n        ranks on switches
    dragonfly:GROUPS,ROUTERS,RANKS
    dragonflyplus:GROUPS,LEAVES,SPINES,RANKS
    nvlink:72  xgmi:8  pcie:8                                 GPUs of one box
    rails:4x8@nics=8,spines=4,oversub=3                       boxes x GPUs, a leaf for each rail
    leafspine:16x8@oversub=3  threetier:16x8@pods=4           boxes x GPUs on leaves, spines, cores
    dgx-a100:K  dgx-h100:K  dgx-b200:K  mi300x:K              K boxes on rails, @fabric=leafspine ..
    gb200-nvl72:K                                             K racks of 72 GPUs on rails
    topo.xml*16@fabric=leafspine,oversub=3                    16 machines as a file describes one
    tpu-v4:4x4x8  tpu-v5p:4x4x8  ocs:4x4x8  trn2:K            tori; a slice closes by whole blocks
    spark-ring:4  mac-mesh:4                                  at home
    hosts:8,4,2                                               uneven hosts behind one core
    cloud:8x8,24                                              what a shared cloud hands out
    servers:4x8@nics=8,fabric=bigraph,leaves=8                GPUs on PCIe, with NICs, on a fabric
    @bw=16GB/s,lat=150ns                                      speed and latency of the links
    @speed=effective                                          what links achieve, not data sheets
    +fail=3-4  +fail=3>4  +fail=rank:7  +fail=host3.nic5      what is broken
    +speed=host3.nic5:25GB/s  +speed=leaf0-spine1:10GB/s      what is slower
    """  # noqa: D301
    from weft.cli.inputs import obtain_topology

    check_outputs(svg, toml, page, as_json=as_json, inputs=(topology,))
    asked = LoadOptions(load, size, collective, root, segment)
    asked.check()
    found = obtain_topology(topology)
    path_links = None if routes is None else _find_path(found, *routes)
    result = asked.simulate(found)
    if svg is not None:
        from weft.topology.drawing import draw_svg

        write_output(svg, (draw_svg(found) if result is None else result.to_svg()).encode())
    if toml is not None:
        write_output(toml, _as_toml(found, toml).encode())
    if as_json:
        document = _as_dict(found, path_links)
        print_json(document if result is None else document | {"load": load_document(result)})
    elif "-" not in (svg, toml):
        console = make_console()
        _show(found, path_links, console)
        if result is not None:
            show_load(result, console)
        written = [printable(path) for path in (svg, toml) if path is not None]
        if written:
            click.echo(f"\nwrote {', '.join(written)}")
    write_page(page, found if result is None else result, as_json=as_json or "-" in (svg, toml))


def _as_toml(topology: Topology, path: str) -> str:
    """Write a topology file; the file's name stands for a long one, for tables, and a comment keeps that."""
    from weft.topology.toml_file import format_toml

    if path == "-" or len(topology.name) <= _LONGEST_NAME:
        return format_toml(topology)
    renamed = replace(topology, name=name_after(path, "cluster"))
    return f"# from: {printable(topology.name)}\n{format_toml(renamed)}"


def _find_path(topology: Topology, src: str, dst: str) -> tuple[int, ...]:
    from weft.errors import InputError

    ends = [topology.parse_node(text) for text in (src, dst)]
    if max(ends) >= topology.ranks or ends[0] == ends[1]:
        raise InputError(f"--routes {src} {dst}: give two different ranks of 0..{topology.ranks - 1}")
    return topology.route(*ends)


def _show(topology: Topology, path: tuple[int, ...] | None, console: Console) -> None:
    from weft.cli import facts, sketch

    console.print_line(printable(topology.name), "bold")
    lines = sketch.draw_grid(topology)
    if lines and max(len(line) for line in lines) + 2 <= console.width:
        console.print()
        for line in lines:
            console.print(f"  {line}")
        console.print()
    console.print_facts(*_facts(topology, facts.measure_distances(topology)))
    _show_links(topology, console)
    if path is not None:
        _show_path(topology, path, console)


def _facts(topology: Topology, distances: Distances | None) -> list[tuple[str, str]]:
    from weft.cli import facts
    from weft.units import count, format_time, human_bandwidth

    degree, speed = facts.rank_degrees(topology)
    noun, speeds = "link" if int(degree.max()) == 1 else "links", facts.span(speed, human_bandwidth)
    before = (
        f", numbered anew; before: {facts.describe_group(topology.rank_labels)}"
        if topology.rank_labels
        else ""
    )
    found = [("ranks", f"{topology.ranks:,}{before}")]
    if topology.switches:
        found.append(("switches", f"{topology.switches:,}"))
    found.append(("per rank", f"{facts.span(degree)} {noun} out, {speeds}"))
    if distances is not None:
        hops, latency = count(distances.hops, "hop"), format_time(distances.latency_ps)
        busiest, pair = topology.link_name(distances.busiest), distances.pair_bandwidth / 1e9
        found += [
            ("diameter", f"{hops}, {latency}; on average {distances.mean_hops:.2f}"),
            ("all pairs", f"{pair:.3g} GB/s each when all send at once, held back by link {busiest}"),
        ]
    halves = facts.half_to_half(topology)
    if halves is not None:
        found.append(("halves", f"{human_bandwidth(halves)} from the first half of the ranks to the second"))
    if distances is None:
        found.append(("distances", f"not measured above {facts.MOST_RANKS:,} ranks"))
    groups = [facts.describe_group(members) for members in topology.groups]
    if groups:
        more = f" and {len(groups) - _MOST_GROUPS} more" if len(groups) > _MOST_GROUPS else ""
        found.append(("groups", f"{len(groups)}: ranks {' | '.join(groups[:_MOST_GROUPS])}{more}"))
    seed = f", seed {topology.routing.seed}" if topology.routing.kind == "ecmp" else ""
    found += [("routing", f"{topology.routing.kind}{seed}"), ("digest", topology.digest[:16])]
    labels = ["assumed", *[""] * len(topology.notes)]
    return [*found, *zip(labels, map(printable, topology.notes), strict=False)]


def _show_links(topology: Topology, console: Console) -> None:
    from weft.cli.facts import link_classes
    from weft.units import format_time, human_bandwidth

    classes = link_classes(topology)
    console.print()
    table = make_table("links", "from-to", "bandwidth", "latency", left=("from-to",))
    for row in classes[:_MOST_CLASSES]:
        table.add_row(f"{row.count:,}", row.kind, human_bandwidth(row.bandwidth), format_time(row.latency_ps))
    if len(classes) > _MOST_CLASSES:
        rest = sum(row.count for row in classes[_MOST_CLASSES:])
        table.add_row(f"{rest:,}", f"{len(classes) - _MOST_CLASSES} more kinds", "", "")
    console.print_table(table)


def _show_path(topology: Topology, path: tuple[int, ...], console: Console) -> None:
    from weft.units import count, format_time, human_bandwidth

    ends = f"{topology.link_src[path[0]]} to {topology.link_dst[path[-1]]}"
    latency = format_time(int(topology.latency_ps[list(path)].sum()))
    speed = human_bandwidth(int(topology.bandwidth[list(path)].min()))
    table = make_table("hop", "link", "name", "bandwidth", "latency", left=("name",))
    for hop, link in enumerate(path, 1):
        wire = human_bandwidth(int(topology.bandwidth[link])), format_time(int(topology.latency_ps[link]))
        table.add_row(str(hop), str(link), topology.link_name(link), *wire)
    console.print(f"\nroute {ends}: {count(len(path), 'hop')}, {latency}, {speed}")
    console.print_table(table)


def _as_dict(topology: Topology, path: tuple[int, ...] | None) -> dict[str, Any]:
    from weft.cli import facts

    degree, speed = facts.rank_degrees(topology)
    distances = facts.measure_distances(topology)
    found: dict[str, Any] = {
        **{name: getattr(topology, name) for name in ("name", "digest", "ranks", "switches", "links")},
        "link_names": [topology.link_name(link) for link in range(topology.links)],
        "link_classes": [asdict(one) for one in facts.link_classes(topology)],
        "rank_links": {"min": int(degree.min()), "max": int(degree.max())},
        "rank_bandwidth": {"min": int(speed.min()), "max": int(speed.max())},
        "diameter_hops": distances and distances.hops,
        "diameter_latency_ps": distances and distances.latency_ps,
        "mean_hops": distances and distances.mean_hops,
        "pair_bandwidth": distances and distances.pair_bandwidth,
        "half_to_half_bandwidth": facts.half_to_half(topology),
        "groups": [list(members) for members in topology.groups],
        "rank_labels": list(topology.rank_labels),
        "routing": {"kind": topology.routing.kind, "seed": topology.routing.seed},
        "assumptions": list(topology.notes),
    }
    if path is not None:
        found["route"] = [
            {
                "link": link,
                "name": topology.link_name(link),
                "bandwidth": int(topology.bandwidth[link]),
                "latency_ps": int(topology.latency_ps[link]),
            }
            for link in path
        ]
    return found
