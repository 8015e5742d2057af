"""Two ranks in two different operations, for every pair of a list: both of them are told, whatever the sizes.

Usage: different_operations.py TRANSPORT. The operations of a group move equally many bytes of one type, so
that nothing but the name of the operation tells them apart. Prints the number of pairs. Jobs on other engines
import `try_pairs`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from functools import partial
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


def message(comm: weft.Communicator, sender: int) -> None:
    """Send an array, or receive it."""
    (comm.send if comm.rank == sender else comm.recv)(words(3), 1 - comm.rank)


def message_both_ways(comm: weft.Communicator, sender: int) -> None:
    """Send an array and receive another."""
    comm.send_recv(words(3), 1 - comm.rank, words(3), 1 - comm.rank)


def gather(comm: weft.Communicator, sender: int) -> None:
    """Gather at the rank that does not send."""
    comm.gather(words(3), 1 - sender)


def scatter(comm: weft.Communicator, sender: int) -> None:
    """Scatter from the rank that sends."""
    comm.scatter(words(6) if comm.rank == sender else None, sender, out=words(3))


def parts(comm: weft.Communicator, sender: int) -> None:
    """Send one part to the only peer, or receive it."""
    (comm.send_parts if comm.rank == sender else comm.recv_parts)([1 - comm.rank], words(3))


ONE_WAY = (message, message_both_ways, gather, scatter, parts)
FROM_0: dict[str, Call] = {call.__name__: partial(call, sender=0) for call in ONE_WAY}
FROM_1: dict[str, Call] = {call.__name__: partial(call, sender=1) for call in ONE_WAY}


def try_pairs(groups: Iterable[dict[str, Call]], begin: Callable[[], weft.Communicator]) -> int:
    """Try every pair of each group, each in a communicator of its own; return how many there are."""
    pairs = 0
    for group in groups:
        for names in itertools.combinations(group, 2):
            with begin() as comm:
                with pytest.raises(weft.DesyncError) as caught:
                    group[names[comm.rank]](comm)
                assert caught.value.rank == 1 - comm.rank, names
            pairs += 1
    return pairs


def main() -> None:
    """Try every pair of all groups over a transport of Weft's own."""
    groups = (ONE, THREE, NONE, HALVES, FROM_0, FROM_1)
    print(try_pairs(groups, lambda: weft.init(transport=sys.argv[1], timeout=WAIT_S)))


if __name__ == "__main__":
    main()
