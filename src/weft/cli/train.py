"""``weft train``: simulate an iteration of training, or many, and print what is exposed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import click

from weft import units
from weft.cli import options
from weft.cli.inputs import obtain_network
from weft.cli.output import (
    check_outputs,
    make_console,
    make_table,
    print_facts,
    print_json,
    print_line,
    print_table,
    progress,
)
from weft.cli.terminal_text import printable
from weft.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from weft.training.job import TrainingJob, TrainingResult

_network = lru_cache(maxsize=4)(obtain_network)
"""Topologies and plans by their names; a process that simulates many jobs reads each once."""


def _read_options(
    _ctx: click.Context, option: click.Parameter, words: tuple[str, ...]
) -> dict[str, float | None]:
    """Read ``NAME=VALUE`` words: sizes, times, numbers, or none."""
    found: dict[str, float | None] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            msg = f"{option.opts[0]} {word}: expected NAME=VALUE"
            raise InputError(msg)
        if name in found:
            msg = f"{option.opts[0]} {word}: it is set already, by another {option.opts[0]}"
            raise InputError(msg)
        found[name] = _read_option(name, text)
    return found


def _read_option(name: str, text: str) -> float | None:
    if text == "none":
        return None
    if name.endswith("_bytes"):
        return units.parse_size(text)
    if name.endswith("_s"):
        return units.parse_time(text) / units.PS_PER_S
    try:
        return float(text) if "." in text else int(text)
    except ValueError as error:
        msg = f"--option {name}={text}: expected a number, or none"
        raise InputError(msg) from error


def _read_stragglers(
    _ctx: click.Context, option: click.Parameter, words: tuple[str, ...]
) -> dict[int, float]:
    found: dict[int, float] = {}
    for word in words:
        rank, _, factor = word.partition("=")
        try:
            known, found[int(rank)] = len(found), float(factor)
        except ValueError as error:
            msg = f"{option.opts[0]} {word}: expected a rank and how many times as slow, such as 3=1.5"
            raise InputError(msg) from error
        if len(found) == known:
            msg = f"{option.opts[0]} {word}: rank {rank} is slow already"
            raise InputError(msg)
    return found


def _read_sweeps(
    _ctx: click.Context, option: click.Parameter, words: tuple[str, ...]
) -> dict[str, list[str]]:
    """Read ``KEY=VALUE,VALUE,..`` words."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key in axes:
            msg = f"{option.opts[0]} {word}: {key} comes twice"
            raise InputError(msg)
        axes[key] = [value for value in text.split(",") if value]
    return axes


def _read_time(_ctx: click.Context, _option: click.Parameter, text: str) -> float:
    return units.parse_time(text) / units.PS_PER_S


@click.command(
    "train",
    epilog=options.examples(
        "weft train torus:4x4 --model resnet50 --device v100",
        "weft train 'switch:64@bw=1.25GB/s,lat=25us' --model bert-large --device rtx2080ti --policy dear",
        "weft train ace:4x4x4 --model resnet50 --device ace-npu --endpoint ace --algorithm four_phase",
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
@click.option("--device", default="v100", show_default=True, metavar="NAME", help="What computes.")
@click.option("--batch", type=click.IntRange(min=1), help="Samples per rank; by default the model's own.")
@click.option("--dtype", metavar="NAME", help="Number format; by default the device's usual one.")
@click.option(
    "--policy",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="When gradients are sent; auto chooses WFBP or DeAR and its fusion.",
)
@click.option(
    "--fusion", callback=options.read_optional_size, metavar="SIZE", help="How much is sent together."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=_read_options,
    metavar="NAME=VALUE",
    help="Further option of the policy; repeat for several.",
)
@click.option(
    "--endpoint", default="free", show_default=True, metavar="NAME", help="What communication costs a rank."
)
@click.option(
    "--algorithm",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Of the collectives; auto takes the fastest of a few, or what a plan says.",
)
@click.option(
    "--channels",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Collectives under way at a time.",
)
@click.option(
    "--overhead",
    "overhead_s",
    default="0s",
    show_default=True,
    callback=_read_time,
    metavar="TIME",
    help="What every collective takes before it sends.",
)
@click.option(
    "--iterations",
    type=click.IntRange(2, 1000),
    help="How many to simulate; by default as many as the policy needs.",
)
@click.option(
    "--jitter",
    type=float,
    default=0.0,
    show_default=True,
    callback=options.check_number,
    help="Standard deviation of computing times, as a share.",
)
@click.option(
    "--straggler",
    "stragglers",
    multiple=True,
    callback=_read_stragglers,
    metavar="RANK=FACTOR",
    help="A slow rank; repeat for several.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the jitter.")
@click.option(
    "--sweep",
    "axes",
    multiple=True,
    callback=_read_sweeps,
    metavar="KEY=VALUE,..",
    help="Simulate every combination: policy, fusion, scale, batch, endpoint, device, algorithm, model.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 256), help="Processes of a sweep; by default one for each processor."
)
@click.option(
    "--executor",
    type=click.Choice(["processes", "mpi"]),
    default="processes",
    show_default=True,
    help="Where a sweep runs.",
)
@click.option("--trace", metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing.")
@options.as_json
def command(
    axes: dict[str, list[str]],
    jobs: int | None,
    executor: str,
    trace: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Simulate an iteration of training on a cluster.

    TOPOLOGY is whatever weft topology takes; a PLAN, which weft plan wrote, brings its schedules. Every rank
    computes the layers of the model on its device and sends its gradients by the policy, over the network,
    through its endpoint: all of it at once, so that what contends is seen to contend.
    """
    from weft.training.job import TrainingJob

    check_outputs(trace, as_json=as_json)
    job = TrainingJob(**fields)
    if axes:
        if trace is not None:
            msg = "--trace: a sweep writes none; trace one of its jobs by itself"
            raise InputError(msg)
        _sweep(job, axes, executor, jobs, as_json)
        return
    options.refuse_unused("jobs", "executor", reason="one job runs by itself; they are for --sweep")
    with progress("train") as report:
        report("simulating", 0, 0)
        result = read_inputs(job).run(record=trace is not None)
        if trace is not None:
            result.save_trace(trace)
    if as_json:
        print_json(result.to_dict())
    elif trace != "-":
        _show(result, make_console())
        if trace is not None:
            click.echo(f"\nwrote {printable(trace)}")


def read_inputs(job: TrainingJob) -> TrainingJob:
    """Read the files that a job names: a plan or topology, and a script that makes the model."""
    model = job.model
    if isinstance(model, str) and ":" in model:
        from weft.torch.tracing import trace

        model = trace(model)
    return replace(job, topology=_network(str(job.topology)), model=model)


def _show(result: TrainingResult, console: Console) -> None:
    from weft.units import human_seconds

    found = result.to_dict()
    seconds = found["seconds"]

    def share(part: float) -> str:
        return f"{human_seconds(part)} ({part / seconds:.1%})" if seconds else human_seconds(part)

    head = f"{found['policy']} for {found['model']} on {found['topology']}, {found['ranks']:,} ranks"
    print_line(console, printable(head), "bold")
    by = "; ".join(_schedules(name, how, found["planned"]) for name, how in found["algorithms"].items())
    uses = found["resource_use"].items()
    settings = ", ".join(f"{name} {_plain(name, value)}" for name, value in found["options"].items())
    print_facts(
        console,
        [
            ("model", _model(found)),
            ("policy", f"{found['policy']}{f', {settings}' if settings else ''}: {result.policy.summary}"),
            *([("advice", printable(result.reason))] if result.reason else []),
            ("endpoint", f"{found['endpoint']}: {result.cluster.endpoint.summary}"),
            ("schedules", by or "none"),
            ("iteration", f"{human_seconds(seconds)}, {_rate(found['samples_per_s'])} samples/s"),
            ("computing", share(found["computing_s"])),
            ("exposed", share(found["exposed_s"])),
            ("sending", f"{human_seconds(found['communication_s'])} in all, seen from rank 0"),
            (
                "at best",
                ", ".join(f"{name} {human_seconds(value)}" for name, value in found["lines"].items()),
            ),
            ("whole run", "busy: " + ", ".join(f"{name} {use:.1%}" for name, use in uses)),
            ("busiest", ", ".join(f"{link['link']} {link['busy']:.1%}" for link in found["busiest_links"])),
        ],
    )


def _refuse_failure(found: list[dict[str, Any]]) -> None:
    """Raise the first error of a sweep if none of its jobs could be simulated, as one job would."""
    if all("error" in row for row in found):
        msg = f"none of the {len(found):,} jobs could be simulated; the first: {found[0]['error']}"
        raise InputError(msg)


def _model(found: dict[str, Any]) -> str:
    count = found["layers"]
    what = f"{count:,} layer{'s' * (count != 1)}, {_size(found['parameter_bytes'])} of gradients"
    return f"{what}; {found['batch']:,} samples per rank on {found['device']}"


def _schedules(collective: str, algorithms: list[str], planned: str | None) -> str:
    """The algorithms that carry out a collective; with a plan, whether they are the planned ones."""
    source = "" if planned is None else " (planned)" if collective == planned else " (not in the plan)"
    return f"{collective} by {' and '.join(algorithms)}{source}"


def _size(size_bytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.1f} {unit}"
    return f"{size_bytes} B"


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def _plain(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return _size(value) if name.endswith("_bytes") else f"{value:g}"


def _sweep(
    job: TrainingJob, axes: dict[str, list[str]], executor: str, jobs: int | None, as_json: bool
) -> None:
    from weft.training.sweep import expand, heeding_interrupts, open_executor, sweep

    points = expand(job, axes)
    with (
        progress("train") as report,
        heeding_interrupts() as stopped,
        open_executor(executor, jobs and min(jobs, len(points))) as pool,
    ):
        found = sweep(points, pool, report=report, stopped=stopped, prepare=read_inputs)
    if as_json:
        print_json({"results": found})
        _refuse_failure(found)
        return
    keys = list(axes)
    console = make_console()
    chosen = ["runs as"] if any(point.job.policy == "auto" for point in points) else []
    left = (*keys, *chosen)
    table = make_table(*left, "iteration", "samples/s", "exposed", "% exposed", left=left)
    for row in found:
        cells = [printable(row["sweep"][key]) for key in keys] + [row.get("policy", "-")] * len(chosen)
        if "error" in row:
            table.add_row(*cells, "-", "-", "-", "-")
        else:
            exposed = row["exposed_s"] / row["seconds"] if row["seconds"] else math.nan
            table.add_row(
                *cells,
                units.human_seconds(row["seconds"]),
                _rate(row["samples_per_s"]),
                units.human_seconds(row["exposed_s"]),
                f"{100 * exposed:.1f}",
            )
    print_table(console, table)
    for row in found:
        if "error" in row:
            what = ", ".join(f"{key} {value}" for key, value in row["sweep"].items())
            print_line(console, printable(f"{what}: {row['error']}"))
    _refuse_failure(found)
