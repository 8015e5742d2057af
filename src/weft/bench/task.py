"""The task that is measured: one collective of one size, type and op, as all runtimes understand it."""

from __future__ import annotations

import importlib.util
from typing import Final, Literal

import msgspec

from weft.collective_names import ReduceOp, bus_factor
from weft.errors import MissingPackageError

Place = Literal["out", "in"]

COLLECTIVES: Final = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
OPS: Final = ("sum", "prod", "min", "max")
ITEM_BYTES: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}

_PLACES: Final[dict[str, tuple[Place, ...]]] = {
    "all_reduce": ("out", "in"),
    "reduce_scatter": ("out",),
    "all_gather": ("out",),
    "broadcast": ("in",),
}
"""Out of place: the result goes elsewhere than the input. A place that not all runtimes have is left out."""


class BenchTask(msgspec.Struct, frozen=True):
    """One collective; `elements` is the larger of input and output, as in the tables of nccl-tests."""

    collective: str
    dtype: str
    op: ReduceOp
    ranks: int
    elements: int

    @property
    def size_bytes(self) -> int:
        """Of the larger of input and output."""
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def input_elements(self) -> int:
        """Elements that one rank puts in."""
        return self.elements // self.ranks if self.collective == "all_gather" else self.elements

    @property
    def output_elements(self) -> int:
        """Elements that one rank gets."""
        return self.elements // self.ranks if self.collective == "reduce_scatter" else self.elements

    @property
    def count(self) -> int:
        """Elements per rank, as nccl-tests prints them."""
        return min(self.input_elements, self.output_elements)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the result can go."""
        return _PLACES[self.collective]

    @property
    def reduces(self) -> bool:
        """Whether the op matters."""
        return self.collective in ("all_reduce", "reduce_scatter")

    @property
    def bus_factor(self) -> float:
        """What the busiest link of the best algorithm carries, per byte of the buffer; as in nccl-tests."""
        return bus_factor(self.collective, self.ranks)

    @property
    def touched_bytes(self) -> int:
        """What all ranks together must read and write at least, wherever the memory is."""
        size, ranks = self.size_bytes, self.ranks
        if self.collective == "all_reduce":
            return 2 * ranks * size
        return (ranks + 1) * size if self.collective != "broadcast" else ranks * size


def make_tasks(
    collective: str, dtype: str, op: ReduceOp, ranks: int, least: int, most: int, factor: int
) -> list[BenchTask]:
    """Tasks from `least` to `most` bytes, each `factor` times the one before.

    Sizes are rounded down to what the ranks can share out evenly, as in nccl-tests.

    Raises
    ------
    MissingPackageError
        If numbers are bfloat16, which numpy does not have, and torch is not installed.

    Examples
    --------
    >>> [task.size_bytes for task in make_tasks("all_gather", "float32", "sum", 3, 100, 400, 2)]
    [96, 192, 396]
    """
    if dtype == "bfloat16" and importlib.util.find_spec("torch") is None:
        raise MissingPackageError(f"type {dtype}", "torch")
    tasks = []
    step = ranks if collective in ("all_gather", "reduce_scatter") else 1
    while least <= most:
        elements = max(1, least // ITEM_BYTES[dtype] // step) * step
        tasks.append(BenchTask(collective, dtype, op, ranks, elements))
        least *= factor
    return list(dict.fromkeys(tasks))
