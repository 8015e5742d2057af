"""The collectives that Weft knows, by name, and what nccl-tests makes of their speeds.

It imports no numpy, so that the options of the command line can list the names.
"""

from __future__ import annotations

from typing import Final

COLLECTIVES: Final = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")


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
