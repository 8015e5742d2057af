"""``weft soak``: random operations on real processes for a while, every result checked."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import click

from weft import limits
from weft.cli import options
from weft.cli.output import check_outputs, present, progress, write_page
from weft.cli.signals import heed_signals
from weft.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.cli.console import Console
    from weft.soak import SoakOutcome, Tally
    from weft.soak.health import ResourceGrowth

_LONGEST_S: Final = 7 * 86_400.0
_HOW_LONG: Final = "give a number above 0; a week is the longest"
_MOST_RANKS: Final = 16
"""As in `weft.soak.settings`, which is not imported here because it brings numpy along."""


@click.command(
    "soak",
    epilog=options.examples(
        "weft soak --minutes 10",
        "weft soak --seconds 30 --ranks 4 --transport tcp",
        "weft soak --minutes 60 --seed 7 --json > soak.json",
    ),
)
@click.option(
    "--minutes",
    type=options.number("MINUTES", lambda minutes: 0 < 60 * minutes <= _LONGEST_S, _HOW_LONG),
    help="How long; one minute by default.",
)
@click.option(
    "--seconds",
    type=options.number("SECONDS", lambda seconds: 0 < seconds <= _LONGEST_S, _HOW_LONG),
    help="The same in seconds.",
)
@click.option("--ranks", type=click.IntRange(2, _MOST_RANKS), default=3, help="How many processes.")
@click.option(
    "--transport", type=click.Choice(("auto", "copy", "tcp")), default="auto", help="As for weft.init."
)
@click.option(
    "--seed",
    type=click.IntRange(0, limits.MAX_SEED),
    help="Where all that is random comes from; by default another one each time, which is printed.",
)
@click.option(
    "--timeout", type=options.TIMEOUT, default="30", help="An operation that takes longer is a hang."
)
@click.option("--kills/--no-kills", default=True, help="Whether ranks are killed.")
@click.option(
    "--start",
    type=click.IntRange(0, 10**9),
    default=0,
    help="Number of the first episode, to repeat a failure.",
)
@click.option("--episodes", type=click.IntRange(1, 10**9), help="How many episodes at most.")
@options.report
@options.as_json
def command(
    minutes: float | None,
    seconds: float | None,
    seed: int | None,
    page: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Test the runtime with random operations, for minutes or hours.

    Processes of this machine carry out collectives of random kinds, sizes, types and memory, and compare
    every result; some are killed and started again. Exit code 1 if a result is wrong, something hangs or
    crashes, the wrong rank is named, or memory or descriptors grow.
    """
    from weft.soak import Settings, run

    if minutes is not None and seconds is not None:
        raise InputError("--minutes and --seconds are both given; give one of them")
    check_outputs(page, as_json=as_json)
    settings = Settings(
        seed=secrets.randbelow(2**31) if seed is None else seed,
        seconds=60 * minutes if minutes is not None else seconds or 60.0,
        **fields,
    )
    if not as_json:
        click.echo(f"soak test of {settings.ranks} ranks for {settings.seconds:g} s, seed {settings.seed}")
    with heed_signals(), progress("soak") as report:
        outcome = run(settings, _watch(report, settings.seconds))
    present(outcome, _show, as_json=as_json)
    write_page(page, outcome.to_dict(), as_json=as_json)
    if outcome.failure is not None:
        raise click.exceptions.Exit(1)


def _watch(report: Callable[[str, int, int], None], seconds: float) -> Callable[[Tally], None]:
    def watch(tally: Tally) -> None:
        left = max(0, round(seconds - tally.seconds))
        done = f"{tally.operations.total():,} operations, {tally.kills} kills"
        now = f"{done}, {left // 60}:{left % 60:02} to go"
        report(now, min(round(tally.seconds), round(seconds)), round(seconds))

    return watch


def _show(outcome: SoakOutcome, console: Console) -> None:
    from weft.units import count

    tally, failure = outcome.tally, outcome.failure
    size = f"{tally.checked_bytes / 2**20:,.0f} MiB"
    done = f"{tally.operations.total():,} operations in {tally.seconds:.1f} s, {size} of results compared"
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in tally.operations.most_common())
    facts = [
        ("done", f"{done}; {count(tally.episodes, 'episode')}, {count(tally.joins, 'job')}"),
        ("operations", kinds or "none"),
        ("kills", _say_kills(tally)),
        ("growth", _say_growth(outcome.growth)),
    ]
    if failure is None:
        facts.append(("result", "no failure found"))
    else:
        facts.append(("FAILED", f"{failure.kind}: {printable(failure.text)}"))
        for rank, step in sorted(failure.steps.items()):
            said = failure.said.get(rank, "said nothing")
            facts.append((f"rank {rank}", f"{printable(step)}; {printable(said)}"))
        facts += [("finding", printable(text)) for text in failure.findings]
        facts.append(("repeat", outcome.repeat or ""))
    console.print_facts(*facts)


def _say_kills(tally: Tally) -> str:
    found = tally.to_dict()
    if not tally.losses:
        return "none"
    median, worst = (f"{1000 * found[f'loss_{name}_seconds']:.0f} ms" for name in ("median", "worst"))
    return f"{tally.kills}; all other ranks named the right one, after {median} (median), {worst} (worst)"


def _say_growth(growth: list[ResourceGrowth]) -> str:
    if not all(one.judged for one in growth):
        return "not judged: the test was too short"
    said = []
    for one in growth:
        unit, scale = (" MiB", 1024) if one.what in ("memory", "shared_memory") else ("", 1)
        name = one.what.replace("_", " ")
        said.append(f"{name} {one.growth / scale:+.1f} of {one.level / scale:.1f}{unit}")
    return ", ".join(said)
