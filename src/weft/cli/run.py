"""``weft run``: start the ranks of a job on this machine."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft import limits
from weft.cli import options
from weft.cli.lines import one_line
from weft.cli.output import LONGEST_LINE, print_json
from weft.errors import InputError
from weft.files import exists

if TYPE_CHECKING:
    from weft.runtime.launch import JobResult

_IS_PROGRAM = "weft.cli.run.is_program"


class _Run(click.Command):
    """A command that knows whether ``--`` stood before its words, which click itself forgets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and remember."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words", ())
        ctx.meta[_IS_PROGRAM] = given[: len(given) - len(words)][-1:] == ["--"]
        return rest


@click.command(
    "run",
    cls=_Run,
    context_settings={"allow_interspersed_args": False},
    epilog=options.examples(
        "weft run -n 4 train.py --epochs 10",
        "weft run -n 2 -- python -m package.train",
        "weft run -n 4 --json train.py > summary.json",
    ),
)
@click.option(
    "-n",
    "ranks",
    type=click.IntRange(1, limits.MAX_LOCAL_RANKS),
    required=True,
    metavar="RANKS",
    help="How many processes to start.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print how the job went as one JSON document; what the ranks print then goes to standard error.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="SCRIPT|-- COMMAND [WORDS]")
@click.pass_context
def command(ctx: click.Context, ranks: int, as_json: bool, words: tuple[str, ...]) -> None:
    """Start the ranks of a job on this machine.

    SCRIPT is run by this Python, once per rank; after --, COMMAND is any program. Each line they print has
    its rank in front. When one fails, the others are stopped within five seconds, and weft run ends with its
    exit code.
    """
    from weft.runtime.launch import launch

    line = list(words) if ctx.meta[_IS_PROGRAM] else [sys.executable, *_check_script(words)]
    stream = sys.stderr if as_json else sys.stdout
    result = launch(line, ranks, out=stream.buffer, err=sys.stderr.buffer)
    if as_json:
        print_json(_as_dict(result, line))
    if result.exit_code:
        click.echo(one_line(_complaint(result), LONGEST_LINE), err=True)
        ctx.exit(result.exit_code)


def _check_script(words: tuple[str, ...]) -> tuple[str, ...]:
    if not exists(Path(words[0])):
        msg = f"{words[0]}: no such file; to run a command, write -- before it"
        raise InputError(msg)
    return words


def _complaint(result: JobResult) -> str:
    if result.first_failure is not None:
        first = result.results[result.first_failure]
        end = f"exit code {first.exit_code}" if first.signal is None else f"killed by {_name(first.signal)}"
        others = "; the others were stopped" if len(result.results) > 1 else ""
        return f"weft: error: rank {first.rank} failed first: {end}{others}"
    assert result.signal is not None
    if result.signal == signal.SIGINT:
        return "weft: interrupted"
    return f"weft: stopped by {_name(result.signal)}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals between the first and the last
        return f"signal {number}"


def _as_dict(result: JobResult, line: list[str]) -> dict[str, Any]:
    return {
        "command": line,
        "ranks": len(result.results),
        "exit_code": result.exit_code,
        "first_failure": result.first_failure,
        "signal": result.signal,
        "results": [asdict(one) for one in result.results],
    }
