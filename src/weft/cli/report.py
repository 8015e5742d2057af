"""``weft report``: plans, results and traces as one page to look at and to send."""

from __future__ import annotations

import click

from weft.cli import options
from weft.cli.output import check_outputs, progress, write_output
from weft.errors import printable


@click.command(
    "report",
    epilog=options.examples(
        "weft report plan.weft -o report.html",
        "weft report plan.weft bench.json -o report.html",
        "weft report ring.weft --size 16MiB -o report.html",
        "weft report trace.json -o report.html",
    ),
)
@click.argument("sources", metavar="PLAN|SCHEDULE|RESULT|TRACE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the page; - for standard output.")
@click.option(
    "--size",
    type=options.SIZE,
    help="Buffer size at which plans and schedules run in the picture; by default a plan's last, or 64MiB.",
)
@click.option("--title", metavar="TEXT", help="Title of the page.")
def command(sources: tuple[str, ...], output: str, size: int | None, title: str | None) -> None:
    """Write plans, results and traces as one page of HTML.

    Each source is a PLAN that weft plan wrote, a SCHEDULE that weft export wrote, a RESULT that a command
    printed with --json, or a Chrome TRACE. Sources that belong together are shown together: measurements
    of weft bench stand beside what a plan predicts. The page has everything in it and makes no request.
    """
    from weft.reporting import report

    check_outputs(output, as_json=False, inputs=sources)
    with progress("report") as bar:
        bar("page", 0, 0)
        page = report(*sources, size=size, title=title).encode()
    write_output(output, page)
    if output != "-":
        click.echo(f"wrote {printable(output)}, {len(page):,} bytes")
