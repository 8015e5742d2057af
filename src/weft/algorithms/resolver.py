"""Whatever names an algorithm, as a line of the registry: a name, a function, a schedule, or a file of these.

Commands and functions that build schedules on a topology read what they are given with this module alone.
Naming ``file.py:function`` runs that file; nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from weft import limits
from weft.algorithms import registry
from weft.algorithms.own_algorithm import OwnFunction, OwnSchedule
from weft.algorithms.registry import Algorithm
from weft.errors import InputError, printable
from weft.schedule import Schedule
from weft.schedule.codec import load_schedule
from weft.user_script import UserFunction

AlgorithmLike: TypeAlias = str | Callable[..., Schedule] | Schedule | Algorithm
"""A name with options or without, a function of a topology, a schedule, or a line of the registry."""

ALL: Final = "all"
"""Stands for every algorithm of Weft's among several that are named."""

_SCRIPT: Final = re.compile(r"(?P<target>.+\.py:[^:=]*)(?::(?P<options>.*))?", re.DOTALL)
_SCHEDULE_ENDINGS: Final = (".weft", ".json")


def resolve_algorithm(given: AlgorithmLike) -> Algorithm:
    """Find what is meant by an algorithm.

    Parameters
    ----------
    given
        - ``"multitree"`` or ``"multitree:paper_order=true"``: one of Weft's, as for `registry.find`;
        - ``"mine.py:function"`` or ``"mine.py:function:depth=2"``: a function of a script, which is run;
        - ``"mine.weft"`` or ``"mine.json"``: the schedule in a file;
        - a function that takes a topology and returns a `weft.Schedule`, or a schedule.

    Raises
    ------
    InputError
        If there is no such algorithm, function or file, or an option is unknown; if a script fails, with the
        place in it.

    Examples
    --------
    >>> from weft.algorithms import ring
    >>> from weft.topology import load_topology
    >>> own = resolve_algorithm(lambda topology: ring.all_gather(topology))
    >>> own.build(load_topology("ring:4"), "all_gather").steps
    3
    >>> resolve_algorithm("swing").name
    'swing'
    """
    if isinstance(given, Algorithm):
        return given
    if isinstance(given, Schedule):
        return OwnSchedule.of(given)
    if isinstance(given, str):
        return _resolve_text(given)
    if callable(given):
        return OwnFunction.of(UserFunction.of(given))
    what = f"{type(given).__name__} {given!r:.40}"
    raise InputError(f"{what} is no algorithm; give a name, a function of a topology, or a weft.Schedule")


def _resolve_text(text: str) -> Algorithm:
    script = _SCRIPT.fullmatch(text)
    if script is not None:
        own = OwnFunction.of(UserFunction.load(script["target"]))
        return own if script["options"] is None else own.with_options(script["options"])
    ending = text.lower()
    if ending.endswith(".py"):
        raise InputError(f"{printable(text)}: names no function; give {printable(text)}:FUNCTION")
    if ending.endswith(_SCHEDULE_ENDINGS):
        return OwnSchedule.of(load_schedule(text), printable(text), limits.MAX_WORK)
    return registry.find(text)


def resolve_algorithms(
    given: AlgorithmLike | Sequence[AlgorithmLike] | None, collective: str
) -> list[Algorithm]:
    """Find what is meant by one algorithm or several; all that offer a collective where none is given.

    Each comes once, and each has a name of its own. ``"all"`` among others stands for all of Weft's that
    offer the collective, without yardsticks. Errors as for `resolve_algorithm`.

    Examples
    --------
    >>> [line.name for line in resolve_algorithms(["ring", "all"], "all_to_all")]
    ['ring', 'direct']
    """
    items: Sequence[Any]
    if given is None or isinstance(given, str | Schedule | Algorithm) or callable(given):
        items = [given] if given is not None else []
    else:
        items = list(given)
    found: list[Algorithm] = []
    offered = registry.for_collective(collective)
    if not items:
        return list(offered)
    for index, one in enumerate(items):
        if isinstance(one, str) and one in items[:index]:
            continue  # a script named twice is run once
        weft = [line for line in offered if not line.yardstick]
        lines = weft if one == ALL else [resolve_algorithm(one)]
        found += [line for line in lines if line not in found]
    return _with_names_of_their_own(found)


def _with_names_of_their_own(lines: list[Algorithm]) -> list[Algorithm]:
    """Number what has the name of another: two functions may be called alike, and so may two schedules."""
    count: dict[str, int] = {}
    named = []
    for line in lines:
        count[line.name] = count.get(line.name, 0) + 1
        number = count[line.name]
        named.append(line if number == 1 else replace(line, name=f"{line.name}#{number}"))
    return named
