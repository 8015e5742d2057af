"""A split all-reduce: first the sums, each on one rank, and later the sums to all ranks.

DeAR (section 3) sends the first part while gradients are still being computed, and the second while the next
forward pass runs. Unlike `Communicator.reduce_scatter` and `all_gather`, both parts work in place, and a rank
may own whatever part the schedule leaves with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import InputError
from weft.runtime.element_ranges import cut_into_chunks, share_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime.buffers import Buffer
    from weft.runtime.communicator import Communicator
    from weft.runtime.schedule_selection import Chosen

FIRST: Final = "first half of all_reduce"
SECOND: Final = "second half of all_reduce"


class SplitAllReduce:
    """The two halves of an all-reduce of arrays of one size and type; made by `Communicator.halves`.

    Parameters
    ----------
    communicator
        Whose ranks take part.
    elements, dtype
        Of the arrays.

    Attributes
    ----------
    owned
        By rank: first element, and the one after the last, that it has the sums of after `reduce`.
    """

    def __init__(self, communicator: Communicator, elements: int, dtype: Any) -> None:
        if elements < 0:
            raise InputError(f"halves: {elements} elements; expected 0 or more")
        self._communicator, self.elements = communicator, elements
        self._dtype = (
            str(dtype).removeprefix("torch.") if not isinstance(dtype, type) else np.dtype(dtype).name
        )
        self._pair: tuple[Chosen, Chosen] | None = None
        self.owned: tuple[tuple[int, int], ...] = ((0, elements),)
        if communicator.size > 1:
            itemsize = 2 if self._dtype == "bfloat16" else np.dtype(self._dtype).itemsize
            self._pair = communicator._chooser.choose_halves(elements * itemsize)
            scatter = self._pair[0][0]
            start = cut_into_chunks(scatter, elements)
            self.owned = tuple(share_of(scatter, start, rank) for rank in range(scatter.ranks))

    @property
    def mine(self) -> slice:
        """What this rank has the sums of after `reduce`."""
        return slice(*self.owned[self._communicator.rank])

    @property
    def schedules(self) -> tuple[Chosen, Chosen] | None:
        """What runs: schedule and bytes of a segment, of either half; None where there is one rank only."""
        return self._pair

    def reduce(
        self, array: Any, op: str = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Add up the arrays of all ranks; this rank's then has the sums of `mine`, the rest is undefined.

        Parameters
        ----------
        array
            As many elements and of the type that the halves are for.
        op
            ``sum``, or ``avg`` for averages instead.
        """
        run = self.reduction(array, op, timeout=timeout)
        return self._communicator._do("reduce", run, how={"async_op": async_op, "timeout": timeout})

    def gather(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Send the part that each rank owns to all ranks."""
        run = self.gathering(array, timeout=timeout)
        return self._communicator._do("gather", run, how={"async_op": async_op, "timeout": timeout})

    def reduction(self, array: Any, op: str = "sum", *, timeout: float | None = None) -> Callable[[], Any]:
        """Check the arguments of `reduce`, and return its work for `Communicator.in_turn`."""
        if op not in ("sum", "avg"):
            raise InputError(f"op {str(op)[:40]!r} has no halves, only sum and avg")
        flat = self._take(FIRST, array)

        def run() -> Any:
            flat.reload()  # operations that were started before may have changed the array
            if self._pair is not None:
                self._communicator._execute_chosen(FIRST, self._pair[0], flat, timeout, op)
            if op == "avg":
                flat.part(*self.owned[self._communicator.rank]).divide(self._communicator.size)
            return flat.give_back()

        return run

    def gathering(self, array: Any, *, timeout: float | None = None) -> Callable[[], Any]:
        """Check the arguments of `gather`, and return its work for `Communicator.in_turn`."""
        flat = self._take(SECOND, array)

        def run() -> Any:
            flat.reload()  # operations that were started before may have changed the array
            if self._pair is not None:
                self._communicator._execute_chosen(SECOND, self._pair[1], flat, timeout)
            return flat.give_back()

        return run

    def _take(self, name: str, array: Any) -> Buffer:
        flat: Buffer = self._communicator._engine.flatten(array, writable=True)
        if flat.elements != self.elements or flat.dtype != self._dtype:
            msg = f"{name}: {flat.elements} x {flat.dtype}; expected {self.elements} x {self._dtype}"
            raise InputError(msg)
        return flat
