"""``weft plan``: choose the best schedule for every size, and write it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from weft.cli import options
from weft.cli.output import check_outputs, make_console, print_json, progress, write_output
from weft.cli.terminal_text import printable

if TYPE_CHECKING:
    from weft.collective_names import Collective
    from weft.planning import Plan


def _read_sizes(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> list[int]:
    return [options.read_size(ctx, option, text) for text in texts]


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
    multiple=True,
    callback=_read_sizes,
    metavar="SIZE",
    help="Plan for this size, such as 64MiB; may be repeated. By default for 4KiB to 1GiB.",
)
@options.collective
@options.root
@click.option(
    "--algorithm", "algorithms", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option("-o", "--output", metavar="FILE", help="Write the plan; - for standard output.")
@click.option(
    "--time-limit",
    default="none",
    show_default=True,
    callback=options.read_time_limit,
    metavar="SECONDS|none",
    help="Wall-clock time: return the best plan found by then.",
)
@click.option("--warm-start", metavar="FILE", help="A plan of a similar cluster: try first what it chose.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    topology: str,
    sizes: list[int],
    collective: Collective,
    root: int,
    algorithms: tuple[str, ...],
    output: str | None,
    time_limit: float | None,
    warm_start: str | None,
    as_json: bool,
) -> None:
    """Choose the best schedule for every size, and write it down.

    TOPOLOGY is a spec such as torus:8x8@bw=16GB/s,lat=150ns, a TOML file, an NCCL topology XML file, the
    output of nvidia-smi topo -m, or - for one of these on standard input. A plan file stands for its
    topology; without further options, or with --json alone, the plan is shown again.

    Every algorithm and variant that applies is built, verified and simulated; the plan says which one to run
    at which size, in segments of which size, and how near that is to what no algorithm can beat. weft verify,
    simulate and export take the file.
    """
    from weft.cli.inputs import obtain_network
    from weft.planning import Plan, load_plan, plan
    from weft.planning.plan_file import encode_plan

    check_outputs(output, as_json=as_json)
    network = obtain_network(topology)
    if isinstance(network, Plan):
        if not _given(ctx):
            _print(network, as_json=as_json)
            return
        network = network.topology
    known = None if warm_start is None else load_plan(warm_start)
    with progress("plan") as report:
        found = plan(
            network,
            sizes or None,
            collective=collective,
            root=root,
            algorithms=algorithms or None,
            time_limit=time_limit,
            warm_start=known,
            progress=report,
        )
        data = b"" if output is None else encode_plan(found)
    if output is not None:
        write_output(output, data)
    if output != "-":
        _print(found, as_json=as_json)
    if output is not None and output != "-" and not as_json:
        click.echo(f"\nwrote {printable(output)}, {len(data):,} bytes")


def _given(ctx: click.Context) -> bool:
    """Whether options ask for a plan to be made, rather than for one to be shown."""
    names = [name for name in ctx.params if name not in ("topology", "as_json")]
    return any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def _print(found: Plan, *, as_json: bool) -> None:
    from rich.text import Text

    if as_json:
        print_json(found.to_dict())
        return
    console = make_console()
    for index, line in enumerate(found.explain().splitlines()):
        console.print(Text(printable(line), style="" if index else "bold"), soft_wrap=True)
