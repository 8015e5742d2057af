"""What stands on the command line: a schedule or plan file, or a topology and an algorithm to build on it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli import options
from weft.errors import FormatError, InputError
from weft.files import exists

if TYPE_CHECKING:
    from weft.packets import Tables
    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology


def obtain_topology(source: str) -> Topology:
    """Read whatever `weft.load_topology` takes, or take the topology of a plan file.

    Raises
    ------
    InputError
        If it is neither, or cannot be read.
    """
    from weft.topology import Topology

    found = obtain_network(source)
    return found if isinstance(found, Topology) else found.topology


def obtain_network(source: str) -> Topology | Plan:
    """Read a plan file, or whatever `weft.load_topology` takes; errors as for `obtain_topology`."""
    from weft import limits
    from weft.files import read_source
    from weft.planning.plan_file import decode_plan, is_plan
    from weft.topology import load_topology
    from weft.topology.load import read_topology, with_faults

    if source == "-":
        name, data = read_source(source, limits.MAX_SCHEDULE_BYTES)
        return decode_plan(data, name) if is_plan(data) else read_topology(io.BytesIO(data), name)
    if (plan := _find_plan(source)) is not None:
        return plan
    name = source.partition("+fail=")[0]
    if name != source and (plan := _find_plan(name)) is not None:
        return with_faults(plan.topology, source[len(name) :])
    return load_topology(source)


def _find_plan(source: str) -> Plan | None:
    """Read the plan in a file; None where the name is that of something else, or of nothing."""
    from weft.planning import load_plan
    from weft.planning.plan_file import MAGIC, is_plan

    try:
        path = Path(source)
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            start = stream.read(len(MAGIC))
    except (OSError, ValueError):
        return None  # whoever reads it for something else says what is wrong with it
    return load_plan(path) if is_plan(start) else None


@dataclass(frozen=True, slots=True)
class ScheduleSource:
    """What stands on the command line for a schedule.

    Parameters
    ----------
    name
        A file, ``-`` for standard input, or, with an algorithm, anything `weft.load_topology` takes.
    algorithm, collective, root
        What to build; a file needs none of it.
    """

    name: str
    algorithm: str | None
    collective: str
    root: int

    def obtain(self, max_work: float | None) -> Schedule | Plan:
        """Read a schedule or plan file, or build an algorithm on a topology; see `obtain_any`."""
        from weft.packets import Tables

        found = self.obtain_any(max_work)
        if isinstance(found, Tables):
            msg = f"{self.name}: is a table of network interfaces, not a schedule; weft packets runs it"
            raise InputError(msg)
        return found

    def obtain_any(self, max_work: float | None) -> Schedule | Plan | Tables:
        """Read a file of a schedule, plan or tables, whichever it is, or build an algorithm on a topology.

        Parameters
        ----------
        max_work
            Operations that reading a file may take, by estimate; None for any number.

        Raises
        ------
        InputError
            If it is the one and should be the other, or cannot be read.
        """
        from weft.topology.repeated_box import split_repeated
        from weft.topology.spec_parser import is_spec

        if self.algorithm is not None:
            from weft.algorithms.resolver import resolve_algorithm

            options.check_root(self.collective)
            chosen = resolve_algorithm(self.algorithm)
            return chosen.build(obtain_topology(self.name), self.collective, self.root)
        named = is_spec(self.name) and not exists(Path(self.name))
        if named or split_repeated(self.name) is not None:
            raise _needs_algorithm(self.name)
        reason = "a schedule file has its own; it is for --algorithm"
        options.refuse_unused("collective", "root", reason=reason)
        return _read(self.name, max_work)


def takes_schedule(metavar: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare the argument and options that say which schedule is meant; the verb gets a `ScheduleSource`."""

    def declare(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def call(*, source: str, algorithm: str | None, collective: str, root: int, **given: Any) -> None:
            verb(source=ScheduleSource(source, algorithm, collective, root), **given)

        declared = options.algorithm(options.collective(options.root(call)))
        return click.argument("source", metavar=metavar)(declared)

    return declare


def make_tables_of(
    source: str,
    found: Schedule | Plan | Tables,
    size: int | None,
    ports: int | None,
    max_work: float | None,
) -> tuple[Tables, Schedule | None]:
    """Tables that were read, or those of a schedule for a size, with that schedule.

    Raises
    ------
    InputError
        If a size is missing, or is given to tables that have their own.
    """
    from weft.packets import Tables, default_ports, make_tables
    from weft.planning import Plan

    if isinstance(found, Tables):
        options.refuse_unused("size", "ports", reason=f"{source} is a table, which has its own")
        return found, None
    if size is None:
        raise InputError(f"{source}: a table has addresses and sizes; give --size, such as --size 64MiB")
    schedule = found.choose(size).schedule if isinstance(found, Plan) else found
    ports = default_ports(schedule.topology) if ports is None else ports
    return make_tables(schedule, size, ports=ports, max_work=max_work), schedule


def table_facts(tables: Tables) -> list[tuple[str, str]]:
    """What tables take, for people: how long the longest table is, and the fields of an entry."""
    from weft.units import count

    bits = tables.entry_bits()
    ports = count(tables.ports, "port")
    fields = ", ".join(f"{name} {width}" for name, width in bits.items())
    return [
        ("tables", f"{tables.entries:,} entries at most, {tables.steps:,} steps; {ports} a rank"),
        ("entry", f"{sum(bits.values())} bits: {fields}"),
        ("largest", f"{tables.table_bits:,} bits"),
    ]


def _read(source: str, max_work: float | None) -> Schedule | Plan | Tables:
    from weft import limits
    from weft.files import read_source
    from weft.packets.table_file import is_table, tables_from_json
    from weft.planning.plan_file import decode_plan, is_plan
    from weft.schedule.codec import decode_schedule
    from weft.topology.load import read_topology

    name, data = read_source(source, limits.MAX_SCHEDULE_BYTES)
    if is_plan(data):
        return decode_plan(data, name, max_work=max_work)
    if is_table(data):
        return tables_from_json(data, name)
    try:
        return decode_schedule(data, name, max_work=max_work)
    except FormatError as error:
        try:
            read_topology(io.BytesIO(data), name)
        except InputError:
            raise error from None
        raise _needs_algorithm(source) from error


def _needs_algorithm(source: str) -> InputError:
    return InputError(f"{source} is a topology; give --algorithm, such as --algorithm ring, to build on it")
