"""``weft compare``: every algorithm on a cluster, beside the physical limit."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

import click

from weft.cli import options
from weft.cli.output import (
    SPEED_UNITS,
    WIDE,
    aligned_number,
    check_outputs,
    largest_unit,
    make_console,
    make_table,
    one_line,
    present,
    print_json,
    progress,
    write_page,
)
from weft.cli.size_table import TIME_UNITS, show_sizes
from weft.cli.sweep_place import SweepPlace
from weft.cli.time_limit import loading_within, running_within, time_left
from weft.errors import LONGEST_MESSAGE, InputError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from weft.cli.console import Console
    from weft.collective_names import Collective
    from weft.planning import Comparison, ComparisonRow

_BAR_CELLS = 12
_BAR = ""
_DROP = (7, 6, 5, 2, 3, 4)
_DROP_WIDE = (5, 8, 7, 6, 2, 3, 4)
"""Columns that go first where a terminal is narrow, with and without the bar; name, time and verdict stay."""
DEFAULT_SECONDS = 60.0
"""As in `weft.planning`, which is not imported here because it brings numpy along."""
_MOST_SIZES: Final = 8
SIZES: Final = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""What is compared where no size is given: latency counts at the first, speed alone at the last."""

_TIME_LIMIT = options.number(
    "SECONDS|none", lambda seconds: 0 < seconds < math.inf, "give more than 0 seconds, such as 60, or none"
)


@click.command(
    "compare",
    epilog=options.examples(
        "weft compare torus:8x8",
        "weft compare torus:8x8 --size 64MiB",
        "weft compare cluster.toml --size 1GB --collective all_gather",
        "weft compare hosts:8,4,2@intra=100GB/s --size 64MiB --algorithm ring --algorithm hierarchical",
        "weft compare torus:8x8 --size 64MiB --algorithm mine.py:function --algorithm all",
        "weft compare fattree:64+fail=s0-s9 --size 64MiB --json",
    ),
)
@click.argument("topology")
@click.option(
    "--size",
    "given",
    type=options.SIZE,
    multiple=True,
    help="Bytes per rank, such as 64MiB (2^20) or 100MB (10^6); may be repeated, for sizes side by side;"
    " by default four.",
)
@options.collective
@options.algorithms
@options.root
@options.sharing
@options.segment
@click.option(
    "--time-limit",
    type=_TIME_LIMIT,
    default=f"{DEFAULT_SECONDS:g}",
    help="Wall-clock time: skip algorithms that would not be done by then; those of few transfers go first.",
)
@options.on_executor("sizes are compared")
@options.report
@options.as_json
def command(
    topology: str,
    given: tuple[int, ...],
    collective: Collective,
    algorithms: tuple[str, ...],
    segment: str | int,
    executor: str | None,
    jobs: int | None,
    deadline: float | None,
    page: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Time every algorithm on a cluster, beside the physical limit.

    TOPOLOGY is a spec such as torus:8x8@bw=16GB/s,lat=150ns, a TOML file, what weft import
    reads, a plan, or - for one of these on standard input.

    Each algorithm is built, verified, and simulated; % of bound says how near its time is to what no
    algorithm can beat. Rows such as nccl ring (8 channels) or open mpi (ring) are what a library would run.
    Several sizes, or the four without --size, share the time limit. Exit code 1 if the verifier rejects a
    schedule.
    """
    from weft.algorithms.resolver import resolve_algorithms
    from weft.cli.inputs import obtain_topology
    from weft.planning import compare, compare_points

    check_outputs(page, as_json=as_json)
    if executor is None:
        options.refuse_unused("jobs", "deadline", reason="it is for --executor, which is not given")
    options.check_root(collective)
    limit, began = how["time_limit"], time.monotonic()
    with progress("compare") as report, running_within(limit):
        with loading_within(limit):
            network = obtain_topology(topology)
        # Once for all sizes, because it may run a script.
        only = resolve_algorithms(algorithms, collective) if algorithms else None
        sizes = tuple(sorted(set(given))) or SIZES
        if len(sizes) > _MOST_SIZES:
            raise InputError(f"--size: {len(sizes)} sizes; at most {_MOST_SIZES} stand side by side")
        left = time_left(limit, began)
        how["time_limit"] = None if left is None else left / len(sizes)
        how["segment_bytes"] = segment
        if executor is None:
            found = [compare(network, one, collective, only, progress=report, **how) for one in sizes]
        else:
            with SweepPlace(executor, jobs, deadline).open(len(sizes)) as (pool, until):
                found = compare_points(
                    [network], sizes, collective, only, executor=pool, progress=report, **how, **until
                )
    if len(sizes) == 1:
        present(found[0], show, as_json=as_json)
    elif as_json:
        print_json({"sizes": [one.to_dict() for one in found]})
    else:
        show_sizes(found, make_console())
    write_page(page, *found, as_json=as_json)
    for row in (row for one in found for row in one.results if row.problem is not None):
        problem = one_line(str(row.problem), LONGEST_MESSAGE)
        click.echo(f"weft: error: {row.algorithm}: {problem}", err=True)
    if not all(one.verified for one in found):
        raise click.exceptions.Exit(1)


def show(found: Comparison, console: Console) -> None:
    """Print the table and what stands below it."""
    from weft.units import count, format_size

    topology = found.topology
    head = f"{found.collective} of {format_size(found.size_bytes)} on {printable(topology.name)}"
    parts = [count(topology.ranks, "rank"), count(topology.links, "link"), f"{found.sharing} sharing"]
    if topology.switches:
        parts.insert(1, count(topology.switches, "switch"))
    console.print_line(head, "bold")
    console.print_line(", ".join(parts), "dim")
    console.print()
    wide = console.width >= WIDE
    console.print_table(_table(found, wide=wide), drop=_DROP_WIDE if wide else _DROP)
    console.print()
    console.print_facts(*_notes(found))
    names: dict[str, list[str]] = {}
    for skipped in found.skipped:
        names.setdefault(skipped.reason, []).append(skipped.algorithm)
    labels = ["skipped", *[""] * len(names)]
    lines = [f"{', '.join(same)}: {printable(reason)}" for reason, same in names.items()]
    console.print_facts(*zip(labels, lines, strict=False), style="dim")


def _table(found: Comparison, *, wide: bool) -> Table:
    best = found.best
    fastest = best.seconds if best is not None and best.seconds is not None else 1.0
    widest = max((row.busbw_GBps or 0.0 for row in found.results), default=0.0)
    time_unit, second = largest_unit(fastest, TIME_UNITS)
    speed_unit, speed = largest_unit(widest, SPEED_UNITS)
    heads = ["algorithm", f"time\n{time_unit}", f"algbw\n{speed_unit}", f"busbw\n{speed_unit}", "% of\nbound"]
    heads += [_BAR] if wide else []
    heads += [
        "steps",
        "transfers" if wide else "trans-\nfers",
        "segment",
        "verified" if wide else "veri-\nfied",
    ]
    table = make_table(*heads, left=("algorithm", _BAR))
    for row in found.results:
        cells = [
            row.label,
            aligned_number(row.seconds and row.seconds / second, fastest / second),
            aligned_number(row.algbw_GBps and row.algbw_GBps / speed, widest / speed),
            aligned_number(row.busbw_GBps and row.busbw_GBps / speed, widest / speed),
            aligned_number(row.fraction_of_bound and 100 * row.fraction_of_bound, 100),
        ]
        cells += [_bar(row.fraction_of_bound or 0.0)] if wide else []
        style = "bold green" if row is best else "" if row.verified else "red"
        table.add_row(*cells, *_size_cells(row), style=style)
    return table


def _size_cells(row: ComparisonRow) -> list[str]:
    from weft.units import format_size

    segment = "-" if row.segment_bytes is None else format_size(row.segment_bytes)
    segment += "*" if row.untried_segments else ""
    return [f"{row.steps:,}", f"{row.transfers:,}", segment, "yes" if row.verified else "NO"]


def _bar(fraction: float) -> str:
    whole, part = divmod(round(min(max(fraction, 0.0), 1.0) * _BAR_CELLS * 8), 8)
    return ("█" * whole + " ▏▎▍▌▋▊▉"[part]).strip()


def _notes(found: Comparison) -> list[tuple[str, str]]:
    from weft.bounds.collective_bound import kind_text
    from weft.simulation.segment_sizes import SEGMENT_BUDGET
    from weft.units import format_size, human_bandwidth, human_seconds

    bound, best, topology = found.bound, found.best, found.topology
    kind = kind_text(topology, found.collective, bound.kind)
    notes = [("bound", f"{human_seconds(bound.seconds)} ({kind}); {printable(bound.explanation)}")]
    if best is not None and best.bottleneck is not None:
        link, share = best.bottleneck
        name, speed = topology.link_name(link), human_bandwidth(int(topology.bandwidth[link]))
        notes.append(("busiest", f"link {name} ({speed}), {100 * share:.1f} % of the time of {best.label}"))
    theirs, ours, gain = found.best_of_libraries, found.best_of_others, found.gain_over_libraries
    if theirs is not None and theirs.seconds is not None:
        # What sums in switches is none of the rows of NCCL, and faster on some machines: docs/nccl.md.
        without = ", without NVLS and SHARP" if any(row.library == "nccl" for row in found.results) else ""
        line = f"best of a library{without}: {theirs.label}, {human_seconds(theirs.seconds)}"
        if ours is not None and gain is not None:
            faster = f"is {gain:.2f} times as fast" if gain >= 1 else f"takes {1 / gain:.2f} times as long"
            line += f"; {ours.label} {faster}"
        notes.append(("others", line))
    if found.nccl_estimate is not None:
        notes.append(("estimate", str(found.nccl_estimate)))
    if any(row.untried_segments for row in found.results):
        sizes = sorted({size for row in found.results for size in row.untried_segments})
        finer = ", ".join(format_size(size) for size in sizes)
        notes.append(("*", f"{finer} not tried: more than {SEGMENT_BUDGET:,} segments, or no time was left"))
    return notes
