"""The table of ``weft compare`` without ``--size``: every algorithm at several sizes, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.cli.output import aligned_number, largest_unit, make_table
from weft.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from weft.cli.console import Console
    from weft.planning import Comparison

TIME_UNITS: Final = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("ps", 1e-12))

_NONE: Final = "-"


def show_sizes(found: Sequence[Comparison], console: Console) -> None:
    """Print a table with two columns for each size, and what stands below it.

    Parameters
    ----------
    found
        One comparison for each size, of the same collective on the same topology.
    console
        Where to print.
    """
    from weft.bounds.collective_bound import condition_of
    from weft.planning.nccl_estimate import NOT_SIMULATED
    from weft.units import count, format_size, human_seconds

    first = found[0]
    console.print_line(f"{first.collective} on {printable(first.topology.name)}", "bold")
    ranks = count(first.topology.ranks, "rank")
    console.print_line(f"{ranks}, {count(first.topology.links, 'link')}, {first.sharing} sharing", "dim")
    console.print()
    console.print_table(_make_table(found))
    console.print()
    bounds = ", ".join(f"{format_size(one.size_bytes)} {human_seconds(one.bound.seconds)}" for one in found)
    # Once for all sizes, though it is only the bounds of bandwidth that need it.
    conditions = [condition_of(one.topology, one.collective, one.bound.kind) for one in found]
    bounds += next((f" ({condition})" for condition in conditions if condition), "")
    fastest = ", ".join(
        f"{format_size(one.size_bytes)} {one.best.algorithm}" for one in found if one.best is not None
    )
    facts = [("bound", bounds), ("fastest", fastest or "none")]
    estimates = [(one.size_bytes, one.nccl_estimate) for one in found]
    expected = ", ".join(f"{format_size(size)} {made.first}" for size, made in estimates if made is not None)
    if expected:
        facts.append(("estimate", f"{expected} ({NOT_SIMULATED})"))
    console.print_facts(*facts)
    reasons: dict[str, dict[str, None]] = {}
    for one in found:
        for skipped in one.skipped:
            reasons.setdefault(skipped.reason, {})[skipped.algorithm] = None
    labels = ["skipped", *[""] * len(reasons)]
    lines = [f"{', '.join(same)}: {printable(reason)}" for reason, same in reasons.items()]
    console.print_facts(
        *zip(labels, lines, strict=False), ("more", "--size SIZE shows one of them in full"), style="dim"
    )


def _make_table(found: Sequence[Comparison]) -> Table:
    from weft.units import format_size

    units = [largest_unit(_fastest(one), TIME_UNITS) for one in found]
    heads = ["algorithm"]
    for one, (unit, _) in zip(found, units, strict=True):
        heads += [f"{format_size(one.size_bytes)}\n{unit}", "% of\nbound"]
    table = make_table(*heads, left=("algorithm",))
    rows = [{row.algorithm: row for row in one.results} for one in found]
    for name in _order(found):
        cells: list[str | Text] = [name]
        for one, by_name, (_, second) in zip(found, rows, units, strict=True):
            row = by_name.get(name)
            if row is None or row.seconds is None:
                cells += [_NONE, _NONE]
                continue
            mark = "bold green" if row is one.best else "" if row.verified else "red"
            near = _NONE if row.fraction_of_bound is None else f"{100 * row.fraction_of_bound:.1f}"
            time = aligned_number(row.seconds / second, _fastest(one) / second)
            cells += [_marked(time, mark), _marked(near, mark)]
        table.add_row(*cells)
    return table


def _marked(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style)


def _fastest(one: Comparison) -> float:
    return one.best.seconds if one.best is not None and one.best.seconds else 1.0


def _order(found: Sequence[Comparison]) -> list[str]:
    """Algorithms by their time at the largest size, then those that have none there."""
    names: dict[str, None] = {}
    for one in reversed(found):
        timed = [row for row in one.results if row.seconds is not None]
        names |= dict.fromkeys(row.algorithm for row in sorted(timed, key=lambda row: row.seconds or 0.0))
    return list(names)
