"""Options that several verbs share, so that they mean the same everywhere."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from weft import units
from weft.collective_names import COLLECTIVES
from weft.errors import InputError, UnitError, quote

_DAY: Final = 86_400.0
_Command = TypeVar("_Command", bound=Callable[..., Any])


class OptionType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Type of an option whose text one function reads; its complaint is better than any of click's.

    Parameters
    ----------
    metavar
        How the help shows it.
    read
        Given the option's name and the text.
    """

    def __init__(self, metavar: str, read: Callable[[str, str], Any]) -> None:
        self.name, self._read = metavar, read

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """As it was given: a word in small letters is to be typed."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Read the text."""
        assert param is not None
        return self._read(param.opts[0], value)


def read_size(option: str, text: str) -> int:
    """Positive number of bytes; the unit parser's own complaint is the best one."""
    size_bytes = units.parse_size(text)
    if not size_bytes:
        raise InputError(f"{option} {text}: there is nothing to send; give at least 1 byte, such as 64MiB")
    return size_bytes


def _read_segment(option: str, text: str) -> int | str:
    """Segment size, or one of the words ``auto`` and ``none``."""
    return text if text in ("auto", "none") else read_size(option, text)


def _read_collective(_option: str, text: str) -> str:
    """Name of a collective in any of its usual spellings; a suggestion otherwise."""
    plain = {known.replace("_", ""): known for known in COLLECTIVES}
    name = text.lower().replace("-", "").replace("_", "")
    if name in plain:
        return plain[name]
    close = difflib.get_close_matches(name, plain, 1)
    hint = f"; did you mean {plain[close[0]]}?" if close else "."
    raise InputError(f"collective {quote(text)} is unknown{hint} Known: {', '.join(COLLECTIVES)}")


def _read_page(option: str, text: str) -> str:
    """Name of a page's file; standard output has the result itself."""
    if text == "-":
        raise InputError(f"{option} -: give a file name; weft report -o - writes a page to standard output")
    return text


def read_names(_option: str, text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _read_seconds(text: str) -> float:
    """Seconds of a time with its unit, such as 20s; of anything else NaN, which no range contains."""
    try:
        return units.parse_time(text) / units.PS_PER_S
    except UnitError:
        return math.nan


def number(metavar: str, allows: Callable[[float], bool], advice: str) -> OptionType:
    """Make the type of an option that is a number of some range.

    A number of seconds, by its metavar, may have a unit. A word in small letters in the metavar, such as
    ``none`` in ``SECONDS|none``, stands for None.
    """
    words = [word for word in metavar.split("|") if word.islower()]

    def read(option: str, text: str) -> float | None:
        if text in words:
            return None
        try:
            found = float(text)
        except ValueError:
            found = _read_seconds(text) if metavar.startswith("SECONDS") else math.nan
        if not allows(found):
            raise InputError(f"{option} {text!r}: {advice}")
        return found

    return OptionType(metavar, read)


class _SizeType(OptionType):
    """Type of a size, which says how several are given where somebody puts commas between them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text of one size."""
        if isinstance(value, str) and "," in value:
            assert param is not None
            option = param.opts[0]
            hint = f"; {option} may be repeated, as in {option} 1MiB {option} 64MiB" if param.multiple else ""
            raise InputError(f"{option} {quote(value)}: give one size, without commas{hint}")
        return super().convert(value, param, ctx)


SIZE: Final = _SizeType("SIZE", read_size)
TIME_LIMIT: Final = number(
    "SECONDS|none", lambda seconds: 0 <= seconds < math.inf, "give seconds, such as 300, or none"
)
TIMEOUT: Final = number(
    "SECONDS", lambda seconds: 0 < seconds <= _DAY, f"give seconds, such as 300; at most {_DAY:,.0f}, a day"
)
_WORK: Final = number("N|none", lambda work: 0 < work < math.inf, "give operations, such as 1e11, or none")


def refuse_unused(*names: str, reason: str) -> None:
    """Refuse options of the running verb that were given although they would change nothing."""
    context = click.get_current_context(silent=True)
    for name in names:
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name.replace('_', '-')}: {reason}")


def check_root(collective: str) -> None:
    """Refuse a root where there is none."""
    if collective not in ("broadcast", "reduce"):
        refuse_unused("root", reason=f"{collective} has no root; broadcast and reduce have")


def examples(*lines: str) -> str:
    """Epilog of a verb's help, kept line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, no table.")

trace: Final = click.option(
    "--trace", metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing."
)

report: Final = click.option(
    "--report",
    "page",
    type=OptionType("FILE", _read_page),
    help="Write the result as a page of HTML to look at.",
)

timeout: Final = click.option(
    "--timeout", type=TIMEOUT, default="300", help="For a job to start, and for each round."
)

size: Final = click.option(
    "--size", type=SIZE, required=True, help="Bytes per rank, such as 64MiB (2^20) or 100MB (10^6)."
)

collective: Final = click.option(
    "--collective",
    type=OptionType("NAME", _read_collective),
    default="all_reduce",
    help=f"{', '.join(COLLECTIVES[:-1])} or {COLLECTIVES[-1]}.",
)

root: Final = click.option(
    "--root", type=click.IntRange(min=0), default=0, help="Root rank of broadcast and reduce."
)

sharing: Final = click.option(
    "--sharing",
    type=click.Choice(["queue", "fluid"]),
    default="queue",
    help="How a link serves several messages: one after the other, or max-min fair as TCP does.",
)

segment: Final = click.option(
    "--segment",
    type=OptionType("auto|none|SIZE", _read_segment),
    default="auto",
    help="Pipeline messages in pieces of this size; auto tries several and keeps the fastest.",
)


def _read_executor(_option: str, text: str) -> str:
    from weft.sweeps.executors import check_kind

    return check_kind(text)


def on_executor(
    what: str, default: str | None = None, *, deadline: bool = True
) -> Callable[[_Command], _Command]:
    """Declare where the points of a sweep run: the executor, its processes, and when to give up.

    Parameters
    ----------
    what
        What runs there, for the help.
    default
        The executor where none is given; None is this process.
    deadline
        Whether there is an option to give up; a command with a time limit needs none.
    """
    kinds = OptionType("processes|mpi|dask:ADDRESS|ray", _read_executor)
    where = f"by default {default}" if default else "by default in this process"

    ends = click.option("--deadline", type=TIMEOUT, help="Give a sweep up that is not done by then.")

    def declare(verb: _Command) -> _Command:
        for option in (
            *([ends] if deadline else []),
            click.option(
                "--jobs",
                type=click.IntRange(1, 256),
                help="Processes of the executor on this machine; by default one for each processor.",
            ),
            click.option(
                "--executor",
                type=kinds,
                default=default,
                show_default=False,
                help=f"Where {what}: processes of this machine, ranks of mpirun, Dask or Ray; {where}.",
            ),
        ):
            verb = option(verb)
        return verb

    return declare


def max_work(default: float) -> Callable[[_Command], _Command]:
    """Option for operations that a schedule may take: so many, unless it is given."""
    return click.option(
        "--max-work",
        type=_WORK,
        default=f"{default:g}".replace("e+", "e"),
        help="Refuse a schedule that is estimated to take more operations, of a nanosecond or so each.",
    )


def against(known: str) -> Callable[[_Command], _Command]:
    """Declare the peers that are measured as well."""
    names = OptionType("NAME,...", read_names)
    return click.option(
        "--against", type=names, default="", show_default=False, help=f"Measure these too, in turn: {known}."
    )


ALGORITHM: Final = "NAME[:OPTION=VALUE,...]"
OR_OWN: Final = f"{ALGORITHM}|FILE.py:FUNCTION[:...]|SCHEDULE"
"""How the help shows the name of an algorithm, and that of one of the user's own."""


class AlgorithmOption(click.Option):
    """Option that names an algorithm; its help lists the options of all algorithms.

    They are read from the algorithms' functions when the help is asked for, not when a command starts.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Add the list to the text that was declared."""
        from weft.algorithms.keyword_options import format_options
        from weft.algorithms.registry import ALGORITHMS

        record = super().get_help_record(ctx)
        if record is None:
            return None
        known = [
            f"{line.name}:{format_options(line.options)}" for line in ALGORITHMS.values() if line.options
        ]
        return record[0], f"{record[1]} Options and their defaults: {'; '.join(known)}."


def names_algorithm(*names: str, own: bool = True, **settings: Any) -> Callable[[_Command], _Command]:
    """Declare an option that takes the name of an algorithm, with options of its own behind a colon.

    Parameters
    ----------
    names, settings
        As for `click.option`.
    own
        Whether a function or schedule of the user's own can be named as well, as for
        `weft.algorithms.resolver`.
    """
    metavar = OR_OWN if own else ALGORITHM
    return click.option("--algorithm", *names, cls=AlgorithmOption, metavar=metavar, **settings)


algorithm: Final = names_algorithm(
    help="Build this on a topology, which the argument then is: a name, or a function or schedule file of "
    "your own."
)

algorithms: Final = names_algorithm(
    "algorithms",
    multiple=True,
    help="Only this one: a name, or a function or schedule file of your own. May be repeated; all stands for "
    "every one of Weft's.",
)

ports: Final = click.option(
    "--ports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Network interfaces of each rank; by default one for each of its links.",
)
