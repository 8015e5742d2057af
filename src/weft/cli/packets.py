"""``weft packets``: carry out a schedule packet by packet, from the tables of network interfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from weft import limits
from weft.cli import options
from weft.cli.busiest import busiest, busy_cells, print_busiest_links
from weft.cli.inputs import ScheduleSource, make_tables_of, table_facts, takes_schedule
from weft.cli.output import check_outputs, human_speed, make_table, present, progress, warn_of, write_page
from weft.errors import printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.packets import PacketResult, Rules


@click.command(
    "packets",
    epilog=options.examples(
        "weft packets torus:4x4@bw=16GB/s,lat=150ns --algorithm multitree --size 128KiB --codesigned",
        "weft packets ring.weft --size 1MiB --hardware nvlink --flow-control message",
        "weft packets plan.weft --size 64MiB --detail message",
        "weft packets multitree.ni.json --strict --lockstep --json",
    ),
)
@click.option(
    "--size",
    type=options.SIZE,
    help="Bytes per rank, such as 64MiB (2^20) or 100MB (10^6); a table has its own.",
)
@takes_schedule("SCHEDULE|PLAN|TOPOLOGY|TABLE")
@options.ports
@click.option(
    "--hardware",
    default="multitree-isca21",
    metavar="NAME",
    help="Packets, routers and interfaces: multitree-isca21, nvlink, eflops, ethernet-10g or ib-100g.",
)
@click.option(
    "--flow-control",
    type=click.Choice(["packet", "message"]),
    default="packet",
    help="A head for every packet, or one for every message, whose packets stay together.",
)
@click.option(
    "--detail",
    type=click.Choice(["flit", "packet", "message"]),
    default="packet",
    help="Move packets one by one; flits, with the allocators of routers: slower, and more exact; or "
    "messages in at most 64 pieces: faster, and less exact.",
)
@click.option("--strict", is_flag=True, help="A step of a table begins when all ports of its rank are free.")
@click.option("--lockstep", is_flag=True, help="An idle step takes as long as a step is estimated to take.")
@click.option("--prioritised", is_flag=True, help="Where packets meet, the earlier step goes first.")
@click.option(
    "--codesigned", is_flag=True, help="As MultiTree's interface: message flow control, strict, lockstep."
)
@options.max_work(limits.MAX_PACKET_WORK)
@options.report
@options.as_json
def command(
    source: ScheduleSource,
    size: int | None,
    ports: int | None,
    hardware: str,
    detail: str,
    codesigned: bool,
    max_work: float | None,
    page: str | None,
    as_json: bool,
    **rules: Any,
) -> None:
    """Run the tables of network interfaces packet by packet.

    A SCHEDULE, what a PLAN chooses for the size, or an --algorithm on a TOPOLOGY becomes one table for each
    rank. A TABLE, which weft export --format ni-table wrote, is carried out as it stands. Flits then go
    through ports, routers and virtual channels with credits; docs/packets.md has the rules.
    """
    from weft.packets import CODESIGNED, Rules, find_hardware, simulate_tables
    from weft.verification import inspect

    check_outputs(page, as_json=as_json)
    chosen = find_hardware(hardware)
    if codesigned:
        reason = "--codesigned says that already; leave one of the two out"
        options.refuse_unused("flow_control", "strict", "lockstep", reason=reason)
    own = Rules(**rules)
    followed = replace(CODESIGNED, prioritised=own.prioritised) if codesigned else own
    with progress("packets") as report:
        report("tables", 0, 0)
        found = source.obtain_any(max_work)
        tables, schedule = make_tables_of(source.name, found, size, ports, max_work)
        report(f"{tables.messages:,} messages", 0, 0)
        result = simulate_tables(tables, hardware=chosen, rules=followed, detail=detail, max_work=max_work)
        problem = None if schedule is None else inspect(schedule, max_work=max_work).problem
    warn_of(problem)
    verified = None if schedule is None else problem is None
    present(result, _show, as_json=as_json, verified=verified)
    write_page(page, result, as_json=as_json)


def _show(result: PacketResult, console: Console) -> None:
    import numpy as np

    from weft.units import format_size, human_seconds

    tables, hardware = result.tables, result.hardware
    what = f"{tables.algorithm} {tables.collective} of {format_size(tables.size_bytes)}"
    console.print_line(printable(f"{what} on {tables.topology.name}"), "bold")
    last = int(np.argmax(result.rank_finish_ps))
    cycle, overhead = human_seconds(hardware.cycle_ps / 1e12), 100 * result.head_overhead
    console.print_facts(
        ("time", f"{human_seconds(result.seconds)}, {result.cycles:,} cycles of {cycle}"),
        ("quiet", f"after {result.total_cycles:,} cycles: the last credit is back"),
        ("algbw", human_speed(result.algbw_GBps)),
        *table_facts(tables),
        ("hardware", hardware.name),
        ("rules", _rules_text(result.rules) + f"; detail of {result.detail}s"),
        ("packets", f"{result.packets:,} of {tables.messages:,} messages"),
        ("flits", f"{result.flits:,} of {hardware.flit_bytes} bytes; heads add {overhead:.2f} %"),
        ("fullest", f"{result.most_flits:,} of {result.buffer_flits:,} flits in a virtual channel"),
        *_credit_facts(result),
        ("last rank", f"{last}, at {human_seconds(int(result.rank_finish_ps[last]) / 1e12)}"),
        ("cost", f"{result.cpu_seconds:.2f} CPU seconds, {result.events:,} events"),
    )
    console.print()
    print_busiest_links(console, tables.topology, result.link_busy_ps, result.time_ps)
    _show_ports(result, console)


def _credit_facts(result: PacketResult) -> list[tuple[str, str]]:
    """What a user would otherwise look for in vain: buffers too short for the links."""
    if result.credit_share >= 1:
        return []
    share = f"{100 * result.credit_share:.3g} %"
    return [
        ("credits", f"buffers hold {share} of the longest link's round trip: it cannot be busier than that")
    ]


def _rules_text(rules: Rules) -> str:
    named = {"strict": rules.strict, "lockstep": rules.lockstep, "prioritised": rules.prioritised}
    return ", ".join([f"{rules.flow_control} flow control", *(name for name, on in named.items() if on)])


def _show_ports(result: PacketResult, console: Console) -> None:
    """Ports of ranks that have a router; others have their links for ports."""
    if not result.port_busy_ps.any():
        return
    console.print()
    table = make_table("busiest port", "busy", "% of time", left=("busiest port",))
    ports = result.tables.ports
    for number in busiest(result.port_busy_ps):
        way, rest = divmod(number, len(result.port_busy_ps) // 2)
        name = f"rank {rest // ports}, port {rest % ports} {'in' if way else 'out'}"
        table.add_row(name, *busy_cells(int(result.port_busy_ps[number]), result.time_ps))
    console.print_table(table)
