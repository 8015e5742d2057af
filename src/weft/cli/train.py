"""``weft train``: simulate an iteration of training, or many, and print what is exposed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft import units
from weft.cli import options
from weft.cli.inputs import obtain_network
from weft.cli.output import check_outputs, make_console, print_json, progress, write_page
from weft.cli.sweep_place import SweepPlace
from weft.cli.train_table import show_endpoints, show_result, show_sweep
from weft.errors import InputError, printable
from weft.files import exists

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.planning import Plan
    from weft.topology import Topology
    from weft.training.job import TrainingJob
    from weft.training.sweep import SweepPoint

_ALL = "all"


@lru_cache(maxsize=4)
def _read_network(source: str, stamp: tuple[int, ...] | None) -> Topology | Plan:  # noqa: ARG001
    return obtain_network(source)


def _network(source: str) -> Topology | Plan:
    """Read a topology or plan; a process with many jobs reads each once, and a changed file anew."""
    try:
        found = Path(source).stat()
    except (OSError, ValueError):  # a spec, or standard input
        return _read_network(source, None)
    return _read_network(source, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


def _pairs(read: Callable[[str, str, str], Any], twice: str) -> Callable[..., dict[Any, Any]]:
    """Make a callback that reads ``NAME=VALUE`` words into a dictionary.

    Parameters
    ----------
    read
        Gives the key and the value, from what complaints begin with and what stands around the sign.
    twice
        What is wrong with a key that is there already, which stands for ``{}``.
    """

    def collect(_ctx: click.Context, option: click.Parameter, words: tuple[str, ...]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for word in words:
            given = f"{option.opts[0]} {word}"
            key, value = read(given, *word.partition("=")[::2])
            if key in found:
                raise InputError(f"{given}: {twice.format(key)}")
            found[key] = value
        return found

    return collect


def _read_option(given: str, name: str, text: str) -> tuple[str, float | None]:
    """Read a size, a time, a number, or none."""
    if not (name and text):
        raise InputError(f"{given}: expected NAME=VALUE")
    if text == "none":
        return name, None
    if name.endswith("_bytes"):
        return name, units.parse_size(text)
    if name.endswith("_s"):
        return name, units.parse_time(text) / units.PS_PER_S
    try:
        return name, float(text) if "." in text else int(text)
    except ValueError as error:
        raise InputError(f"{given}: expected a number, or none") from error


def _read_straggler(given: str, rank: str, factor: str) -> tuple[int, float]:
    try:
        return int(rank), float(factor)
    except ValueError as error:
        raise InputError(f"{given}: expected a rank and how many times as slow, such as 3=1.5") from error


def _read_sweep(_given: str, key: str, text: str) -> tuple[str, list[str]]:
    return key, [value for value in text.split(",") if value]


@click.command(
    "train",
    epilog=options.examples(
        "weft train torus:4x4 --model resnet50 --device v100",
        "weft train 'switch:64@bw=1.25GB/s,lat=25us' --model bert-large --device rtx2080ti --policy dear",
        "weft train ace:4x2x2 --model resnet50-published --device ace-npu --algorithm four_phase "
        "--endpoint all",
        "weft train 'switch:{scale}' --model resnet50 --sweep policy=ddp,dear --sweep scale=8,16,32",
        "weft train plan.weft --model model.py:make_model --trace trace.json",
    ),
)
@click.argument("topology", metavar="TOPOLOGY|PLAN")
@click.option(
    "--model",
    required=True,
    metavar="NAME|FILE:FUNCTION",
    help="A workload, or a function that returns a torch module.",
)
@click.option("--device", metavar="NAME", help="What computes; by default a preset's own, otherwise v100.")
@click.option("--batch", type=click.IntRange(min=1), help="Samples per rank; by default the model's own.")
@click.option("--dtype", metavar="NAME", help="Number format; by default the device's usual one.")
@click.option(
    "--policy",
    default="auto",
    metavar="NAME",
    help="When gradients are sent; auto chooses WFBP or DeAR and its fusion.",
)
@click.option("--fusion", type=options.SIZE, help="How much is sent together.")
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=_pairs(_read_option, "it is set already, by another --option"),
    metavar="NAME=VALUE",
    help="Further option of the policy; repeat for several.",
)
@click.option(
    "--endpoint",
    default="free",
    metavar="NAME",
    help="What communication costs a rank; all compares those of the ACE paper. NAME:while-sending costs it "
    "only then.",
)
@options.names_algorithm(
    default="auto", help="Of the collectives; auto takes the fastest of a few, or what a plan says."
)
@click.option("--channels", type=click.IntRange(1, 64), default=1, help="Collectives under way at a time.")
@click.option(
    "--overhead",
    "overhead_s",
    type=options.OptionType("TIME", lambda _option, text: units.parse_time(text) / units.PS_PER_S),
    default="0s",
    help="What every collective takes before it sends.",
)
@click.option(
    "--iterations",
    type=click.IntRange(2, 1000),
    help="How many to simulate; by default as many as it takes until times repeat, up to 16.",
)
@click.option(
    "--jitter",
    type=options.number("SHARE", lambda share: not math.isnan(share), "give a share, such as 0.05"),
    default="0",
    help="Standard deviation of computing times, as a share.",
)
@click.option(
    "--straggler",
    "stragglers",
    multiple=True,
    callback=_pairs(_read_straggler, "rank {} is slow already"),
    metavar="RANK=FACTOR",
    help="A slow rank; repeat for several.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the jitter.")
@click.option(
    "--sweep",
    "axes",
    multiple=True,
    callback=_pairs(_read_sweep, "{} comes twice"),
    metavar="KEY=VALUE,..",
    help="Simulate every combination: policy, fusion, scale, batch, endpoint, device, algorithm, model.",
)
@options.on_executor("a sweep runs", "processes")
@options.trace
@click.option(
    "--trace-ranks", metavar="RANKS", help="Ranks in the trace, such as 0,1,8-15; by default the first 8."
)
@click.option(
    "--trace-links", metavar="LINKS", help="Links in it, such as 0->1,1->2; by default all, or the busiest."
)
@click.option(
    "--trace-iteration",
    type=click.IntRange(min=0),
    metavar="N",
    help="The only iteration in it, from 0; by default all, or the last full one.",
)
@options.report
@options.as_json
def command(
    axes: dict[str, list[str]],
    jobs: int | None,
    executor: str,
    deadline: float | None,
    trace: str | None,
    trace_ranks: str | None,
    trace_links: str | None,
    trace_iteration: int | None,
    page: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Simulate an iteration of training on a cluster.

    TOPOLOGY is whatever weft topology takes; a PLAN, which weft plan wrote, brings its schedules. Every rank
    computes the layers of the model on its device and sends its gradients by the policy, over the network,
    through its endpoint: all of it at once, so that what contends is seen to contend.
    """
    from weft.training.job import TrainingJob

    check_outputs(trace, page, as_json=as_json)
    if trace is None:
        reason = "there is no trace to choose for; give --trace FILE"
        options.refuse_unused("trace_ranks", "trace_links", "trace_iteration", reason=reason)
    job = TrainingJob(**fields)
    compared = _compared_endpoints(str(job.endpoint))
    if compared and "endpoint" in axes:
        raise InputError(f"--endpoint {job.endpoint}: --sweep names endpoints already; leave one of them out")
    if compared or axes:
        if trace is not None:
            raise InputError("--trace: a sweep writes none; trace one of its jobs by itself")
        axes = axes | ({"endpoint": compared} if compared else {})
        _sweep(job, axes, SweepPlace(executor, jobs, deadline), page, as_json)
        return
    reason = "one job runs by itself; they are for --sweep"
    options.refuse_unused("jobs", "executor", "deadline", reason=reason)
    shown = {"ranks": trace_ranks, "links": trace_links, "iteration": trace_iteration}
    _simulate(job, trace, shown, page, as_json=as_json)


def _simulate(
    job: TrainingJob, trace: str | None, shown: dict[str, Any], page: str | None, *, as_json: bool
) -> None:
    """Simulate one job, print its result, and write its trace and its page."""
    from weft.planning import Plan
    from weft.topology import Topology
    from weft.training.trace_selection import select_trace

    with progress("train") as report:
        report("simulating", 0, 0)
        ready = read_inputs(job)
        network = ready.topology.topology if isinstance(ready.topology, Plan) else ready.topology
        assert isinstance(network, Topology)
        select_trace(network, **shown)  # what cannot be shown is refused before minutes of work
        result = ready.run(record=trace is not None)
    # First what was asked for in any case: the disk may be too full for a trace.
    if as_json:
        print_json(result.to_dict())
    elif trace != "-":
        show_result(result, make_console())
    if trace is not None:
        left_out = result.save_trace(trace, **shown)
        if trace != "-" and not as_json:
            click.echo(f"\nwrote {printable(trace)}")
        if left_out:
            choose = "choose with --trace-ranks, --trace-links and --trace-iteration"
            click.echo(f"weft: the trace leaves out {left_out}; {choose}", err=True)
    write_page(page, result, as_json=as_json or trace == "-")


def _compared_endpoints(name: str) -> list[str]:
    """The endpoints that ``all`` stands for; none for any other name."""
    from weft.training.endpoints import COMPARED, WHILE_SENDING

    if name.removesuffix(WHILE_SENDING) != _ALL:
        return []
    return [endpoint + name.removeprefix(_ALL) for endpoint in COMPARED]


def read_inputs(job: TrainingJob) -> TrainingJob:
    """Read the files that a job names: a plan or topology, and a script that makes the model."""
    return _read_model_of(replace(job, topology=_network(str(job.topology))))


def _read_network_of(job: TrainingJob) -> TrainingJob:
    """Read a plan or a file; a spec is left to the workers of a sweep."""
    from weft.topology.repeated_box import split_repeated
    from weft.topology.spec_parser import is_spec

    source = str(job.topology)
    is_plain = is_spec(source) and split_repeated(source) is None and not exists(Path(source))
    return job if is_plain else replace(job, topology=_network(source))


def _read_model_of(job: TrainingJob) -> TrainingJob:
    if not isinstance(job.model, str) or not (":" in job.model or job.model.endswith(".py")):
        return job
    from weft.torch.tracing import trace

    return replace(job, model=trace(job.model))


def simulate_point(text: str) -> str:
    """Simulate a job of a sweep in a worker of this machine, also one that names a script of the user's."""
    from weft.training.job_text import read_job

    return json.dumps(_read_model_of(read_job(text, scripts=True)).run().to_dict(), allow_nan=False)


def _sweep(
    job: TrainingJob,
    axes: dict[str, list[str]],
    place: SweepPlace,
    page: str | None,
    as_json: bool,
) -> None:
    from weft.sweeps.executors import is_local
    from weft.training.sweep import expand, sweep

    points = expand(job, axes)
    if _ALL in str(job.endpoint).split(":"):
        points = [_overlapping_or_serial(point) for point in points]
    with progress("train") as report, place.open(len(points)) as (pool, how):
        local = is_local(pool)
        function = "simulate_point" if local else "simulate_job"
        prepare = _read_network_of if local else lambda one: _read_model_of(_read_network_of(one))
        found = sweep(points, pool, report=report, prepare=prepare, function=function, **how)
    if as_json:
        print_json({"results": found})
    elif list(axes) == ["endpoint"] and _ALL in str(job.endpoint).split(":"):
        show_endpoints(found, make_console())
    else:
        chosen = ["runs as"] if any(point.job.policy == "auto" for point in points) else []
        show_sweep(found, list(axes), chosen, make_console())
    write_page(page, {"results": found}, as_json=as_json)
    if all("error" in row for row in found):  # an error, as that of one job would be
        msg = f"none of the {len(found):,} jobs could be simulated; the first: {found[0]['error']}"
        raise InputError(msg)


def _overlapping_or_serial(point: SweepPoint) -> SweepPoint:
    """The same, with the one policy that an endpoint has which does not overlap."""
    from weft.training.endpoints import find_endpoint

    if find_endpoint(str(point.job.endpoint)).overlaps:
        return point
    return replace(point, job=replace(point.job, policy="serial", fusion=None, options={}))
