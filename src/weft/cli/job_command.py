"""What the verbs that start a job share: the words that are its command, and how it is said that it ended."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from weft import limits
from weft.cli.output import one_line, print_json
from weft.cli.signals import heed_signals
from weft.errors import LONGEST_MESSAGE, InputError, name_ranks
from weft.files import exists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.launcher.launch import JobResult, Seat

_IS_PROGRAM: Final = "weft.cli.job_command.is_program"

job_json: Final = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print how the job went as one JSON document; what the ranks print then goes to standard error.",
)

plain: Final = click.option(
    "--plain",
    is_flag=True,
    help="Give on what the ranks print as it is: no rank in front of lines, and every traceback whole.",
)

restarts: Final = click.option(
    "--restarts",
    type=click.IntRange(0, limits.MAX_RESTARTS),
    default=0,
    metavar="N",
    help="Start the job again when it has failed, at most so often; WEFT_ATTEMPT counts from 0.",
)

keep_going: Final = click.option(
    "--keep-going",
    is_flag=True,
    help="Let the other ranks go on when one fails, for scripts that call Communicator.shrink.",
)

words: Final = click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="SCRIPT|-- COMMAND [WORDS]"
)


def takes_job(verb: Callable[..., None]) -> Callable[..., None]:
    """Declare what every verb that starts a job takes: options, and the words of the job's command."""
    for declare in (words, plain, job_json, keep_going, restarts):
        verb = declare(verb)
    return verb


class WordsCommand(click.Command):
    """A command that knows whether ``--`` stood before its words, which click itself forgets."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and remember which of them are the program's."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        found = ctx.params.get("words", ())
        # Behind another argument click takes it for a word, in front of all it swallows it.
        inside = found[:1] == ("--",)
        if inside:
            ctx.params["words"] = found[1:]
        ctx.meta[_IS_PROGRAM] = inside or given[: len(given) - len(found)][-1:] == ["--"]
        return rest


def command_line(given: tuple[str, ...]) -> list[str]:
    """Program and words: those after ``--``, or this Python and a script."""
    if not given:
        raise InputError("there is no command behind --")
    if click.get_current_context().meta[_IS_PROGRAM]:
        return list(given)
    if not exists(Path(given[0])):
        if given[0].startswith("-"):
            verb = click.get_current_context().command_path
            raise InputError(f"{given[0]}: options stand before all other words; see '{verb} --help'")
        raise InputError(f"{given[0]}: no such file; to run a command, write -- before it")
    return [sys.executable, *given]


def launch(
    line: list[str],
    ranks: int,
    *,
    restarts: int,
    keep_going: bool,
    as_json: bool,
    plain: bool,
    seats: Sequence[Seat] | None = None,
) -> list[JobResult]:
    """Run a job as its options say, and return its attempts."""
    from weft.runtime.launcher.launch import launch as launch_once
    from weft.runtime.launcher.restarts import launch_with_restarts

    once = partial(
        launch_once,
        line,
        ranks,
        out=(sys.stderr if as_json else sys.stdout).buffer,
        err=sys.stderr.buffer,
        seats=seats,
        marked=not plain,
        keep_going=keep_going,
    )
    return launch_with_restarts(once, restarts, _pause)


def _pause(text: str, seconds: float) -> None:
    """Say that a job starts again, and wait before it does."""
    with heed_signals():  # during an attempt the launcher hears them itself
        click.echo(one_line(f"weft: {text}", LONGEST_MESSAGE), err=True)
        time.sleep(seconds)


def finish(attempts: Sequence[JobResult], line: list[str], *, as_json: bool) -> None:
    """Say how the last attempt of a job ended, and end with its exit code."""
    result = attempts[-1]
    if as_json:
        print_json(_as_dict(attempts, line))
    failed = [one.rank for one in result.results if one.exit_code]
    if failed and not result.exit_code:
        told = f"weft: {name_ranks(failed)} failed; the others went on"
        click.echo(one_line(told, LONGEST_MESSAGE), err=True)
    if result.exit_code:
        click.echo(one_line(_complaint(result, len(attempts) - 1), LONGEST_MESSAGE), err=True)
        raise click.exceptions.Exit(result.exit_code)


def _complaint(result: JobResult, restarts: int) -> str:
    if result.failure is not None:
        others = _say_others(result, result.failure.ranks) if result.failure.ranks else ""
        tried = f", after {restarts} restart{'s' * (restarts > 1)}" if restarts else ""
        return f"weft: error: {result.failure}{others}{tried}"
    assert result.signal is not None
    if result.signal == signal.SIGINT:
        return "weft: interrupted"
    return f"weft: stopped by {signal.Signals(result.signal).name}"


def _say_others(result: JobResult, first: Sequence[int]) -> str:
    """Say what became of the ranks that did not fail first."""
    others = [one for one in result.results if one.rank not in first]
    if any(one.stopped for one in others):
        return "; the others were stopped"
    failed = [one.rank for one in others if one.exit_code]
    if failed:
        return f"; {name_ranks(failed)} failed too"
    return "; the others ended well" if others else ""


def _as_dict(attempts: Sequence[JobResult], line: list[str]) -> dict[str, Any]:
    *earlier, last = map(_attempt_as_dict, attempts)
    return {
        "command": line,
        "ranks": len(attempts[-1].results),
        **last,
        "attempt": len(earlier),
        "earlier_attempts": earlier,
    }


def _attempt_as_dict(result: JobResult) -> dict[str, Any]:
    return {
        "exit_code": result.exit_code,
        "first_failure": result.first_failure,
        "failed_ranks": [] if result.failure is None else list(result.failure.ranks),
        "reason": None if result.failure is None else result.failure.reason,
        "signal": result.signal,
        "results": [asdict(one) for one in result.results],
    }
