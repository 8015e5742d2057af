"""All ranks of a schedule in one process: a channel through memory, as nasty as a channel may be.

A send and its receive are matched in the order of their starts. The values are copied as late as possible,
when either side waits: whoever overwrites what it sends, or reads what has not come, gets wrong results.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime.buffers import flatten
from weft.runtime.engines.interpreter import Interpreter, Move, read_script
from weft.runtime.engines.messaging import FailureKind, OperationFailure
from weft.schedule import Schedule


class Transfer:
    """A send and its receive, of which one may not be there yet."""

    def __init__(self) -> None:
        self.sent: NDArray[np.uint8] | None = None
        self.room: NDArray[np.uint8] | None = None
        self.over = False


class Hub:
    """Where the ranks meet."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: dict[tuple[int, int], deque[Transfer]] = defaultdict(deque)

    def post(self, rank: int, move: Move) -> Transfer:
        side = "sent" if move.sends else "room"
        queue = self.waiting[(rank, move.peer) if move.sends else (move.peer, rank)]
        found = next((transfer for transfer in queue if getattr(transfer, side) is None), None)
        if found is None:
            found = Transfer()
            queue.append(found)
        setattr(found, side, move.values)
        if found.sent is not None and found.room is not None:
            assert queue.popleft() is found
            assert found.sent.nbytes == found.room.nbytes
        return found


class MemoryChannel:
    """The hub as one rank sees it."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank = hub, rank

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, Transfer]]:
        with self.hub.changed:
            started = [(move.peer, self.hub.post(self.rank, move)) for move in moves]
            self.hub.changed.notify_all()
        return started

    def wait(self, handle: tuple[int, Transfer], deadline: float) -> None:
        peer, transfer = handle
        with self.hub.changed:
            while transfer.sent is None or transfer.room is None:
                if not self.hub.changed.wait(deadline - time.monotonic()):
                    raise OperationFailure(FailureKind.LATE, peer)
            if not transfer.over:
                transfer.room[:] = transfer.sent
                transfer.over = True


def interpret(
    schedule: Schedule, inputs: list[NDArray[Any]], outputs: list[NDArray[Any]], op: str, timeout: float = 20
) -> None:
    """Run a schedule on every rank's array, in place; `outputs` is for all-to-all, else the inputs again."""
    hub = Hub()
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(schedule.chunk_bytes(inputs[0].size))])
    deadline = time.monotonic() + timeout

    def run(rank: int) -> None:
        script = read_script(schedule, start, rank)
        scratch = np.full(script.scratch_elements * inputs[rank].itemsize, 255, np.uint8)
        arrays = inputs[rank], outputs[rank], scratch.view(inputs[rank].dtype)
        memory = [flatten(array, writable=True) for array in arrays]
        Interpreter(script, memory, MemoryChannel(hub, rank), op, deadline).run()

    with ThreadPoolExecutor(schedule.ranks) as pool:
        for done in [pool.submit(run, rank) for rank in range(schedule.ranks)]:
            done.result()
    assert not any(hub.waiting.values()), "a message that nobody took"
