"""``weft explain``: what the flight records of a job say together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli import options
from weft.cli.output import check_outputs, make_table, one_line, present, write_page
from weft.errors import InputError, list_some, name_ranks, printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.runtime.diagnosis import Diagnosis, RankState

_LONGEST_FINDING = 400
_PLACE = "ranks write them where WEFT_FLIGHT_DIR says, by default where they run"


@click.command(
    "explain",
    epilog=options.examples(
        "weft explain .", "weft explain . --report job.html", "weft explain --json flight-*.json"
    ),
)
@click.argument("records", metavar="FLIGHT...", nargs=-1)
@options.report
@options.as_json
def command(records: tuple[str, ...], page: str | None, as_json: bool) -> None:
    """Say why a job failed or hangs, from its flight records.

    Every rank writes one (flight-JOB-rN.json) when an operation fails, when the program calls
    Communicator.flight(), and on SIGUSR2. Give all of a job, or the folder that they are in; the more
    ranks, the better. Of several jobs the latest is explained.
    """
    from weft import limits
    from weft.runtime.diagnosis import diagnose, load_flight

    check_outputs(page, as_json=as_json)
    if not records:
        msg = "give the flight records of a job, such as flight-*.json, or the folder that they are in"
        raise InputError(f"{msg}; {_PLACE}")
    names = [name for given in records for name in _expand(given)]
    limits.check("flight records", len(names), limits.MAX_JOB_RANKS)
    found = diagnose(map(load_flight, names))
    present(found, _show, as_json=as_json)
    write_page(page, found.to_dict(), as_json=as_json)


def _expand(given: str) -> list[str]:
    """The records in a folder; anything else is one."""
    if given == "-" or not Path(given).is_dir():
        return [given]
    found = sorted(map(str, Path(given).glob("flight-*.json")))
    if not found:
        msg = f"{printable(given)}: there is no flight-*.json in this folder"
        raise InputError(f"{msg}; {_PLACE}")
    return found


def _show(found: Diagnosis, console: Console) -> None:
    count = len(found.ranks)
    console.print_line(f"job {printable(found.job)}: records of {len(found.states)} of {count} ranks")
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
    console.print_table(table)
    console.print()
    facts = [("finding", one_line(printable(text), _LONGEST_FINDING)) for text in found.findings]
    if found.absent:
        facts.append(("no record", name_ranks(found.absent)))
    facts += [("earlier", one_line(printable(text), _LONGEST_FINDING)) for text in found.earlier]
    facts += [("left out", one_line(printable(text), _LONGEST_FINDING)) for text in found.left_out]
    if found.other_jobs:
        others = printable(list_some(f"flight-{job}-r*.json" for job in found.other_jobs))
        facts.append(("other jobs", others))
    console.print_facts(*facts)


def _wait(one: RankState) -> str:
    if one.waits_for is None:
        return "-"
    silent = f" (silent {one.silent_s:.1f} s)" if one.silent_s else ""
    return f"rank {one.waits_for}{silent}"
