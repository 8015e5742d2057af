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
from weft.errors import InputError, quote

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


def read_float(text: str) -> float:
    """Read a number; what is none becomes nan, which no range contains."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _reader(
    allows: Callable[[float], bool], advice: str, *, or_none: bool
) -> Callable[[str, str], float | None]:
    """Make a function that reads a number of some range, or also the word ``none``."""

    def read(option: str, text: str) -> float | None:
        if or_none and text == "none":
            return None
        number = read_float(text)
        if not allows(number):
            raise InputError(f"{option} {text!r}: {advice}")
        return number

    return read


read_time_limit: Final = _reader(
    lambda seconds: 0 <= seconds < math.inf, "give seconds, such as 300, or none", or_none=True
)
_read_timeout: Final = _reader(
    lambda seconds: 0 < seconds <= _DAY,
    f"give seconds, such as 300; at most {_DAY:,.0f}, a day",
    or_none=False,
)
_read_work: Final = _reader(
    lambda work: 0 < work < math.inf, "give operations, such as 1e11, or none", or_none=True
)
SIZE: Final = OptionType("SIZE", read_size)
TIME_LIMIT: Final = OptionType("SECONDS|none", read_time_limit)
TIMEOUT: Final = OptionType("SECONDS", _read_timeout)


def check_number(_ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Refuse what is not a number, which click lets through every range; None is an option not given."""
    if value is not None and math.isnan(value):
        raise InputError(f"{option.opts[0]} nan: give a number")
    return value


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


def max_work(default: float) -> Callable[[_Command], _Command]:
    """Option for operations that a schedule may take: so many, unless it is given."""
    return click.option(
        "--max-work",
        type=OptionType("N|none", _read_work),
        default=f"{default:g}".replace("e+", "e"),
        help="Refuse a schedule that is estimated to take more operations, of a nanosecond or so each.",
    )


algorithm: Final = click.option(
    "--algorithm", metavar="NAME", help="Build this on a topology, which the argument then is."
)

algorithms: Final = click.option(
    "--algorithm", "algorithms", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)

ports: Final = click.option(
    "--ports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Network interfaces of each rank; by default one for each of its links.",
)
