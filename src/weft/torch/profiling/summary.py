"""The text summary of a profile, on one screen."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from weft import units
from weft.errors import name_ranks
from weft.torch.profiling.expected_times import Prediction
from weft.torch.profiling.figures import stragglers
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from weft.torch.profiling.figures import Figures, GroupFigures, RankFigures
    from weft.torch.profiling.recording import Recording

WIDTH: Final = 100
MOST_GROUPS: Final = 12
MOST_RANKS: Final = 8
"""Lines of either table; of more, those that matter most are shown."""

MOST_CHARACTERS: Final = 32
"""Of a parameter's or a host's name."""

_MEANING: Final = {
    "forward": "without what is waited for or updated in it",
    "backward": "",
    "update": "arithmetic of the optimizer",
    "wait": "for communication: what is not hidden",
    "other": "data, loss, hooks, and whatever else",
}


def summarize(
    recording: Recording,
    figures: Figures,
    ranks: Sequence[RankFigures],
    prediction: Prediction | str,
) -> str:
    """Return tables of an iteration's parts, of the groups and of the ranks, and the prediction."""
    sent = units.human_seconds(figures.communication_s)
    lines = [
        _head(recording, figures),
        "",
        _text(_iteration_table(figures)),
        "",
        _text(_group_table(recording, figures)),
        *_left_out("groups", len(figures.groups), MOST_GROUPS, "largest"),
        "",
        f"communication: {sent} an iteration, {100 * figures.hidden:.0f} % of it hidden",
        *_prediction_lines(prediction, figures),
    ]
    if len(ranks) > 1:
        lines += ["", _text(_rank_table(ranks)), *_left_out("ranks", len(ranks), MOST_RANKS, "slowest")]
        lines += _straggler_lines(ranks)
    return "\n".join(lines) + "\n"


def _head(recording: Recording, figures: Figures) -> str:
    fusion = recording.fusion
    size = sum(group.size_bytes for group in fusion.groups)
    text = (
        f"rank {recording.rank} of {recording.ranks}: {_count(figures.iterations, 'iteration')} by "
        f"{fusion.policy}, {_megabytes(size)} MB in {_count(len(fusion.groups), 'group')} "
        f"(plan {fusion.digest[:8]})"
    )
    if recording.left_out:
        text += f"\nleft out: {_count(recording.left_out, 'iteration')} with other fusions, before this one"
    return text


def _iteration_table(figures: Figures) -> Table:
    table = _table("", "median", "10 %", "90 %", "share", "", left=(0, 5))
    rows = [
        ("iteration", figures.whole, ""),
        *((part, figures.parts[part], _MEANING[part]) for part in _MEANING),
    ]
    for name, spread, meaning in rows:
        share = spread.median_s / figures.whole.median_s if figures.whole.median_s else 0.0
        times = (units.human_seconds(time) for time in (spread.median_s, spread.low_s, spread.high_s))
        table.add_row(name, *times, f"{100 * share:.0f} %", meaning)
    return table


def _group_table(recording: Recording, figures: Figures) -> Table:
    kinds = [kind for kind in COLLECTIVES if any(kind in group.seconds for group in figures.groups)]
    heads = [head for kind in kinds for head in (kind.replace("_", "-"), "MB/s")]
    table = _table("group", "MB", *heads, "parameters", left=(len(heads) + 2,))
    largest = sorted(figures.groups, key=lambda group: -group.size_bytes)[:MOST_GROUPS]
    for group in sorted(largest, key=lambda group: group.number):
        cells = [cell for kind in kinds for cell in _times(group, kind)]
        table.add_row(str(group.number), _megabytes(group.size_bytes), *cells, _members(recording, group))
    return table


def _times(group: GroupFigures, kind: str) -> tuple[str, str]:
    if kind not in group.seconds:
        return "-", "-"
    return units.human_seconds(group.seconds[kind].median_s), f"{group.rate(kind) / 1e6:.1f}"


def _members(recording: Recording, group: GroupFigures) -> str:
    """First parameter, and how many follow; of a long name its end, which tells more."""
    first, *more = recording.fusion.groups[group.number].names
    rest = f" +{len(more)}" if more else ""
    return _short(first, MOST_CHARACTERS - len(rest)) + rest


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else "..." + text[3 - most :]


def _prediction_lines(prediction: Prediction | str, figures: Figures) -> Iterator[str]:
    if not isinstance(prediction, Prediction):
        yield f"no prediction: {prediction}"
        return
    model = prediction.timeline
    yield (
        f"predicted: {units.human_seconds(model.seconds)} an iteration, {100 * model.hidden:.0f} % hidden; "
        f"measured {units.human_seconds(prediction.measured_s)} ({100 * prediction.deviation:+.0f} %)"
    )
    computing = figures.computing_s - (model.seconds - model.exposed_s)
    waiting = figures.parts["wait"].median_s - model.exposed_s
    rest = prediction.measured_s - model.seconds - computing - waiting
    yield f"the difference: computing {_signed(computing)}, waiting {_signed(waiting)}, other {_signed(rest)}"
    yield (
        f"ideal lines: wfbp {units.human_seconds(prediction.ideal_wfbp_s)}, "
        f"dear {units.human_seconds(prediction.ideal_dear_s)}"
    )


def _rank_table(ranks: Sequence[RankFigures]) -> Table:
    table = _table("rank", "host", "iteration", "computing", "other", "waiting", left=(1,))
    for one in sorted(ranks, key=lambda one: one.wait_s)[:MOST_RANKS]:
        times = map(units.human_seconds, (one.iteration_s, one.computing_s, one.other_s, one.wait_s))
        table.add_row(str(one.rank), _short(one.host, MOST_CHARACTERS), *times)
    return table


def _straggler_lines(ranks: Sequence[RankFigures]) -> Iterator[str]:
    slow = stragglers(ranks)
    if not slow:
        yield "no stragglers: no rank keeps the others waiting"
        return
    others = [one.rank for one in ranks if one.rank not in slow]
    wait, them = "waits" if len(others) == 1 else "wait", "it" if len(slow) == 1 else "them"
    yield f"stragglers: {name_ranks(slow)}; {name_ranks(others)} {wait} for {them}"


def _signed(seconds: float) -> str:
    seconds = round(seconds, 7)  # what is shorter comes from rounding
    return ("-" if seconds < 0 else "+") + units.human_seconds(abs(seconds))


def _left_out(what: str, count: int, most: int, kept: str) -> list[str]:
    return [f"the {kept} {most} of {count} {what}"] if count > most else []


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.3g}"


def _table(*columns: str, left: tuple[int, ...] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index in left else "right", no_wrap=True)
    return table


def _text(table: Table) -> str:
    from rich.console import Console

    stream = io.StringIO()
    quiet = Console(file=stream, width=WIDTH, color_system=None, markup=False, emoji=False, highlight=False)
    quiet.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
