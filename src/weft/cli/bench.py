"""``weft bench``: time collectives for real, beside other runtimes."""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from weft import limits
from weft.bench.task import COLLECTIVES, ITEM_BYTES, OPS
from weft.cli import options
from weft.cli.bench_table import BenchTable
from weft.cli.output import check_outputs, print_json, write_page
from weft.cli.signals import heed_signals
from weft.errors import InputError, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.bench.bound import MachineLimit
    from weft.bench.measure import BenchEffort, BenchRow, MeasuredJob
    from weft.bench.task import BenchTask, Place
    from weft.topology import Topology

_SETTINGS: Final = ("memory", "transport", "algorithm", "topology", "plan", "schedule")
_NCCL_DTYPES: Final = {"half": "float16", "float": "float32", "double": "float64"}
"""Names of nccl-tests for types that numpy calls otherwise."""


def _read_count(option: str, text: str) -> int | None:
    """A whole number, or None for the word ``auto``."""
    if text == "auto":
        return None
    least = 1 if option == "-n" else 0
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) < least:
        raise InputError(f"{option} {text}: give a whole number from {least}, or auto")
    return int(text)


def _read_dtype(option: str, text: str) -> str:
    """Name of a type as numpy or as nccl-tests spells it."""
    name = _NCCL_DTYPES.get(text, text)
    if name not in ITEM_BYTES:
        known = ", ".join([*ITEM_BYTES, *_NCCL_DTYPES])
        raise InputError(f"{option} {quote(text)}: is not a type that can be measured. Known: {known}")
    return name


def _read_check(option: str, text: str) -> bool:
    """Whether results are checked: 1 or 0, as in nccl-tests."""
    if text not in ("0", "1"):
        raise InputError(f"{option} {quote(text)}: give 1 or 0; a collective is --collective")
    return text == "1"


_CHECK: Final = options.OptionType("0|1", _read_check)
_DTYPE: Final = options.OptionType("NAME", _read_dtype)
_COUNT: Final = options.OptionType("COUNT|auto", _read_count)


@click.command(
    "bench",
    epilog=options.examples(
        "weft bench -R 4 -b 64K -e 16M",
        "weft bench -R 2 -b 16M -e 128M --against gloo,mpi",
        "weft bench -R 4 --memory shared --json > shared.json",
        "weft run -n 4 -- weft bench -b 1M -e 64M",
    ),
)
@click.option(
    "-b",
    "--min-bytes",
    "least",
    type=options.SIZE,
    default="4K",
    help="Smallest size; K, M and G are powers of 1024, as in nccl-tests.",
)
@click.option("-e", "--max-bytes", "most", type=options.SIZE, default="128M", help="Largest size.")
@click.option(
    "-f",
    "--step-factor",
    "factor",
    type=click.IntRange(2, 1024),
    default=2,
    help="From one size to the next.",
)
@click.option(
    "-n",
    "--iters",
    "iterations",
    type=_COUNT,
    default="auto",
    help="Operations in a round; auto fills a twentieth of a second.",
)
@click.option(
    "-w",
    "--warmup-iters",
    "warmups",
    type=_COUNT,
    default="auto",
    help="Operations before each round that are not timed; auto is a quarter of the others, at most 20.",
)
@click.option(
    "-r",
    "--rounds",
    type=click.IntRange(1, 10_000),
    default=5,
    help="Rounds per size; nccl-tests has -r for the root.",
)
@click.option(
    "-R",
    "-g",
    "--ranks",
    type=click.IntRange(1, limits.MAX_LOCAL_RANKS),
    default=2,
    help="Processes to start on this machine; -g as in nccl-tests, which has -R for registered memory.",
)
@click.option(
    "-d",
    "--dtype",
    type=_DTYPE,
    default="float32",
    help=f"One of {', '.join(ITEM_BYTES)}; {', '.join(_NCCL_DTYPES)} as in nccl-tests.",
)
@click.option("-o", "--op", type=click.Choice(OPS), default="sum")
@click.option(
    "-c",
    "--check",
    type=_CHECK,
    default="1",
    help="Whether results are compared with what they should be: 1 for yes, 0 for no.",
)
@click.option("--collective", type=click.Choice(COLLECTIVES), default="all_reduce")
@click.option(
    "--place",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    help="Whether the result goes elsewhere than the input.",
)
@click.option(
    "--memory",
    type=click.Choice(["private", "shared"]),
    default="private",
    help="Weft's tensors: of any origin, or from Communicator.empty, which the ranks of a machine share.",
)
@click.option("--transport", type=click.Choice(["auto", "copy", "tcp"]), default="auto")
@options.names_algorithm(own=False, help="Weft's schedule, as for weft.init.")
@click.option("--topology", metavar="SPEC|FILE", help="What it is built on; its speeds are the bound.")
@click.option("--plan", metavar="FILE", help="What weft plan wrote.")
@click.option("--schedule", metavar="FILE", help="Any schedule, such as weft export wrote; it is verified.")
@options.against("gloo, mpi (Open MPI 5), mpi4 (Open MPI 4), mpich, oneccl")
@options.timeout
@options.report
@options.as_json
def command(**given: Any) -> None:
    """Time collectives for real, beside other runtimes.

    Sizes, options and columns are those of nccl-tests, but for -r and -R. Results are checked; #wrong counts
    elements that are not exactly what they should be, and makes the exit code 1. A ratio says how many times
    as long a peer takes; ~ marks one whose rounds differ too much to say so. Inside a job (under weft run,
    torchrun, mpirun) the ranks of that job are measured.
    """
    from weft.bench.measure import BenchEffort, measure
    from weft.runtime.bootstrap.environment import in_job

    check_outputs(given["page"], as_json=given["as_json"])
    if given["least"] > given["most"]:
        raise InputError(f"-b {given['least']} is more than -e {given['most']}; there is no size to measure")
    places: tuple[Place, ...] = ("out", "in") if given["place"] == "both" else (given["place"],)
    effort = BenchEffort(given["rounds"], given["iterations"], given["warmups"], given["check"])
    with (_this_job if in_job() else _new_jobs)(given) as (performers, tasks, limit, speaks):
        if given["place"] != "both" and given["place"] not in tasks[0].places:
            msg = f"--place {given['place']}: {given['collective']} has only {' and '.join(tasks[0].places)}"
            raise InputError(msg)
        table = BenchTable(given, performers, tasks)
        if speaks and not given["as_json"]:
            table.begin()
        rows = []
        for row in measure(performers, tasks, effort, places, limit):
            rows.append(row)
            if speaks and not given["as_json"]:
                table.add(row)
    if speaks:
        if given["as_json"]:
            print_json(_document(given, effort, performers, rows))
        else:
            table.end(rows)
        found = [_document(given, effort, performers, rows), *([given["plan"]] if given["plan"] else [])]
        write_page(given["page"], *found, as_json=given["as_json"])
    if any(one.wrong for row in rows for series in row.series.values() for one in series.values()):
        raise click.exceptions.Exit(1)


_Setting = tuple[list["MeasuredJob"], list["BenchTask"], "Callable[[BenchTask], MachineLimit | None]", bool]


"""Who is measured with what: performers, tasks, the bound of a task, whether this process is to print."""


@contextmanager
def _this_job(given: dict[str, Any]) -> Iterator[_Setting]:
    """Measure the job that this process belongs to."""
    from weft.bench.peers.weft_peer import OwnJob
    from weft.runtime.bootstrap.environment import find_place

    if given["against"]:
        msg = "--against: peers are measured beside jobs that weft bench starts; run it outside of a job"
        raise InputError(msg)
    options.refuse_unused("ranks", reason="this process is a rank of a job already, whose ranks are measured")
    place = find_place()
    one_machine = place.local_size == place.size
    limit = _limit(given["topology"], place.size, measured=one_machine and place.rank == 0)
    with closing(OwnJob(_settings(given), given["timeout"])) as here:
        yield [here], _tasks(given, place.size), limit, place.rank == 0


@contextmanager
def _new_jobs(given: dict[str, Any]) -> Iterator[_Setting]:
    """Measure jobs that are started here."""
    from weft.bench.bench_session import BenchSession
    from weft.bench.peers import find_entry, find_peers
    from weft.bench.peers.weft_peer import make_chooser

    ranks, settings = given["ranks"], _settings(given)
    make_chooser(ranks, settings)  # a bad one is told at once, and once
    entries = [find_entry("weft"), *find_peers(given["against"])]
    tasks = _tasks(given, ranks)
    for entry in entries:
        entry.check(tasks[0])
    limit = _limit(given["topology"], ranks, measured=True)
    with heed_signals(), BenchSession(given["timeout"]) as stage:
        teams = [stage.start(entry, ranks, settings) for entry in entries]
        yield list(teams), tasks, limit, True
        for team in teams:
            team.leave()


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _SETTINGS}


def _tasks(given: dict[str, Any], ranks: int) -> list[BenchTask]:
    from weft.bench.task import make_tasks

    what = (given["collective"], given["dtype"], given["op"])
    return make_tasks(*what, ranks, given["least"], given["most"], given["factor"])


def _limit(source: str | None, ranks: int, *, measured: bool) -> Callable[[BenchTask], MachineLimit | None]:
    """What a task takes at least: by the topology's speeds if it has any, else by this machine's memory."""
    from weft.bench.bound import memory_limit, topology_limit
    from weft.topology import load_topology
    from weft.topology.spec_parser import is_spec

    if ranks == 1:
        return lambda _task: None
    if source is not None and ("@" in source or not is_spec(source)):
        topology: Topology = load_topology(source)
        return lambda task: topology_limit(task, topology)
    return memory_limit if measured else lambda _task: None


def _document(
    given: dict[str, Any], effort: BenchEffort, performers: list[MeasuredJob], rows: list[BenchRow]
) -> dict[str, Any]:
    import platform

    return {
        "ranks": rows[0].task.ranks,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "settings": _settings(given),
        "rounds": effort.rounds,
        "versions": {performer.name: performer.versions for performer in performers},
        "rows": [row.to_dict() for row in rows],
    }
