"""``weft lab``: real bytes over emulated clusters."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from weft.cli import job_command, options
from weft.cli.output import (
    check_outputs,
    make_console,
    make_table,
    one_line,
    print_json,
    progress,
    write_page,
)
from weft.cli.signals import heed_signals
from weft.errors import LONGEST_MESSAGE, InputError, RuntimeFailure, WeftError
from weft.units import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.algorithms.registry import Algorithm
    from weft.lab.contest import Entrant, EntrantResult
    from weft.lab.network import Network

_LARGEST_SCALE: Final = 1000.0
_ELEMENT_BYTES: Final = 4


@click.group("lab")
def command() -> None:
    """Emulate a cluster, and run or measure jobs on it.

    Each host is a network namespace, each link a cable with the topology's speed both ways, shaped by the
    kernel; real processes send real bytes through them. It needs root and iproute2, and in a container the
    privileges to make namespaces: `weft lab check` says whether they are there. Everything is removed at the
    end; what a killed lab left is removed by the next.
    """


_topology = click.argument("topology", metavar="TOPOLOGY")


_SCALE: Final = options.number(
    "auto|FACTOR", lambda factor: 0 < factor <= _LARGEST_SCALE, "give a factor such as 0.001, or auto"
)

_scale = click.option(
    "--scale",
    type=_SCALE,
    default="auto",
    help="Multiply the speeds of all cables; auto slows them down to what this machine can emulate.",
)


@contextmanager
def _lab(topology: str, scale: float | None) -> Iterator[Network]:
    from weft.lab import build
    from weft.lab.speed_scale import fit
    from weft.topology import load_topology

    fitted, factor = fit(load_topology(topology), scale)
    with heed_signals(), build(fitted) as network:
        plan = network.blueprint
        hosts = sum(bool(space.ranks) for space in plan.spaces)
        switches = len(plan.spaces) - hosts
        parts = (count(hosts, "host"), count(switches, "switch"), count(len(plan.cables), "cable"))
        what = ", ".join(parts)
        slow = "" if factor == 1 else f"; every cable at {factor:.3g} of its speed"
        click.echo(one_line(f"weft: {fitted.name} as {what}{slow}", LONGEST_MESSAGE), err=True)
        yield network


@command.command("check", epilog=options.examples("weft lab check", "weft lab check --json"))
@options.as_json
def check(as_json: bool) -> None:
    """Say whether clusters can be emulated here.

    Builds the smallest cluster there is and removes it again. Exit code 2 where that is refused, and the
    error says what is missing.
    """
    from weft.lab import build

    problem: WeftError | None = None
    try:
        with heed_signals(), build("switch:2@bw=40Mbit/s"):
            pass
    except (InputError, RuntimeFailure) as error:
        problem = error
    if as_json:
        print_json({"ok": problem is None, "problem": None if problem is None else str(problem)})
        raise click.exceptions.Exit(InputError.exit_code if problem else 0)
    if problem is not None:
        raise InputError(f"no cluster can be emulated here: {problem}") from problem
    click.echo("clusters can be emulated here")


@command.command(
    "run",
    cls=job_command.WordsCommand,
    epilog=options.examples(
        "weft lab run torus:2x4@bw=20Mbit/s train.py",
        "weft lab run --scale 0.001 cluster.toml -- python -m package.train",
        "weft lab run --keep-going switch:4@bw=1Gbit/s examples/train_shrink.py --kill 3",
        "weft lab run switch:4@bw=100Mbit/s -- weft bench -b 64K -e 4M",
    ),
)
@_scale
@_topology
@job_command.takes_job
def run(topology: str, scale: float | None, words: tuple[str, ...], **given: Any) -> None:
    """Run a job on an emulated cluster, one process per rank.

    As `weft run`, but each rank is started on its host of TOPOLOGY. `weft.init()` then plans for it:
    WEFT_TOPOLOGY names a file with the cluster and the addresses of its cables. torch.distributed finds
    the variables that torchrun would set.
    """
    line = job_command.command_line(words)
    if shutil.which(line[0]) is None:
        raise InputError(f"{line[0]}: cannot be started: no such program")
    with _lab(topology, scale) as network:
        attempts = job_command.launch(line, network.topology.ranks, **given, seats=network.seats())
    job_command.finish(attempts, line, as_json=given["as_json"])


@command.command(
    "bench",
    epilog=options.examples(
        "weft lab bench torus:2x4@bw=20Mbit/s --size 4MB --against gloo",
        "weft lab bench hosts:4,2,1@uplink=40Mbit/s/20Mbit/s/10Mbit/s --size 1MB --algorithm hierarchical",
        "weft lab bench switch:8@bw=50Mbit/s --size 4MB --against gloo,mpi --json > star.json",
    ),
)
@_topology
@_scale
@click.option(
    "--size", type=options.SIZE, default="4MB", help="Bytes per rank, such as 4MB (10^6) or 4MiB (2^20)."
)
@options.names_algorithm(
    "algorithms", multiple=True, help="Measure this algorithm on Weft's runtime too; may be repeated."
)
@options.against("gloo, mpi, mpi4")
@click.option("-r", "--rounds", type=click.IntRange(1, 10_000), default=5)
@options.timeout
@options.report
@options.as_json
def bench(**given: Any) -> None:
    """Time all-reduce on an emulated cluster: what Weft plans, beside other algorithms and runtimes.

    All take turns, round after round. Beside each time stands what the simulator predicts for the network as
    it is emulated. Gloo takes part twice: with the ranks as they are numbered, and in the order that suits
    its ring best.
    """
    from weft.algorithms.resolver import resolve_algorithms
    from weft.bench.peers import find_peers
    from weft.lab.contest import hold

    check_outputs(given["page"], as_json=given["as_json"])
    if given["size"] < _ELEMENT_BYTES:
        raise InputError(f"--size {given['size']}: a rank has at least one element of {_ELEMENT_BYTES} bytes")
    find_peers(given["against"])
    # Before a cluster is built: what cannot be read, and a script that fails, is told at once.
    lines = resolve_algorithms(given["algorithms"], "all_reduce") if given["algorithms"] else []
    with _lab(given["topology"], given["scale"]) as network:
        entrants = _entrants(network, lines, given["against"])
        with progress("lab") as report:
            outcomes = hold(
                network,
                entrants,
                given["size"],
                rounds=given["rounds"],
                timeout=given["timeout"],
                progress=lambda now: report(now, 0, 0),
            )
        if given["as_json"]:
            print_json(_document(network, given, outcomes))
        else:
            _print(outcomes)
        write_page(given["page"], _document(network, given, outcomes), as_json=given["as_json"])
    if any(outcome.wrong for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _entrants(network: Network, lines: list[Algorithm], peers: tuple[str, ...]) -> list[Entrant]:
    from weft.lab.contest import OWN, Entrant, peers_of

    own = [
        Entrant(f"{OWN} {line.name}", schedule=line.build(network.topology, "all_reduce", 0))
        for line in lines
    ]
    return [Entrant(OWN), *own, *peers_of(network, peers)]


def _print(outcomes: list[EntrantResult]) -> None:
    table = make_table(
        "runtime", "algorithm", "median\ns", "fastest\ns", "slowest\ns", "pre-\ndicted", "off\n%",
        "times\nweft's", left=("runtime", "algorithm"),
    )  # fmt: skip
    own = outcomes[0].median_seconds
    for one in outcomes:
        predicted = "-" if one.predicted_seconds is None else f"{one.predicted_seconds:.3f}"
        off = "-" if one.deviation is None else f"{100 * one.deviation:+.1f}"
        times = (one.median_seconds, min(one.seconds), max(one.seconds))
        cells = [f"{seconds:.3f}" for seconds in times]
        # "weft ring" runs ring, which the next column says: the longest names leave room for all columns.
        name = one.name.removesuffix(f" {one.algorithm}")
        table.add_row(name, one.algorithm or "-", *cells, predicted, off, f"{one.median_seconds / own:.2f}")
    make_console().print_table(table, drop=(4, 3))
    for one in outcomes:
        if one.wrong:
            click.echo(f"weft: error: {one.name}: {one.wrong:,} elements are wrong", err=True)


def _document(network: Network, given: dict[str, Any], outcomes: list[EntrantResult]) -> dict[str, Any]:
    own = outcomes[0].median_seconds
    return {
        "topology": network.topology.name,
        "ranks": network.topology.ranks,
        "size_bytes": given["size"] // 4 * 4,
        "rounds": given["rounds"],
        "results": [{**one.to_dict(), "ratio": one.median_seconds / own} for one in outcomes],
    }
