"""Schedules from the command line: a schedule or plan file, or a topology and an algorithm to build on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli import options
from weft.errors import InputError
from weft.files import exists

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.schedule import Schedule


def obtain_schedule(source: str, algorithm: str | None, collective: str, root: int) -> Schedule:
    """Read a schedule file, or build an algorithm on a topology; a plan is refused.

    Parameters and errors as for `obtain`.
    """
    from weft.schedule import Schedule

    found = obtain(source, algorithm, collective, root)
    if isinstance(found, Schedule):
        return found
    count = f"{len(found.schedules)} schedules" if len(found.schedules) > 1 else "one schedule"
    msg = f"{source}: is a plan, of {count}; give a schedule file that weft export wrote"
    raise InputError(msg)


def obtain(source: str, algorithm: str | None, collective: str, root: int) -> Schedule | Plan:
    """Read a schedule or plan file, whichever it is, or build an algorithm on a topology.

    Parameters
    ----------
    source
        A file, ``-`` for standard input, or, with an algorithm, anything `weft.load_topology` takes.
    algorithm, collective, root
        What to build; a file needs none of it.

    Raises
    ------
    InputError
        If it is the one and should be the other, or cannot be read.
    """
    from weft.topology.spec import is_spec

    if algorithm is not None:
        from weft.algorithms import registry
        from weft.topology import load_topology

        options.check_root(collective)
        chosen = registry.find(algorithm)
        return chosen.build(load_topology(source), collective, root)
    if is_spec(source) and not exists(Path(source)):
        msg = f"{source} is a topology, not a schedule file; say what to build, such as --algorithm ring"
        raise InputError(msg)
    options.refuse_unused("collective", "root", reason="a schedule file has its own; it is for --algorithm")
    return _read(source)


def _read(source: str) -> Schedule | Plan:
    from weft import limits
    from weft.files import read_bytes, standard_input
    from weft.planning.plan_file import decode_plan, is_plan
    from weft.schedule.codec import decode_schedule

    name, place = ("<stdin>", standard_input()) if source == "-" else (source, Path(source))
    data = read_bytes(name, place, limits.MAX_SCHEDULE_BYTES)
    return decode_plan(data, name) if is_plan(data) else decode_schedule(data, name)
