"""Schedules from the command line: a schedule file, or a topology and the algorithm to build on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli import options
from weft.errors import InputError
from weft.files import exists

if TYPE_CHECKING:
    from weft.schedule import Schedule


def obtain_schedule(source: str, algorithm: str | None, collective: str, root: int) -> Schedule:
    """Read a schedule file, or build an algorithm on a topology.

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
    from weft.schedule.codec import load_schedule
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
    return load_schedule(source)
