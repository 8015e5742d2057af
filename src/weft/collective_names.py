"""The names of collectives and reductions, and the factors by which nccl-tests compares their speeds.

It imports no numpy, so that the options of the command line can list the names.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"]
COLLECTIVES: Final[tuple[Collective, ...]] = get_args(Collective)

REDUCING: Final[tuple[Collective, ...]] = ("all_reduce", "reduce_scatter", "reduce")
"""The collectives whose result may lie elsewhere than their input, which then stays as it is."""

ReduceOp = Literal["sum", "avg", "min", "max", "prod", "band", "bor", "bxor"]
REDUCE_OPS: Final[tuple[ReduceOp, ...]] = get_args(ReduceOp)


def bus_factor(collective: str, ranks: int) -> float:
    """Factor from algorithm to bus bandwidth, as in nccl-tests.

    Examples
    --------
    >>> bus_factor("all_reduce", 4), bus_factor("broadcast", 4)
    (1.5, 1.0)
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("reduce_scatter", "all_gather", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0
