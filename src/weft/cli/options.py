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


def read_size(_ctx: click.Context, option: click.Parameter, text: str) -> int:
    """Positive number of bytes; the unit parser's own complaint is the best one."""
    size_bytes = units.parse_size(text)
    if not size_bytes:
        msg = f"{option.opts[0]} {text}: there is nothing to send; give at least 1 byte, such as 64MiB"
        raise InputError(msg)
    return size_bytes


def read_optional_size(ctx: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """As `read_size`, where none may be given."""
    return None if text is None else read_size(ctx, option, text)


def read_segment(ctx: click.Context, option: click.Parameter, text: str) -> int | str:
    """Segment size, or one of the words ``auto`` and ``none``."""
    return text if text in ("auto", "none") else read_size(ctx, option, text)


def read_collective(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    """Name of a collective in any of its usual spellings; a suggestion otherwise."""
    plain = {known.replace("_", ""): known for known in COLLECTIVES}
    name = text.lower().replace("-", "").replace("_", "")
    if name in plain:
        return plain[name]
    close = difflib.get_close_matches(name, plain, 1)
    hint = f"; did you mean {plain[close[0]]}?" if close else "."
    msg = f"collective {quote(text)} is unknown{hint} Known: {', '.join(COLLECTIVES)}"
    raise InputError(msg)


def read_float(text: str) -> float:
    """Read a number; what is none becomes nan, which no range contains."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_time_limit(_ctx: click.Context, option: click.Parameter, text: str) -> float | None:
    """Seconds of wall-clock time, or None for the word ``none``."""
    if text == "none":
        return None
    seconds = read_float(text)
    if not 0 <= seconds < math.inf:
        msg = f"{option.opts[0]} {text!r}: give seconds, such as 300, or none"
        raise InputError(msg)
    return seconds


def read_timeout(_ctx: click.Context, option: click.Parameter, text: str) -> float:
    """Seconds, more than none and at most a day."""
    seconds = read_float(text)
    if not 0 < seconds <= _DAY:
        msg = f"{option.opts[0]} {text!r}: give seconds, such as 300; at most {_DAY:,.0f}, a day"
        raise InputError(msg)
    return seconds


def read_work(_ctx: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Operations, more than none, or None for the word ``none``."""
    if text == "none":
        return None
    work = math.nan if text is None else read_float(text)
    if not 0 < work < math.inf:
        msg = f"{option.opts[0]} {text!r}: give operations, such as 1e11, or none"
        raise InputError(msg)
    return work


def check_number(_ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Refuse what is not a number, which click lets through every range; None is an option not given."""
    if value is not None and math.isnan(value):
        msg = f"{option.opts[0]} nan: give a number"
        raise InputError(msg)
    return value


def refuse_unused(*names: str, reason: str) -> None:
    """Refuse options of the running verb that were given although they would change nothing."""
    context = click.get_current_context(silent=True)
    for name in names:
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            msg = f"--{name.replace('_', '-')}: {reason}"
            raise InputError(msg)


def check_root(collective: str) -> None:
    """Refuse a root where there is none."""
    if collective not in ("broadcast", "reduce"):
        refuse_unused("root", reason=f"{collective} has no root; broadcast and reduce have")


def examples(*lines: str) -> str:
    """Epilog of a verb's help, kept line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, no table.")

timeout: Final = click.option(
    "--timeout",
    default="300",
    show_default=True,
    callback=read_timeout,
    metavar="SECONDS",
    help="For a job to start, and for each round.",
)

size: Final = click.option(
    "--size",
    required=True,
    callback=read_size,
    metavar="SIZE",
    help="Bytes per rank, such as 64MiB (2^20) or 100MB (10^6).",
)

collective: Final = click.option(
    "--collective",
    default="all_reduce",
    show_default=True,
    callback=read_collective,
    metavar="NAME",
    help=f"{', '.join(COLLECTIVES[:-1])} or {COLLECTIVES[-1]}.",
)

root: Final = click.option(
    "--root",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Root rank of broadcast and reduce.",
)

sharing: Final = click.option(
    "--sharing",
    type=click.Choice(["queue", "fluid"]),
    default="queue",
    show_default=True,
    help="How a link serves several messages: one after the other, or max-min fair as TCP does.",
)

segment: Final = click.option(
    "--segment",
    default="auto",
    show_default=True,
    callback=read_segment,
    metavar="auto|none|SIZE",
    help="Pipeline messages in pieces of this size; auto tries several and keeps the fastest.",
)


def max_work(default: float) -> Callable[[_Command], _Command]:
    """Option for operations that a schedule may take: so many, unless it is given."""
    return click.option(
        "--max-work",
        default=f"{default:g}".replace("e+", "e"),
        show_default=True,
        callback=read_work,
        metavar="N|none",
        help="Refuse a schedule that is estimated to take more operations, of a nanosecond or so each.",
    )


algorithm: Final = click.option(
    "--algorithm",
    metavar="NAME",
    help="Build this on a topology, which the argument then is.",
)

ports: Final = click.option(
    "--ports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Network interfaces of each rank; by default one for each of its links.",
)
