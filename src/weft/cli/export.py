"""``weft export``: write a schedule to a file."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import click

from weft import limits
from weft.cli import options
from weft.cli.inputs import ScheduleSource, make_tables_of, table_facts, takes_schedule
from weft.cli.output import check_outputs, make_console, print_json, progress, write_output
from weft.errors import InputError, printable, quote

if TYPE_CHECKING:
    from weft.packets import Tables
    from weft.planning import Plan
    from weft.schedule import Schedule

FORMATS: Final = ("weft", "json", "text", "dot", "trees", "ni-table", "ni-text")
_DRAWINGS: Final = ("dot", "trees")
_TABLES: Final = ("ni-table", "ni-text")
_NAMES: Final = ("topology", "collective", "algorithm")
_DESCRIBED: Final = ("collective", "algorithm", "chunks", "steps", "transfers", "messages", "digest")
_FOR_ALL_SIZES: Final = (
    "only a plan chooses by size; a schedule is for all sizes, and --format ni-table writes tables for one"
)
_BY_SUFFIX: Final = {
    ".weft": "weft",
    ".ni.json": "ni-table",
    ".ni.txt": "ni-text",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "trees",
}


@click.command(
    "export",
    epilog=options.examples(
        "weft export torus:4x4 --algorithm ring -o ring.weft",
        "weft export switch:8 --algorithm direct --collective all_to_all -o direct.json",
        "weft export ring.weft -o ring.txt",
        "weft export plan.weft --size 64MiB -o best.json",
        "weft export ring:4 --algorithm ring --format text -o -",
        "weft export switch:8 --algorithm double_binary_tree -o tree.dot",
        "weft export torus:4x4 --algorithm multitree --collective all_gather --chunk 5 -o trees.svg",
        "weft export torus:4x4 --algorithm multitree --size 128KiB -o multitree.ni.json",
    ),
)
@takes_schedule("SCHEDULE|PLAN|TOPOLOGY|TABLE")
@click.option(
    "--size",
    type=options.SIZE,
    help="Of a plan, the size whose schedule is written, such as 64MiB; of tables, the buffer's.",
)
@options.ports
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write; - for standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Binary, JSON, a listing, a Graphviz drawing or a picture of trees step by step (SVG); tables of "
    "network interfaces, as JSON or as a listing; by default as the file's name ends.",
)
@click.option(
    "--chunk",
    "chunks",
    type=click.IntRange(min=0),
    multiple=True,
    help="The chunk a dot file draws, by default 0; may be repeated for a picture of trees.",
)
@options.max_work(limits.MAX_WORK)
@options.as_json
def command(
    source: ScheduleSource,
    size: int | None,
    ports: int | None,
    output: str,
    form: str | None,
    chunks: tuple[int, ...],
    max_work: float | None,
    as_json: bool,
) -> None:
    """Write a schedule to a file.

    With --algorithm the schedule is built on a TOPOLOGY; without it, a SCHEDULE file is read and written in
    another form. Of a PLAN, which weft plan wrote, what it chooses for --size is written. weft and json files
    can be read again by weft verify and weft simulate.

    ni-table is what the network interface of each rank has to know to carry out the schedule for --size: weft
    packets runs it. A TABLE that was written so can be listed with ni-text.
    """
    check_outputs(output, as_json=as_json, inputs=(source.name,))
    name = PurePath(output).name.lower()
    chosen = form or _format_of(name)
    _check_chunks(chosen, chunks)
    with progress("export") as report:
        if chosen in _TABLES:
            report("tables", 0, 0)
            tables = make_tables_of(source.name, source.obtain_any(max_work), size, ports, max_work)[0]
            data, fields = encode_tables(tables, chosen), tables.to_dict()
            facts = [*_facts({name: fields[name] for name in _NAMES}), *table_facts(tables)]
        else:
            reason = f"only tables have ports, this is {chosen}; try --format ni-table"
            options.refuse_unused("ports", reason=reason)
            report("schedule", 0, 0)
            schedule, segment = _choose(source.name, source.obtain(max_work), size)
            report(f"{schedule.transfers:,} transfers", 0, 0)
            data, fields = encode(schedule, chosen, chunks or (0,)), describe(schedule) | segment
            facts = [*_facts(describe(schedule)), *_segment_facts(segment)]
        write_output(output, data)
    if as_json:
        print_json({"file": output, "format": chosen, "bytes": len(data), **fields})
    elif output != "-":
        wrote = f"{printable(output)}, {len(data):,} bytes, {chosen}"
        make_console().print_facts(("wrote", wrote), *facts)


def _check_chunks(form: str, chunks: tuple[int, ...]) -> None:
    """Refuse chunks where nothing is drawn, and several in a drawing of one."""
    if chunks and form not in _DRAWINGS:
        raise InputError(f"--chunk: only a drawing shows one, this is {form}; try --format dot or trees")
    if len(chunks) > 1 and form == "dot":
        raise InputError("--chunk: a dot file draws one chunk; give one, or --format trees for several")


def _format_of(name: str) -> str:
    """The format that a file's name asks for by its ending; one without an ending is binary."""
    for suffix, form in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return form
    ending = PurePath(name).suffix
    if ending:
        known = ", ".join(_BY_SUFFIX)
        raise InputError(
            f"-o {quote(name)}: no format ends in {quote(ending)}; give --format, or one of {known}"
        )
    return "weft"


def _facts(fields: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"{value:,}" if isinstance(value, int) else printable(value)) for name, value in fields.items()
    ]


def _segment_facts(segment: dict[str, int | None]) -> list[tuple[str, str]]:
    return [
        ("segment", "whole messages" if pieces is None else f"{pieces:,} bytes")
        for pieces in segment.values()
    ]


def _choose(source: str, found: Schedule | Plan, size: int | None) -> tuple[Schedule, dict[str, int | None]]:
    """The schedule itself, or what a plan chooses for a size and in which segments to run that."""
    from weft.schedule import Schedule

    if isinstance(found, Schedule):
        options.refuse_unused("size", reason=_FOR_ALL_SIZES)
        return found, {}
    if size is None:
        count = f"{len(found.schedules)} schedules" if len(found.schedules) > 1 else "one schedule"
        msg = f"{source}: is a plan, of {count}; give --size, such as --size 64MiB, to write what it chooses"
        raise InputError(msg)
    choice = found.choose(size)
    return choice.schedule, {"segment_bytes": choice.segment_bytes}


def encode(schedule: Schedule, form: str, chunks: tuple[int, ...] = (0,)) -> bytes:
    """Bytes of a schedule in one of `FORMATS`; a drawing shows some chunks."""
    if form == "text":
        from weft.schedule.text import format_schedule

        return f"{format_schedule(schedule, max_rows=schedule.messages)}\n".encode()
    if form == "dot":
        from weft.export import to_dot

        return f"{to_dot(schedule, chunks[0])}\n".encode()
    if form == "trees":
        from weft.export import draw_trees

        return draw_trees(schedule, chunks).encode()
    from weft.schedule.codec import encode_schedule
    from weft.schedule.json_form import schedule_to_json

    return encode_schedule(schedule) if form == "weft" else schedule_to_json(schedule)


def encode_tables(tables: Tables, form: str) -> bytes:
    """Bytes of tables, as JSON or as a listing."""
    from weft.packets import tables_to_json, tables_to_text

    return tables_to_json(tables) if form == "ni-table" else tables_to_text(tables).encode()


def describe(schedule: Schedule) -> dict[str, Any]:
    """Say in short what is in a schedule."""
    return {"topology": schedule.topology.name} | {name: getattr(schedule, name) for name in _DESCRIBED}
