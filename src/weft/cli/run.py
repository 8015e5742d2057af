"""``weft run``: start the ranks of a job on this machine."""

from __future__ import annotations

from typing import Any

import click

from weft import limits
from weft.cli import job_command, options


@click.command(
    "run",
    cls=job_command.WordsCommand,
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
@job_command.takes_job
def command(ranks: int, words: tuple[str, ...], **given: Any) -> None:
    """Start the ranks of a job on this machine.

    SCRIPT is run by this Python, once per rank; after --, COMMAND is any program. Each line they print has
    its rank in front. When one fails, the others are stopped within five seconds, and weft run ends with its
    exit code; with --keep-going it ends with 0 if any rank does.
    """
    line = job_command.command_line(words)
    attempts = job_command.launch(line, ranks, **given)
    job_command.finish(attempts, line, as_json=given["as_json"])
