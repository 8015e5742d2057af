"""The table of ``weft bench``, line by line as sizes are done, in the columns of nccl-tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from weft.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.bench.measure import BenchRow, MeasuredJob, Series
    from weft.bench.task import BenchTask, Place

_PLACES: Final[dict[Place, str]] = {"out": "out-of-place", "in": "in-place"}
_RESULT: Final = ((10, "time", "(us)"), (8, "algbw", "(GB/s)"), (8, "busbw", "(GB/s)"), (7, "#wrong", ""))
_SAME: Final = "none"


class BenchTable:
    """One line a task; head and widths are known from the start.

    Parameters
    ----------
    given
        The command's options.
    performers
        Who is measured.
    tasks
        With what.
    """

    def __init__(
        self, given: dict[str, Any], performers: Sequence[MeasuredJob], tasks: Sequence[BenchTask]
    ) -> None:
        self._given, self._performers, self._task = given, performers, tasks[0]
        self._peers = [performer.name for performer in performers[1:]]

    def begin(self) -> None:
        """Print what is measured, and the head."""
        given, task = self._given, self._task
        cores = len(os.sched_getaffinity(0))
        rounds = count(given["rounds"], "round")
        how = f"{given['memory']} memory, transport {given['transport']}, median of {rounds}"
        where = f"{count(task.ranks, 'rank')} on {count(cores, 'core')}"
        click.echo(f"# {task.collective} among {where}; {how}")
        for performer in self._performers:
            versions = ", ".join(f"{name} {value}" for name, value in performer.versions.items())
            click.echo(f"# {performer.name}: {versions}")
        heads = [self._first("size", "count", "type", "redop"), self._first("(B)", "(elements)", "", "")]
        both = sum(width for width, _, _ in _RESULT)
        above = " " * len(heads[0]) + "".join(name.center(both) for name in _PLACES.values())
        heads[0] += 2 * "".join(name.rjust(width) for width, name, _ in _RESULT)
        heads[1] += 2 * "".join(unit.rjust(width) for width, _, unit in _RESULT)
        heads[0] += self._last("spread", "bound", "algorithm", "digest", self._peers)
        heads[1] += self._last("(%)", "(%)", "", "", ["(times)"] * len(self._peers))
        for head in (above, *heads):
            click.echo(f"# {head.rstrip()}")

    def add(self, row: BenchRow) -> None:
        """Print one task."""
        task, own = row.task, row.series["weft"]
        redop = task.op if task.reduces else _SAME
        line = self._first(str(task.size_bytes), str(task.count), task.dtype, redop)
        for place in _PLACES:
            line += self._result(task, own.get(place))
        judged = own[row.judged_place()]
        spread = "-" if judged.spread is None else f"{100 * judged.spread:.0f}"
        bound = "-" if row.limit is None else f"{100 * row.limit.seconds / judged.median:.1f}"
        ratios = [f"{'' if row.is_steady(peer) else '~'}{row.ratio(peer):.2f}" for peer in self._peers]
        ran = row.ran["weft"]
        names = ran.get("algorithm", "-"), ran.get("digest", "-")[:8]
        click.echo(f"  {line}{self._last(spread, bound, *names, ratios)}")

    def end(self, rows: Sequence[BenchRow]) -> None:
        """Print what the numbers mean, and what is wrong."""
        kinds = dict.fromkeys(row.limit.kind for row in rows if row.limit is not None)
        if any(kind.startswith("memory") for kind in kinds):
            text = "what copying as many bytes as must be read and written takes in this machine's memory"
        elif kinds:
            text = f"the topology's limit ({', '.join(kinds)})"
        else:
            text = "none: give --topology with speeds, or at least 1 MiB among ranks of one machine"
        click.echo(f"# bound: {text}")
        if any(not row.is_steady(peer) for row in rows for peer in self._peers):
            why = "the spread of Weft or of the peer is above 100 %, so that the ratio says little"
            if self._given["rounds"] == 1:
                why = "one round has no spread, so that nobody knows whether the ratio says anything"
            click.echo(f"# ~: {why}; repeat it with more rounds (-r) on a quiet machine")
        for name in (performer.name for performer in self._performers):
            wrong = sum(one.wrong or 0 for row in rows for one in row.series[name].values())
            if wrong:
                click.echo(f"weft: error: {name}: {wrong:,} elements are wrong", err=True)

    def _first(self, size: str, count: str, dtype: str, redop: str) -> str:
        return f"{size:>12} {count:>12} {dtype:>9} {redop:>6}"

    def _result(self, task: BenchTask, series: Series | None) -> str:
        if series is None:
            return "".join("-".rjust(column[0]) for column in _RESULT)
        speed = task.size_bytes / series.median / 1e9
        wrong = "N/A" if series.wrong is None else str(series.wrong)
        cells = (f"{series.median * 1e6:.1f}", f"{speed:.2f}", f"{speed * task.bus_factor:.2f}", wrong)
        return "".join(f"{cell:>{column[0]}}" for cell, column in zip(cells, _RESULT, strict=True))

    def _last(self, spread: str, bound: str, algorithm: str, digest: str, ratios: Sequence[str]) -> str:
        width = max([9, len(self._given["algorithm"] or "")])
        peers = "".join(f"{ratio:>8}" for ratio in ratios)
        return f"{spread:>8} {bound:>6}  {algorithm:<{width}}  {digest:<8}{peers}"
