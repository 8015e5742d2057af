"""Messages between two ranks, beside the collectives.

torch lets a rank start a send and a receive and wait for both: so neither may wait for the other, nor for a
collective. What goes from one rank to another has connections of its own, which the two make when the first
message goes that way. Messages come in the order in which they were sent; a tag is checked, not searched for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.errors import DesyncError, InputError, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.work import Worker
from weft.torch.meeting import meet
from weft.torch.options import Options
from weft.torch.tensors import Staged, array_of, flat_of
from weft.torch.works import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.runtime.work import Work

_SENDER, _RECEIVER = 0, 1


class Way(NamedTuple):
    """From one rank to another."""

    sender: int
    receiver: int


class Pairs:
    """Connections of one rank with single others, made when they are needed.

    Parameters
    ----------
    store
        Of the group.
    rank
        Of this process in it.
    transport
        As for `weft.init`.
    """

    def __init__(self, store: Any, rank: int, transport: str) -> None:
        self._store, self._rank, self._options = store, rank, Options(transport=transport)
        self._workers: dict[Way, Worker] = {}
        self._made: dict[Way, Communicator] = {}

    def send(self, tensor: Tensor, receiver: int, tag: int, timeout: float) -> Work:
        """Start to send a tensor."""

        def run(comm: Communicator) -> None:
            comm.send(np.array([tag]), _RECEIVER, timeout=timeout)
            comm.send(array_of(flat_of(tensor)), _RECEIVER, timeout=timeout)

        return self._start(Way(self._rank, receiver), run, timeout, [])

    def receive(self, tensor: Tensor, sender: int, tag: int, timeout: float) -> Work:
        """Start to receive into a tensor."""

        def run(comm: Communicator) -> None:
            found = int(comm.recv(np.array([tag]), _SENDER, timeout=timeout)[0])
            if found != tag:
                msg = f"recv: rank {sender} sends tag {found} next, not {tag}; messages come in order"
                raise InputError(msg)
            staged = Staged(tensor)
            comm.recv(staged.array, _SENDER, timeout=timeout)
            staged.settle()

        return self._start(Way(sender, self._rank), run, timeout, [tensor])

    def close(self) -> None:
        """Leave. What is still under way ends by its own deadline."""
        for way, worker in self._workers.items():
            if worker.idle():
                worker.close()
                if way in self._made:
                    self._made[way].close()

    def _start(
        self, way: Way, run: Callable[[Communicator], None], timeout: float, outputs: Sequence[Tensor]
    ) -> Work:
        def in_the_group() -> None:
            try:
                run(self._connect(way, timeout))
            except RuntimeFailure as failure:
                raise _rename(failure, way) from failure

        return self._workers.setdefault(way, Worker()).submit(guarded(in_the_group, outputs))

    def _connect(self, way: Way, timeout: float) -> Communicator:
        if way not in self._made:
            place = _SENDER if way.sender == self._rank else _RECEIVER
            key = f"weft/{way.sender}-{way.receiver}"
            self._made[way] = meet(self._store, place, 2, self._options, timeout=timeout, key=key)
        return self._made[way]


def _rename(failure: RuntimeFailure, way: Way) -> RuntimeFailure:
    """The same failure, with the ranks of the group."""
    if isinstance(failure, PeerLost):
        return PeerLost(way[failure.rank], failure.host, failure.pid, failure.op, failure.step)
    if isinstance(failure, DesyncError):
        return DesyncError(way[failure.rank], failure.op)
    if isinstance(failure, TimedOut):
        missing = [way[rank] for rank in failure.missing]
        return TimedOut(failure.op, failure.seconds, missing, failure.hint)
    return failure
