"""``weft reproduce``: claims of papers beside what comes out here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from weft.cli import options
from weft.cli.output import (
    check_outputs,
    make_console,
    make_table,
    print_json,
    progress,
    write_output,
    write_page,
)
from weft.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.cli.console import Console
    from weft.papers import ClaimRow, Reproduction
    from weft.papers.outcomes import ClaimOutcome, StoredPaper

QUICK_S: Final = 20.0
"""CPU seconds that ``--quick`` may take, from the start of the process."""

_SPARE_S: Final = 2.0
"""What of them is left for the last step of a study, and for printing."""


@click.command(
    "reproduce",
    epilog=options.examples(
        "weft reproduce",
        "weft reproduce dear",
        "weft reproduce --quick",
        "weft reproduce --claim ace-memory",
        "weft reproduce ace --json",
        "weft reproduce ace --charts pictures",
    ),
)
@click.argument("paper", metavar="[PAPER]", required=False)
@click.option("--claim", metavar="ID", help="Run only what one claim needs.")
@click.option("--quick", is_flag=True, help=f"Run claims for at most {QUICK_S:.0f} CPU seconds.")
@click.option("--charts", metavar="FOLDER", help="Write the charts of PAPER there, as SVG.")
@options.report
@options.as_json
def command(
    paper: str | None, claim: str | None, quick: bool, charts: str | None, page: str | None, as_json: bool
) -> None:
    """Show what papers claim, beside what comes out here.

    Without PAPER a table of all claims is printed, from stored results. PAPER is dear, ace, multitree,
    eflops or flexreduce, and all of it is run: every row has the claim, the set-up, the paper's number, ours,
    how far apart they are, and why. Nothing is tuned to a number; what a paper leaves open is listed as an
    assumption.
    """
    from weft.papers.outcomes import find_claims, find_study

    check_outputs(page, as_json=as_json)
    if paper is not None:
        find_claims(paper)
    if claim is not None and quick:
        raise InputError("--claim and --quick exclude each other; give one of them")
    if charts is not None and (paper is None or claim is not None or quick):
        raise InputError("--charts needs all of one paper; give PAPER, and neither --claim nor --quick")
    if claim is not None:
        study = find_study(claim, paper)
        with progress(f"reproduce {claim}") as bar:
            outcomes, _ = study.remake(bar)
        _show_claims(outcomes, [], page, as_json=as_json)
    elif quick:
        _remake_quickly(paper, page, as_json=as_json)
    elif paper is None:
        from weft.papers.outcomes import stored

        outcomes = [one for entry in stored().values() for one in entry.outcomes.values()]
        _show_claims(outcomes, None, page, as_json=as_json)
    else:
        _run_all(paper, charts, page, as_json=as_json)


def _remake_quickly(paper: str | None, page: str | None, *, as_json: bool) -> None:
    """Run what is cheap, and say what was left out."""
    from weft.papers.quick_studies import remake_within

    with progress("reproduce --quick") as bar:
        outcomes, left_out = remake_within(QUICK_S - _SPARE_S - _spent_s(), paper, bar)
    _show_claims(outcomes, left_out, page, as_json=as_json)


def _spent_s() -> float:
    """CPU seconds of the process so far, mostly for imports."""
    return time.process_time()


def _run_all(paper: str, charts: str | None, page: str | None, *, as_json: bool) -> None:
    """Run all of a paper; rows are printed as they are finished."""
    from weft.papers import reproduce

    folder = None if charts is None else Path(charts)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    printer = None if as_json else RowPrinter(paper, make_console())
    with progress(f"reproduce {paper}") as bar:

        def show(row: ClaimRow) -> None:
            if printer is not None:
                with bar.hidden():
                    printer.print_row(row)

        found = reproduce(paper, bar, None, show)
    if folder is not None:
        for name, picture in found.charts.items():
            write_output(str(folder / f"{paper}-{name}.svg"), picture.encode())
    if printer is None:
        print_json(found.to_dict())
    else:
        printer.print_end(found)
        if charts is not None:
            click.echo(f"\nwrote {len(found.charts)} charts to {printable(charts)}")
    write_page(page, found.to_dict(), as_json=as_json)


class RowPrinter:
    """Prints a reproduction as it goes on: a summary from stored results, then row by row.

    Parameters
    ----------
    paper
        Which one.
    console
        Where to.
    """

    def __init__(self, paper: str, console: Console) -> None:
        from weft.papers import PAPERS
        from weft.papers.claims import describe
        from weft.papers.outcomes import stored

        self._console, self._claim = console, ""
        about, entry = describe(paper), stored()[paper]
        console.print_line(about["title"], "bold")
        console.print_line(about["reference"])
        console.print_line(PAPERS[paper])
        console.print()
        console.print_line(f"Its claims, as stored (commit {_commits(entry)}); all is run anew below:")
        console.print()
        _print_table(list(entry.outcomes.values()), console)

    def print_row(self, row: ClaimRow) -> None:
        """Print a row; the title of several rows with the same claim stands above the first of them."""
        self._console.print()
        if row.claim != self._claim:
            self._console.print_line(row.claim, "bold")
            self._claim = row.claim
        self._console.print_facts(
            *([("counts as", row.claim_id)] if row.claim_id else []),
            ("set-up", row.setup),
            ("paper", _number(row)),
            ("ours", _ours(row)),
            *([("why", row.why)] if row.why else []),
        )

    def print_end(self, found: Reproduction) -> None:
        """Print what was assumed."""
        self._console.print()
        self._console.print_line("Assumptions", "bold")
        for assumption in found.assumptions:
            self._console.print_line(f"- {assumption}")


def _number(row: ClaimRow) -> str:
    from weft.papers.outcome_texts import number_text

    return "not known" if row.paper is None else number_text(row.paper, row.unit, at_most=row.at_most)


def _ours(row: ClaimRow) -> str:
    from weft.papers.outcome_texts import number_text

    text = number_text(row.ours, row.unit)
    return text if row.deviation is None else f"{text} ({row.deviation:+.1%})"


def _show_claims(
    outcomes: Sequence[ClaimOutcome], left_out: Sequence[str] | None, page: str | None, *, as_json: bool
) -> None:
    """Print claims as one table with the reasons below, or as one document, and write them as a page.

    `left_out` names the claims that were not run; None if outcomes are the stored ones.
    """
    document: dict[str, Any] = {"claims": [one.to_dict() for one in outcomes]}
    if as_json:
        print_json(document | ({"left_out": list(left_out)} if left_out else {}))
    else:
        _print_claims(outcomes, left_out)
    write_page(page, document, as_json=as_json)


def _print_claims(outcomes: Sequence[ClaimOutcome], left_out: Sequence[str] | None) -> None:
    from weft.papers.outcomes import find_claims, stored

    console = make_console()
    _print_table(outcomes, console)
    far = [one for one in outcomes if one.verdict != "within_10"] if left_out is None else outcomes
    console.print()
    console.print_line("Why" if left_out is not None else "Why, where it is not within 10 %", "bold")
    for one in far:
        console.print_facts((one.claim_id, one.why))
    if left_out is None:
        console.print()
        console.print_line(f"Stored results of commit {_commits(*stored().values())}.")
        names = {one.claim_id for one in outcomes}
        new = [name for paper in stored() for name in find_claims(paper) if name not in names]
        if new:
            console.print_line(f"Not stored yet, make claims does it: {', '.join(new)}")
        console.print_line("weft reproduce PAPER, --claim ID or --quick runs them anew.")
    elif left_out:
        console.print()
        console.print_line(
            f"left out, for they take longer; weft reproduce --claim ID runs one: {', '.join(left_out)}"
        )


def _commits(*entries: StoredPaper) -> str:
    """Which commits stored outcomes are of."""
    return ", ".join(dict.fromkeys(one[:12] for entry in entries for one in entry.commits.values()))


def _print_table(outcomes: Sequence[ClaimOutcome], console: Console) -> None:
    from weft.papers.outcome_texts import VERDICT_TEXTS, deviation_text, number_text

    table = make_table("claim", "paper", "ours", "deviation", "verdict", left=("claim", "verdict"))
    table.columns[0].no_wrap = False
    for one in outcomes:
        table.add_row(
            f"{one.claim_id}: {one.claim}",
            number_text(one.paper_value, one.unit, at_most=one.at_most),
            number_text(one.ours, one.unit),
            deviation_text(one.deviation),
            VERDICT_TEXTS[one.verdict],
        )
    console.print_table(table)
