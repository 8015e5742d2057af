"""``weft run``: start the ranks of a job on this machine."""

from __future__ import annotations

import sys

import click

from weft import limits
from weft.cli import job, options


@click.command(
    "run",
    cls=job.WordsCommand,
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
@job.job_json
@job.plain
@job.words
@click.pass_context
def command(ctx: click.Context, ranks: int, as_json: bool, plain: bool, words: tuple[str, ...]) -> None:
    """Start the ranks of a job on this machine.

    SCRIPT is run by this Python, once per rank; after --, COMMAND is any program. Each line they print has
    its rank in front. When one fails, the others are stopped within five seconds, and weft run ends with its
    exit code.
    """
    from weft.runtime.launch import launch

    line = job.command_line(ctx, words)
    stream = sys.stderr if as_json else sys.stdout
    result = launch(line, ranks, out=stream.buffer, err=sys.stderr.buffer, marked=not plain)
    job.finish(ctx, result, line, as_json=as_json)
