"""Options of algorithms as text: ``multitree:paper_order=true,trees_per_root=2``.

The options of an algorithm are the keyword arguments of its functions, so nothing is declared twice: their
names, types and defaults are read from the signatures.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Final, get_args

from weft import limits, units
from weft.errors import InputError, no_such, printable, quote, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

_NOT_OPTIONS: Final = ("topology", "root")
_FLAGS: Final = {"true": True, "false": False}


def find_options(module: ModuleType, collectives: Sequence[str]) -> dict[str, inspect.Parameter]:
    """Keyword arguments that at least one of an algorithm's functions takes, in their order.

    Examples
    --------
    >>> from weft.algorithms import multitree
    >>> list(find_options(multitree, ["all_reduce"]))
    ['trees_per_root', 'paper_order']
    """
    found: dict[str, inspect.Parameter] = {}
    for collective in collectives:
        for name, parameter in inspect.signature(getattr(module, collective)).parameters.items():
            if name not in _NOT_OPTIONS:
                found.setdefault(name, parameter)
    return found


def read_options(algorithm: str, text: str, known: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Read ``NAME=VALUE,...`` as arguments of the types that the signatures have.

    Parameters
    ----------
    algorithm
        For the error message.
    text
        What stands behind the colon.
    known
        From `find_options`.

    Raises
    ------
    InputError
        If a name is unknown or given twice, or a value is not of its type.

    Examples
    --------
    >>> from weft.algorithms import multitree
    >>> known = find_options(multitree, ["all_reduce"])
    >>> read_options("multitree", "paper_order=true,trees_per_root=2", known)
    {'paper_order': True, 'trees_per_root': 2}
    """
    found: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            advice = f"expected NAME=VALUE, such as {algorithm}:{_example(known)}" if known else "it has none"
            raise InputError(f"options of {algorithm}: {quote(word)}: {advice}")
        if name not in known:
            raise _unknown(algorithm, name, known)
        if name in found:
            raise InputError(f"options of {algorithm}: {name} is given twice")
        found[name] = _read(f"{algorithm}: {name}={shorten(printable(value), 40)}", value, known[name])
    return found


def format_options(known: Mapping[str, inspect.Parameter]) -> str:
    """List options with their defaults, for people.

    Examples
    --------
    >>> from weft.algorithms import multitree
    >>> format_options(find_options(multitree, ["all_reduce"]))
    'trees_per_root=1, paper_order=false'
    """
    shown = {
        name: "VALUE" if one.default is one.empty else format_value(one.default)
        for name, one in known.items()
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def format_value(value: object) -> str:
    """Write a value as `read_options` reads it."""
    if isinstance(value, (list, tuple)):
        return "-".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _unknown(algorithm: str, name: str, known: Mapping[str, inspect.Parameter]) -> InputError:
    if not known:
        return InputError(f"{algorithm} has no options, {quote(name)} was given")
    return no_such(f"option of {algorithm}", name, known)


def _example(known: Mapping[str, inspect.Parameter]) -> str:
    return format_options(dict([next(iter(known.items()))]))


def _read(given: str, text: str, parameter: inspect.Parameter) -> Any:
    kind = _kind(parameter)
    if kind.endswith(" | None"):
        if text == "none":
            return None
        kind = kind.removesuffix(" | None")
    if parameter.name.endswith("_bytes"):
        return units.parse_size(text)
    if kind not in _READERS:  # a function of the user's own may have any
        raise InputError(f"{given}: options of type {kind!r:.40} cannot be read, only {', '.join(_READERS)}")
    return _READERS[kind](given, text)


def _kind(parameter: inspect.Parameter) -> str:
    """Name of a parameter's type, as it is written; without one, that of its default, or text."""
    found = parameter.annotation
    if found is parameter.empty:
        found = str if parameter.default in (parameter.empty, None) else type(parameter.default)
    return found.__name__ if isinstance(found, type) and not get_args(found) else str(found)


def _read_flag(given: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise InputError(f"{given}: expected true or false")
    return _FLAGS[text.lower()]


def _read_whole(given: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(limits.MAX_SIZE_BYTES))):
        raise InputError(f"{given}: expected a whole number")
    return int(text)


def _read_number(given: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{given}: expected a number")
    return found


def _read_ranks(given: str, text: str) -> list[int]:
    words = text.split("-")
    limits.check(f"{given}: ranks", len(words), limits.MAX_RANKS)
    return [_read_whole(given, word) for word in words]


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "bool": _read_flag,
    "int": _read_whole,
    "float": _read_number,
    "str": lambda _given, text: text,
    "Sequence[int]": _read_ranks,
    "list[int]": _read_ranks,
}
"""By the type of an argument; a test asks for one for each option of each algorithm."""
