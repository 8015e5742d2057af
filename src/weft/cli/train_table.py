"""How ``weft train`` prints one job, the endpoints of the ACE paper side by side, and a sweep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft import units
from weft.cli.output import make_table
from weft.errors import printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.training.job import TrainingResult

_SHORT_DIGITS = 3
_BASELINES = 3
"""Of the endpoints that are compared, the first are baselines."""

_FEW_TIMES = 4
"""Times of iterations that take turns which are printed."""

_MEMORY_PARTS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer": "Adam",
    "activation": "activations",
}


def show_result(result: TrainingResult, console: Console) -> None:
    """Print the result of one job as a list of facts."""
    found = result.to_dict()
    seconds = found["seconds"]

    def share(part: float) -> str:
        return f"{units.human_seconds(part)} ({part / seconds:.1%})" if seconds else units.human_seconds(part)

    head = f"{found['policy']} for {found['model']} on {found['topology']}, {found['ranks']:,} ranks"
    console.print_line(printable(head), "bold")
    by = "; ".join(_schedules(name, how, found["planned"]) for name, how in found["algorithms"].items())
    uses = found["resource_use"].items()
    settings = ", ".join(f"{name} {_plain(name, value)}" for name, value in found["options"].items())
    console.print_facts(
        ("model", _model(found)),
        ("policy", f"{found['policy']}{f', {settings}' if settings else ''}: {result.policy.summary}"),
        *([("advice", printable(result.reason))] if result.reason else []),
        ("memory", _memory(found)),
        ("endpoint", f"{found['endpoint']}: {result.cluster.endpoint.summary}"),
        ("schedules", by or "none"),
        ("iteration", _iteration(found)),
        *([("simplified", result.simplified)] if result.simplified else []),
        ("computing", share(found["computing_s"])),
        ("exposed", share(found["exposed_s"])),
        ("sending", f"{units.human_seconds(found['communication_s'])} in all, seen from rank 0"),
        (
            "at best",
            ", ".join(f"{name} {units.human_seconds(value)}" for name, value in found["lines"].items())
            + (f"; {found['bound_condition']}" if found["bound_condition"] else ""),
        ),
        ("whole run", "busy: " + ", ".join(f"{name} {use:.1%}" for name, use in uses)),
        ("busiest", ", ".join(f"{link['link']} {link['busy']:.1%}" for link in found["busiest_links"])),
    )


def _iteration(found: dict[str, Any]) -> str:
    """Its time and the samples per second; of which iterations that is the mean, if they differ."""
    text = f"{units.human_seconds(found['seconds'])}, {_rate(found['samples_per_s'])} samples/s"
    times = [units.human_seconds(part) for part in found["steady_s"]]
    if len(set(times)) < 2:
        return text
    if not found["settled"]:
        low, high = (units.human_seconds(end(found["steady_s"])) for end in (min, max))
        return f"{text}; mean of the last {len(times)}, which take {low} to {high}"
    if len(times) > _FEW_TIMES:
        times = [*times[:_FEW_TIMES], ".."]
    return f"{text}; mean of {len(found['steady_s'])} that take turns: {', '.join(times)}"


def _model(found: dict[str, Any]) -> str:
    count = found["layers"]
    what = f"{count:,} layer{'s' * (count != 1)}, {_size(found['parameter_bytes'])} of gradients"
    batch = f"{found['batch']:,} sample{'s' * (found['batch'] != 1)}"
    return f"{what}; {batch} per rank on {found['device']}, {found['dtype']}"


def _memory(found: dict[str, Any]) -> str:
    """What each device keeps and whether it fits; what would fit, if it does not."""
    memory = found["memory"]
    parts = ", ".join(
        f"{_gigabytes(memory[f'{key}_bytes'])} {name}"
        for key, name in _MEMORY_PARTS.items()
        if memory[f"{key}_bytes"] is not None
    )
    text = f"{_gigabytes(memory['total_bytes'])} a rank: {parts}"
    if memory["activation_bytes"] is None:
        text += ", and activations, which are not counted for this model"
    if memory["fits"] is not None:
        room = f"the {_gigabytes(memory['capacity_bytes'])} of {found['device']}"
        text += f"; fits {room}" if memory["fits"] else f"; does not fit {room}. {memory['advice']}"
    return text


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.3g} GB" if size_bytes < 10**11 else f"{size_bytes / 1e9:,.0f} GB"


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
    return _given_size(value) if name.endswith("_bytes") else f"{value:g}"


def _given_size(size_bytes: int) -> str:
    """A size as somebody would have given it, 500MB or 25MiB, where its number is a short one."""
    exact = units.format_size(size_bytes)
    return exact if len(exact.rstrip("kKMGTiB")) <= _SHORT_DIGITS else _size(size_bytes)


def show_endpoints(found: list[dict[str, Any]], console: Console) -> None:
    """Print the endpoints of the ACE paper side by side, against the best of its baselines."""
    from weft.training.endpoints import WHILE_SENDING

    names = [row["sweep"]["endpoint"] for row in found]
    if any(name.endswith(WHILE_SENDING) for name in names):
        console.print_line("processors and memory are taken from computing only while a rank sends")
    names = [name.removesuffix(WHILE_SENDING) for name in names]
    left = ("endpoint", "policy")
    table = make_table(*left, "iteration", "computing", "exposed", "over the best baseline", left=left)
    baselines = [row["seconds"] for row in found[:_BASELINES] if "error" not in row]
    for name, row in zip(names, found, strict=True):
        if "error" in row:
            table.add_row(name, *["-"] * 5)
        else:
            gain = f"{min(baselines) / row['seconds']:.2f}x" if baselines and row["seconds"] else "-"
            times = (units.human_seconds(row[key]) for key in ("seconds", "computing_s", "exposed_s"))
            table.add_row(name, row["policy"], *times, gain)
    console.print_table(table)
    for name, row in zip(names, found, strict=True):
        if "error" in row:
            console.print_line(printable(f"{name}: {row['error']}"))


def show_sweep(found: list[dict[str, Any]], keys: list[str], chosen: list[str], console: Console) -> None:
    """Print a row for each job of a sweep, and below the table what failed."""
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
    console.print_table(table)
    for row in found:
        if "error" in row:
            what = ", ".join(f"{key} {value}" for key, value in row["sweep"].items())
            console.print_line(printable(f"{what}: {row['error']}"))
