"""The ``weft`` command: a table of verbs, and one place where errors become one line and an exit code.

Each verb is a file of this package and is imported only when it runs: ``weft --help`` answers at once.

======== ======================================================================================
exit     meaning
======== ======================================================================================
0        done
1        a check failed: a schedule is wrong, the self-test does not pass
2        bad use or bad input
3        a run-time failure: a peer that is lost, a simulation that cannot finish, a disk that is full
70       a bug in Weft; ``WEFT_DEBUG=1`` shows the traceback
130, 141 interrupted; whoever read the output went away
any      of ``weft run``: that of the rank that failed first
======== ======================================================================================
"""

from __future__ import annotations

import sys

try:
    import difflib
    import importlib
    import io
    import keyword
    import os
    from typing import TYPE_CHECKING, Any, Final

    import click

    from weft.errors import LONGEST_MESSAGE, InputError, WeftError, quote
except KeyboardInterrupt:  # `main`, which handles it otherwise, does not exist yet
    sys.stderr.write("weft: interrupted\n")
    sys.exit(130)

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = {
    "compare": "Time every algorithm on a cluster, beside the physical limit.",
    "plan": "Choose the best schedule for every size, and write it down.",
    "topology": "Describe, draw or convert a cluster.",
    "import": "Make one topology file of the files that describe a cluster.",
    "export": "Write a schedule to a file.",
    "verify": "Prove that a schedule computes its collective.",
    "simulate": "Run one schedule on its simulated network.",
    "packets": "Run the tables of network interfaces packet by packet.",
    "train": "Simulate an iteration of training on a cluster.",
    "reproduce": "Show what papers claim, beside what comes out here.",
    "report": "Write plans, results and traces as one page of HTML.",
    "studio": "Edit a cluster in the browser, and see comparisons as they come.",
    "run": "Start the ranks of a job on this machine.",
    "probe": "Measure the cluster that a job runs on.",
    "bench": "Time collectives for real, beside other runtimes.",
    "lab": "Emulate a cluster, and run or measure jobs on it.",
    "explain": "Say why a job failed or hangs, from its flight records.",
    "soak": "Test the runtime with random operations, for minutes or hours.",
    "doctor": "Check this installation.",
}

EXIT_FAILURE: Final = 3
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
_COMPLETION: Final = "_WEFT_COMPLETE"


class Verbs(click.Group):
    """A group whose commands live in modules that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of one command."""
        if cmd_name not in VERBS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = importlib.import_module(f"weft.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which ones there are."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            close = difflib.get_close_matches(args[0], VERBS, 1)
            hint = f"did you mean {close[0]}?" if close else f"it is one of {', '.join(VERBS)}"
            msg = f"no command {quote(args[0])}; {hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; an error of which click forgets the verb is of that verb."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            verb = ctx.invoked_subcommand
            command = None if verb is None else self.get_command(ctx, verb)
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, ctx, verb)
            raise


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="\b\nExamples:\n"
    "  weft compare torus:8x8 --size 64MiB\n"
    "  weft plan torus:8x8 -o plan.weft\n"
    "  weft topology hosts:8,4,2 --svg cluster.svg\n"
    "  weft COMMAND --help",
)
@click.version_option(package_name="weft", message="weft %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Compare, plan, verify and simulate collectives for the network you have."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing but a traceback under WEFT_DEBUG=1 escapes.

    Parameters
    ----------
    argv
        Words after ``weft``; by default those of this process.
    """
    _occupy_closed_streams()
    if sys.stdout is None:
        return _complain("standard output is closed; send it to /dev/null instead", InputError.exit_code)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name need not be text, and a terminal need not know every sign of a table.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more on its way out, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", EXIT_INTERRUPTED, label="weft")
    except Exception as error:
        if os.environ.get("WEFT_DEBUG") == "1":
            raise
        return _explain(error)
    return code


def _occupy_closed_streams() -> None:
    """Keep a file that is opened later from becoming standard output or error, and errors from failing."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is the stream's own
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _complete(instruction: str) -> int:
    """Answer a shell that completes words, or print what teaches it to ask."""
    from click.shell_completion import get_completion_class, shell_complete

    shell, _, wish = instruction.partition("_")
    if get_completion_class(shell) is None or wish not in ("source", "complete"):
        raise InputError(f"{_COMPLETION}={instruction}: expected bash_source, zsh_source or fish_source")
    try:
        return shell_complete(group, {}, "weft", _COMPLETION, instruction)
    except (KeyError, ValueError) as error:
        msg = f"{_COMPLETION}={instruction}: {error}; it is for a shell that completes words, see docs/cli.md"
        raise InputError(msg) from error


def _run(words: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETION):
        return _complete(instruction)
    try:
        with group.make_context("weft", words) as context:
            group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    return 0


def _explain(error: Exception) -> int:
    """Turn an exception into its line and its exit code."""
    if isinstance(error, WeftError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "weft"
        message = error.format_message().rstrip(".")
        link = " See" if message.endswith("?") else "; see"
        return _complain(f"{message}{link} '{command} --help'", InputError.exit_code)
    if isinstance(error, MemoryError):
        return _complain("not enough memory for this input; try a smaller one", InputError.exit_code)
    if isinstance(error, RecursionError):
        return _complain("the input is nested too deeply", InputError.exit_code)
    if isinstance(error, OSError):
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return _complain(f"{place}{error.strerror or error}", EXIT_FAILURE)
    found = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _complain(
        f"{found}; set WEFT_DEBUG=1 to see where, and please report it", EXIT_BUG, label="weft: a bug in Weft"
    )


def _complain(message: str, code: int, label: str = "weft: error") -> int:
    from weft.cli.output import one_line

    click.echo(f"{label}: {one_line(message, LONGEST_MESSAGE)}", err=True)
    return code
