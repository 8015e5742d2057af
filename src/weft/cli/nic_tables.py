"""Tables of network interfaces on the command line: where they come from, and what is said about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli import options
from weft.errors import InputError

if TYPE_CHECKING:
    from weft.packets import Tables
    from weft.planning import Plan
    from weft.schedule import Schedule


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
        msg = f"{source}: a table has addresses and sizes; give --size, such as --size 64MiB"
        raise InputError(msg)
    schedule = found.choose(size).schedule if isinstance(found, Plan) else found
    ports = default_ports(schedule.topology) if ports is None else ports
    return make_tables(schedule, size, ports=ports, max_work=max_work), schedule


def table_facts(tables: Tables) -> list[tuple[str, str]]:
    """What tables take, for people: how long the longest table is, and the fields of an entry."""
    bits = tables.entry_bits()
    fields = ", ".join(f"{name} {count}" for name, count in bits.items())
    ports = "1 port a rank" if tables.ports == 1 else f"{tables.ports} ports a rank"
    return [
        ("tables", f"{tables.entries:,} entries at most, {tables.steps:,} steps; {ports}"),
        ("entry", f"{sum(bits.values())} bits: {fields}"),
        ("largest", f"{tables.table_bits:,} bits"),
    ]
