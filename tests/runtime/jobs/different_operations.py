"""Two ranks in two different operations, for every pair of a list: both of them are told, whatever the sizes.

Usage: different_operations.py TRANSPORT. The operations of a group move equally many bytes of one type, so
that nothing but the name of the operation tells them apart. Prints the number of pairs.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

WAIT_S = 20.0
Call = Callable[[weft.Communicator], Any]


def words(elements: int, kind: type = np.int32) -> Any:
    """Array of ones."""
    return np.ones(elements, kind)


ONE: dict[str, Call] = {
    "barrier": lambda comm: comm.barrier(),
    "all_reduce": lambda comm: comm.all_reduce(words(1)),
    "all_reduce max": lambda comm: comm.all_reduce(words(1), "max"),
    "all_reduce of a kind": lambda comm: comm.all_reduce(words(1), kind="boolean"),
    "broadcast from 0": lambda comm: comm.broadcast(words(1), 0),
    "broadcast from 1": lambda comm: comm.broadcast(words(1), 1),
    "reduce": lambda comm: comm.reduce(words(1)),
    "exchange": lambda comm: comm.send_recv(words(1), 1 - comm.rank, words(1), 1 - comm.rank),
    "exchange of a kind": lambda comm: comm.send_recv(
        words(1), 1 - comm.rank, words(1), 1 - comm.rank, kind="boolean"
    ),
}
THREE: dict[str, Call] = {
    "split": lambda comm: comm.split(0),
    "all_gather": lambda comm: comm.all_gather(words(3, np.int64)),
    "all_gather of a kind": lambda comm: comm.all_gather(words(3, np.int64), kind="stamp"),
    "all_reduce": lambda comm: comm.all_reduce(words(6, np.int64)),
    "all_to_all": lambda comm: comm.all_to_all(words(6, np.int64)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(words(6, np.int64)),
}
NONE: dict[str, Call] = {
    "empty all_reduce": lambda comm: comm.all_reduce(words(0)),
    "empty all_gather": lambda comm: comm.all_gather(words(0)),
    "empty reduce_scatter": lambda comm: comm.reduce_scatter(words(0)),
    "empty broadcast": lambda comm: comm.broadcast(words(0)),
    "empty all_to_all": lambda comm: comm.all_to_all(words(0)),
    "barrier": lambda comm: comm.barrier(),
    "all_reduce": lambda comm: comm.all_reduce(words(5)),
}
HALVES: dict[str, Call] = {
    "first half of a sum": lambda comm: comm.halves(4, np.float32).reduce(words(4, np.float32)),
    "first half of an average": lambda comm: comm.halves(4, np.float32).reduce(words(4, np.float32), "avg"),
    "second half": lambda comm: comm.halves(4, np.float32).gather(words(4, np.float32)),
    "all_reduce": lambda comm: comm.all_reduce(words(4, np.float32)),
}


def main() -> None:
    """Try every pair, each in a communicator of its own."""
    transport, pairs = sys.argv[1], 0
    for group in (ONE, THREE, NONE, HALVES):
        for names in itertools.combinations(group, 2):
            with weft.init(transport=transport, timeout=WAIT_S) as comm:
                with pytest.raises(weft.DesyncError) as caught:
                    group[names[comm.rank]](comm)
                assert caught.value.rank == 1 - comm.rank, names
            pairs += 1
    print(pairs)


if __name__ == "__main__":
    main()
