"""``weft reproduce``: claims of a paper beside what comes out here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli import options
from weft.cli.output import make_console, print_json, progress, write_output
from weft.errors import printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.papers import ClaimRow, Reproduction


@click.command(
    "reproduce",
    epilog=options.examples(
        "weft reproduce dear", "weft reproduce ace --json", "weft reproduce ace --charts pictures"
    ),
)
@click.argument("paper", metavar="PAPER")
@click.option("--charts", metavar="FOLDER", help="Write its charts there, as SVG.")
@options.as_json
def command(paper: str, charts: str | None, as_json: bool) -> None:
    """Run what a paper claims, beside its numbers.

    PAPER is dear, ace, multitree, eflops or flexreduce. Every row has the claim, the set-up, the paper's
    number, ours, how far apart they are, and why. Nothing is tuned to a number; what a paper leaves open is
    listed as an assumption.
    """
    from weft.papers import reproduce

    folder = None if charts is None else Path(charts)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with progress(f"reproduce {paper}") as report:
        found = reproduce(paper, report)
    if folder is not None:
        for name, picture in found.charts.items():
            write_output(str(folder / f"{paper}-{name}.svg"), picture.encode())
    if as_json:
        print_json(found.to_dict())
        return
    _show(found, make_console())
    if charts is not None:
        click.echo(f"\nwrote {len(found.charts)} charts to {printable(charts)}")


def _show(found: Reproduction, console: Console) -> None:
    console.print_line(found.title, "bold")
    console.print_line(found.reference)
    for row in found.rows:
        console.print()
        console.print_line(row.claim, "bold")
        console.print_facts(
            ("set-up", row.setup),
            ("paper", _number(row, row.paper)),
            ("ours", _ours(row)),
            *([("why", row.why)] if row.why else []),
        )
    console.print()
    console.print_line("Assumptions", "bold")
    for assumption in found.assumptions:
        console.print_line(f"- {assumption}")


def _number(row: ClaimRow, value: float | None) -> str:
    if value is None:
        return "not known"
    return f"{'up to ' if row.at_most and value == row.paper else ''}{value:.3g}{row.unit}"


def _ours(row: ClaimRow) -> str:
    text = f"{row.ours:.3g}{row.unit}"
    return text if row.deviation is None else f"{text} ({row.deviation:+.1%})"
