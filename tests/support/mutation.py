"""Schedules spoilt at random: one to three small changes each, drawn from a passed generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ScheduleError
from weft.schedule import Schedule
from weft.schedule.ir import TRANSFER_COLUMNS

Columns = dict[str, NDArray[Any]]
Mutation = Callable[[Schedule, Columns, np.random.Generator], Columns]


def mutate(schedule: Schedule, kind: str, generator: np.random.Generator) -> Schedule | None:
    """One change of a kind, or None if nothing changed or what came out is no legal schedule."""
    columns = {name: getattr(schedule, name) for name in TRANSFER_COLUMNS}
    given = {name: column.copy() for name, column in columns.items() if column is not None}
    changed = MUTATIONS[kind](schedule, given, generator)
    order = np.argsort(changed["step"], kind="stable")
    try:
        mutant = replace(schedule, **{name: column[order] for name, column in changed.items()})
    except ScheduleError:
        return None
    return mutant if mutant != schedule else None


def draw_mutant(schedule: Schedule, generator: np.random.Generator) -> tuple[list[str], Schedule]:
    """One to three changes that do not undo each other, and the kinds they are of."""
    kinds: list[str] = []
    changed = schedule
    wanted = int(generator.choice([1, 1, 1, 2, 3]))
    while len(kinds) < wanted and changed.transfers:
        kind = str(generator.choice(list(MUTATIONS)))
        mutant = mutate(changed, kind, generator)
        if mutant is not None and mutant != schedule:
            kinds.append(kind)
            changed = mutant
    return kinds, changed


def _row(columns: Columns, generator: np.random.Generator) -> int:
    return int(generator.integers(len(columns["step"])))


def _drop(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    keep = np.arange(schedule.transfers) != _row(columns, generator)
    return {name: column[keep] for name, column in columns.items()}


def _duplicate(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    """The same transfer again, at its own step or at another one."""
    row = _row(columns, generator)
    longer = {name: np.append(column, column[row]) for name, column in columns.items()}
    if generator.integers(2):
        longer["step"][-1] = generator.integers(schedule.steps + 1)
    return longer


def _change(name: str, bound: Callable[[Schedule], int]) -> Mutation:
    def change(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
        if name in columns:
            columns[name][_row(columns, generator)] = generator.integers(bound(schedule))
        return columns

    return change


def _flip_op(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    columns["op"][_row(columns, generator)] ^= 1
    return columns


def _swap(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    """Two transfers change places, and with them their steps."""
    a, b = _row(columns, generator), _row(columns, generator)
    for name, column in columns.items():
        if name != "step":
            column[[a, b]] = column[[b, a]]
    return columns


def _swap_neighbours(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    """Two transfers that follow each other change places: often harmless."""
    a = int(generator.integers(max(1, schedule.transfers - 1)))
    b = min(a + 1, schedule.transfers - 1)
    for name, column in columns.items():
        if name != "step":
            column[[a, b]] = column[[b, a]]
    return columns


def _shift_step(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    row = _row(columns, generator)
    columns["step"][row] = max(0, int(columns["step"][row]) + int(generator.choice([-1, 1])))
    return columns


def _use_slot(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    """One end of a transfer goes to another slot."""
    for name in ("src_slot", "dst_slot"):
        columns.setdefault(name, np.zeros(schedule.transfers, np.int32))
    name = str(generator.choice(["src_slot", "dst_slot"]))
    columns[name][_row(columns, generator)] = generator.integers(schedule.slots + 1)
    return columns


def _change_route(schedule: Schedule, columns: Columns, generator: np.random.Generator) -> Columns:
    columns["route"][_row(columns, generator)] = generator.integers(-1, schedule.routes)
    return columns


MUTATIONS: dict[str, Mutation] = {
    "drop": _drop,
    "duplicate": _duplicate,
    "retarget src": _change("src", lambda s: s.ranks),
    "retarget dst": _change("dst", lambda s: s.ranks),
    "retarget chunk": _change("chunk", lambda s: s.chunks),
    "change step": _change("step", lambda s: s.steps + 1),
    "shift step": _shift_step,
    "swap": _swap,
    "swap neighbours": _swap_neighbours,
    "change op": _flip_op,
    "change slot": _use_slot,
    "change route": _change_route,
}
