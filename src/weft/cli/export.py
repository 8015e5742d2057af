"""``weft export``: write a schedule to a file."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import click

from weft.cli import options
from weft.cli.lines import printable
from weft.cli.output import check_outputs, make_console, print_facts, print_json, progress, write_output

if TYPE_CHECKING:
    from weft.schedule import Schedule

FORMATS: Final = ("weft", "json", "text", "dot")
_BY_SUFFIX: Final = {".json": "json", ".txt": "text", ".text": "text", ".dot": "dot", ".gv": "dot"}


@click.command(
    "export",
    epilog=options.examples(
        "weft export torus:4x4 --algorithm ring -o ring.weft",
        "weft export switch:8 --algorithm direct --collective all_to_all -o direct.json",
        "weft export ring.weft -o ring.txt",
        "weft export ring:4 --algorithm ring --format text -o -",
        "weft export switch:8 --algorithm double_binary_tree -o tree.dot",
    ),
)
@click.argument("source", metavar="SCHEDULE|TOPOLOGY")
@options.algorithm
@options.collective
@options.root
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write; - for standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Binary, JSON, a listing or a Graphviz drawing; by default as the file's name ends, else weft.",
)
@click.option(
    "--chunk", type=click.IntRange(min=0), default=0, show_default=True, help="The chunk a dot file draws."
)
@options.as_json
def command(
    source: str,
    algorithm: str | None,
    collective: str,
    root: int,
    output: str,
    form: str | None,
    chunk: int,
    as_json: bool,
) -> None:
    """Write a schedule to a file.

    With --algorithm the schedule is built on a TOPOLOGY; without it, a SCHEDULE file is read and written in
    another form. weft and json files can be read again by weft verify and weft simulate.
    """
    from weft.cli.inputs import obtain_schedule

    check_outputs(output, as_json=as_json)
    chosen = form or _BY_SUFFIX.get(PurePath(output).suffix.lower(), "weft")
    if chosen != "dot":
        options.refuse_unused(
            "chunk", reason=f"only a dot file draws one, this is {chosen}; try --format dot"
        )
    with progress("export") as report:
        report("schedule", 0, 0)
        schedule = obtain_schedule(source, algorithm, collective, root)
        report(f"{schedule.transfers:,} transfers", 0, 0)
        data = encode(schedule, chosen, chunk)
        write_output(output, data)
    if as_json:
        print_json({"file": output, "format": chosen, "bytes": len(data), **describe(schedule)})
    elif output != "-":
        facts = [("wrote", f"{printable(output)}, {len(data):,} bytes, {chosen}")]
        for name, value in describe(schedule).items():
            facts.append((name, f"{value:,}" if isinstance(value, int) else printable(value)))
        print_facts(make_console(), facts)


def encode(schedule: Schedule, form: str, chunk: int = 0) -> bytes:
    """Bytes of a schedule in one of `FORMATS`; a drawing shows one chunk."""
    if form == "text":
        from weft.schedule.text import format_schedule

        return f"{format_schedule(schedule, max_rows=schedule.messages)}\n".encode()
    if form == "dot":
        from weft.exchange import to_dot

        return f"{to_dot(schedule, chunk)}\n".encode()
    from weft.schedule.codec import encode_schedule
    from weft.schedule.json_form import schedule_to_json

    return encode_schedule(schedule) if form == "weft" else schedule_to_json(schedule)


def describe(schedule: Schedule) -> dict[str, str | int]:
    """Say in short what is in a schedule."""
    return {
        "topology": schedule.topology.name,
        "collective": schedule.collective,
        "algorithm": schedule.algorithm,
        "chunks": schedule.chunks,
        "steps": schedule.steps,
        "transfers": schedule.transfers,
        "messages": schedule.messages,
        "digest": schedule.digest,
    }
