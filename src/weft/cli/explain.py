"""``weft explain``: what the flight records of a job say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli import options
from weft.cli.output import make_console, make_table, print_facts, print_json, print_line, print_table
from weft.cli.terminal_text import one_line, printable

if TYPE_CHECKING:
    from weft.runtime.diagnosis import Diagnosis, RankState

_LONGEST_FINDING = 400


@click.command(
    "explain",
    epilog=options.examples("weft explain flight-*.json", "weft explain --json flight-*.json"),
)
@click.argument("records", metavar="FLIGHT...", nargs=-1, required=True)
@options.as_json
def command(records: tuple[str, ...], as_json: bool) -> None:
    """Say why a job failed or hangs, from its flight records.

    Every rank writes one (flight-JOB-rN.json) when an operation fails, when the program calls
    Communicator.flight(), and on SIGUSR2. Give those of one job; the more ranks, the better.
    """
    from weft import limits
    from weft.runtime.diagnosis import diagnose, load_flight

    limits.check("flight records", len(records), limits.MAX_JOB_RANKS)
    found = diagnose(map(load_flight, records))
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)


def _show(found: Diagnosis) -> None:
    console = make_console()
    count = len(found.ranks)
    print_line(console, f"job {printable(found.job)}: records of {len(found.states)} of {count} ranks")
    console.print()
    columns = ("rank", "operation", "state", "for s", "waits for", "step")
    table = make_table(*columns, left=("operation", "state", "waits for"))
    for one in found.states:
        table.add_row(
            str(one.rank),
            printable(f"{one.collective} #{one.number}" if one.number else "none"),
            one.state,
            f"{one.since_s:.1f}",
            _wait(one),
            "-" if one.step is None else str(one.step),
        )
    print_table(console, table)
    console.print()
    facts = [("finding", one_line(printable(text), _LONGEST_FINDING)) for text in found.findings]
    if found.absent:
        from weft.errors import name_ranks

        facts.append(("no record", name_ranks(found.absent)))
    print_facts(console, facts)


def _wait(one: RankState) -> str:
    if one.waits_for is None:
        return "-"
    silent = f" (silent {one.silent_s:.1f} s)" if one.silent_s else ""
    return f"rank {one.waits_for}{silent}"
