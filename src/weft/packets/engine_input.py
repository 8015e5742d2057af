"""Tables as the engine takes them."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.packets.table import REDUCE, TableEntry, Tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.packets.hardware import Hardware
    from weft.packets.network_channels import Ways


_COLUMNS: Final = ("dst", "from", "to", "path", "paths", "step", "bytes", "aggregate_ps")


class Program:
    """Tables as columns of numbers, and whose entry or message each number is.

    Parameters
    ----------
    tables, hardware
        What is executed, on what.
    ways
        Collects the ways of messages.
    """

    def __init__(self, tables: Tables, hardware: Hardware, ways: Ways) -> None:
        self.ways = ways
        self.entries: list[tuple[int, TableEntry]] = []
        self.sends: list[tuple[int, TableEntry, int]] = []
        self.rank_steps, self.step_entries = [0], [0]
        self.needs: list[int] = []
        self.entry_sends = [0]
        self.rows: list[tuple[int, ...]] = []
        waiting: dict[tuple[int, str, int, int], list[int]] = {}
        for rank, entries in enumerate(tables.ranks):
            step = 0
            for entry in entries:
                self.step_entries += [len(self.needs)] * (entry.step - step)
                step = entry.step
                for op, flow, src in entry.after:
                    waiting.setdefault((rank, op, flow, src), []).append(len(self.needs))
                self.entries.append((rank, entry))
                self.needs.append(len(entry.after))
                self._add_sends(rank, entry, hardware)
            if entries:
                self.step_entries.append(len(self.needs))
            self.rank_steps.append(len(self.step_entries) - 1)
        self.wakes = [
            waiting.pop((entry.sends[number].dst, entry.op, entry.flow, rank), [])
            for rank, entry, number in self.sends
        ]

    def _add_sends(self, rank: int, entry: TableEntry, hardware: Hardware) -> None:
        cost = hardware.aggregate_ps(hardware.wire_bytes(entry.size_bytes)) if entry.op == REDUCE else 0
        for index, send in enumerate(entry.sends):
            way = self.ways.find(rank, send.dst, send.route)
            port = way.target if way.target >= 0 else send.port
            self.sends.append((rank, entry, index))
            ends = (send.dst, way.source, port, way.path, way.paths)
            self.rows.append((*ends, entry.step, entry.size_bytes, cost))
        self.entry_sends.append(len(self.sends))

    def table_columns(self) -> dict[str, NDArray[Any]]:
        """The tables in columns, by the names of `_core.TableColumns`."""
        rows = np.array(self.rows, np.int64).reshape(-1, len(_COLUMNS))
        narrow = {name: np.ascontiguousarray(rows[:, i], np.int32) for i, name in enumerate(_COLUMNS[:-2])}
        wide = {name: np.ascontiguousarray(rows[:, i - 2]) for i, name in enumerate(_COLUMNS[-2:])}
        return {
            "rank_steps": np.array(self.rank_steps, np.int64),
            "step_entries": np.array(self.step_entries, np.int64),
            "entry_needs": np.array(self.needs, np.int32),
            "entry_sends": np.array(self.entry_sends, np.int64),
            **{f"send_{name}": column for name, column in (narrow | wide).items()},
            "wake_offsets": np.array([0, *accumulate(map(len, self.wakes))], np.int64),
            "wakes": np.array([entry for entries in self.wakes for entry in entries], np.int32),
        }
