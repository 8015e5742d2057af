"""``weft verify``: prove that a schedule computes its collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft import limits
from weft.cli import options
from weft.cli.inputs import ScheduleSource, takes_schedule
from weft.cli.output import check_outputs, make_console, one_line, print_json, progress, write_page
from weft.errors import printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.errors import VerificationError
    from weft.planning import Plan
    from weft.verification import VerificationReport

_LONGEST_PROBLEM = 200
"""Characters on standard error."""


@click.command(
    "verify",
    epilog=options.examples(
        "weft verify ring.weft",
        "weft verify ring.weft --slots 2 --fused",
        "weft verify plan.weft",
        "weft verify fattree:64 --algorithm halving_doubling --contention",
        "weft verify ring.weft --report verdict.html",
        "weft export torus:4x4 --algorithm ring -o - | weft verify - --json",
    ),
)
@takes_schedule("SCHEDULE|PLAN|TOPOLOGY")
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="K",
    help="Demand that K receive buffers per connection suffice; by default, say how many do.",
)
@click.option("--fused", is_flag=True, help="For executors that receive and forward in one instruction.")
@click.option("--contention", is_flag=True, help="Count the flows that meet on each link.")
@options.max_work(limits.MAX_WORK)
@options.report
@options.as_json
def command(
    source: ScheduleSource, max_work: float | None, page: str | None, as_json: bool, **checks: Any
) -> None:
    """Prove that a schedule computes its collective.

    SCHEDULE is a file that weft export wrote, or - for one on standard input. Of a PLAN, which weft plan
    wrote, every schedule is proved. With --algorithm, a TOPOLOGY stands there instead and the schedule is
    built on the spot.

    Checked are races within a step, the result at every rank and chunk, the routes, and that bounded buffers
    cannot get stuck. Exit code 1 if something is wrong, with transfer, rank and chunk.
    """
    from weft.planning import Plan
    from weft.verification import inspect
    from weft.verification.checking_work import estimate_checks

    check_outputs(page, as_json=as_json)
    with progress("verify") as report:
        report("schedule", 0, 0)
        found = source.obtain(max_work)
        plans = [one.schedule for one in found.schedules] if isinstance(found, Plan) else [found]
        work = sum(map(estimate_checks, plans))
        limits.check_work(f"verifying {source.name}", work, max_work)
        reports = []
        for index, plan in enumerate(plans):
            report(f"{plan.transfers:,} transfers", index, len(plans))
            reports.append(inspect(plan, max_work=max_work, **checks))
    document = _plan_dict(found, reports) if isinstance(found, Plan) else reports[0].to_dict()
    if as_json:
        print_json(document)
    else:
        console = make_console()
        for index, one in enumerate(reports):
            if index:
                console.print()
            _show(one, console)
    write_page(page, document, found.topology, as_json=as_json)
    wrong = [result.problem for result in reports if result.problem is not None]
    if wrong:
        among = f" ({len(wrong)} of {len(reports)} schedules)" if len(reports) > 1 else ""
        click.echo(f"weft: error: {one_line(_place(wrong[0]), _LONGEST_PROBLEM)}{among}", err=True)
    if not all(result.ok for result in reports):
        raise click.exceptions.Exit(1)


def _place(problem: VerificationError) -> str:
    """Say which check failed and where; the report on standard output says the rest, once."""
    named = {"transfer": problem.transfer, "rank": problem.rank, "chunk": problem.chunk}
    place = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    return f"the schedule is wrong: {problem.check}" + (f" at {place}" if place else "")


def _show(found: VerificationReport, console: Console) -> None:
    from rich.text import Text

    verdict = ("correct", "bold green") if found.ok else ("WRONG", "bold red")
    console.print(Text.assemble((f"{printable(found.title)}: ", "bold"), verdict), soft_wrap=True)
    # The report prints itself, one line per check; only the folding is ours.
    body = str(found).removeprefix(f"{found.title}: {verdict[0]}\n  ")
    lines = [line.split(None, 1) for line in body.split("\n  ")]
    console.print_facts(*((name, printable(text)) for name, text in lines))


def _plan_dict(plan: Plan, reports: list[VerificationReport]) -> dict[str, Any]:
    return {
        "plan": f"{plan.collective} on {plan.topology.name}",
        "topology_digest": plan.topology.digest,
        "verified": all(found.ok for found in reports),
        "schedules": [found.to_dict() for found in reports],
    }
