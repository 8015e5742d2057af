"""``weft plan``: choose the best schedule for every size, and write it down."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from weft.cli import options
from weft.cli.output import check_outputs, present, progress, write_output, write_page
from weft.cli.time_limit import loading_within, running_within, time_left
from weft.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.cli.console import Console
    from weft.planning import Plan


@click.command(
    "plan",
    epilog=options.examples(
        "weft plan torus:8x8 -o plan.weft",
        "weft plan cluster.toml --size 64MiB --json",
        "weft plan dgx-h100:4 --collective all_gather --size 1MiB --size 256MiB -o gather.weft",
        "weft plan torus:8x8+fail=3-4 --warm-start plan.weft --time-limit 1 -o plan.weft",
    ),
)
@click.argument("topology")
@click.option(
    "--size",
    "sizes",
    type=options.SIZE,
    multiple=True,
    help="Plan for this size, such as 64MiB; may be repeated. By default for 4KiB to 1GiB.",
)
@options.collective
@options.root
@options.algorithms
@click.option("-o", "--output", metavar="FILE", help="Write the plan; - for standard output.")
@click.option(
    "--time-limit",
    type=options.TIME_LIMIT,
    default="none",
    help="Wall-clock time: return the best plan found by then.",
)
@click.option("--warm-start", metavar="FILE", help="A plan of a similar cluster: try first what it chose.")
@options.on_executor("algorithms are built", deadline=False)
@options.report
@options.as_json
def command(
    topology: str,
    sizes: tuple[int, ...],
    algorithms: tuple[str, ...],
    output: str | None,
    warm_start: str | None,
    executor: str | None,
    jobs: int | None,
    page: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Choose the best schedule for every size, and write it down.

    TOPOLOGY is a spec such as torus:8x8@bw=16GB/s,lat=150ns, a TOML file, what weft import
    reads, or - for one of these on standard input. A plan file stands for its
    topology; without further options, or with --json alone, the plan is shown again.

    Every algorithm and variant that applies is built, verified and simulated; the plan says which one to run
    at which size, in segments of which size, and how near that is to what no algorithm can beat. weft verify,
    simulate and export take the file. Ctrl-C ends the search with the best plan so far and writes that one.
    """
    from weft.cli.inputs import obtain_network
    from weft.planning import Plan, load_plan, plan_steps
    from weft.planning.plan_file import encode_plan
    from weft.sweeps import abandon, open_executor

    check_outputs(output, page, as_json=as_json)
    limit, began = how["time_limit"], time.monotonic()
    with loading_within(limit):
        network = obtain_network(topology)
    if isinstance(network, Plan):
        if not _given():
            present(network, _show, as_json=as_json)
            write_page(page, network, as_json=as_json)
            return
        network = network.topology
    known = None if warm_start is None else load_plan(warm_start)
    if executor is None:
        options.refuse_unused("jobs", reason="it is for --executor, which is not given")
    how["time_limit"] = time_left(limit, began)
    with progress("plan") as report, running_within(limit):
        how |= {"algorithms": algorithms or None, "warm_start": known, "progress": report}
        with nullcontext() if executor is None else open_executor(executor, jobs) as pool:
            found, is_interrupted = _last_of(plan_steps(network, sizes or None, executor=pool, **how))
            if is_interrupted and pool is not None:
                abandon(pool)  # what is built now is not waited for
        data = b"" if output is None else encode_plan(found)
    if output is not None:
        write_output(output, data)
    if output != "-":
        present(found, _show, as_json=as_json)
    if output is not None and output != "-" and not as_json:
        click.echo(f"\nwrote {printable(output)}, {len(data):,} bytes")
    write_page(page, found, as_json=as_json or output == "-")
    if is_interrupted:
        # As an interrupt ends every command, but after the plan is safe.
        raise KeyboardInterrupt


def _last_of(steps: Iterator[Plan]) -> tuple[Plan, bool]:
    """Give the last plan, or on Ctrl-C the best so far, and whether it is that one."""
    found: Plan | None = None
    try:
        for better in steps:
            found = better
    except KeyboardInterrupt:
        if found is None:
            raise
        click.echo("weft: interrupted; this is the best plan so far", err=True)
        return found, True
    assert found is not None  # there is always a last one
    return found, False


def _given() -> bool:
    """Whether options ask for a plan to be made, rather than for one to be shown."""
    ctx = click.get_current_context()
    names = [name for name in ctx.params if name not in ("topology", "page", "as_json")]
    return any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def _show(found: Plan, console: Console) -> None:
    for index, line in enumerate(found.explain().splitlines()):
        console.print(printable(line), style="" if index else "bold", soft_wrap=True)
