"""``weft run``: start the ranks of a job on this machine."""

from __future__ import annotations

import sys

import click

from weft import limits
from weft.cli import job_command, options


@click.command(
    "run",
    cls=job_command.WordsCommand,
    context_settings={"allow_interspersed_args": False},
    epilog=options.examples(
        "weft run -n 4 train.py --epochs 10",
        "weft run -n 2 -- python -m package.train",
        "weft run -n 4 --restarts 3 train.py --checkpoint state.npz",
        "weft run -n 4 --keep-going examples/train_shrink.py",
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
@job_command.restarts
@job_command.keep_going
@job_command.job_json
@job_command.plain
@job_command.words
@click.pass_context
def command(
    ctx: click.Context,
    ranks: int,
    restarts: int,
    keep_going: bool,
    as_json: bool,
    plain: bool,
    words: tuple[str, ...],
) -> None:
    """Start the ranks of a job on this machine.

    SCRIPT is run by this Python, once per rank; after --, COMMAND is any program. Each line they print has
    its rank in front. When one fails, the others are stopped within five seconds, and weft run ends with its
    exit code; with --keep-going it ends with 0 if any rank does.
    """
    from weft.runtime.launcher.restarts import launch_with_restarts

    line = job_command.command_line(ctx, words)
    stream = sys.stderr if as_json else sys.stdout

    attempts = launch_with_restarts(
        line,
        ranks,
        restarts,
        job_command.pause,
        out=stream.buffer,
        err=sys.stderr.buffer,
        marked=not plain,
        keep_going=keep_going,
    )
    job_command.finish(ctx, attempts, line, as_json=as_json)
