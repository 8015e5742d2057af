"""What one rank does when it is told to: make a task ready, check its result, time it."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weft.bench.data import count_wrong_results, fill_input, fill_neutral
from weft.bench.task import ITEM_BYTES, BenchTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bench.control_messages import Message
    from weft.bench.peers.peer import Call, PeerRank


class RankTasks:
    """One rank of one contestant, and the task it has in hand.

    Every rank is given the same orders in the same order: ``prepare``, then any number of ``check`` and
    ``time`` in either place.
    """

    def __init__(self, contestant: PeerRank) -> None:
        self._contestant = contestant
        self._task: BenchTask | None = None
        self._bound: dict[str, tuple[Call, NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def do(self, order: Message) -> Message:
        """Carry out one order; the answer is what there is to tell."""
        if order["do"] == "prepare":
            return self._prepare(msgspec.convert(order["task"], BenchTask), order["places"])
        if order["do"] == "check":
            return self._check(order["place"])
        return self._time(order["place"], order["warmups"], order["iterations"])

    def _prepare(self, task: BenchTask, places: list[str]) -> Message:
        """Memory for input and output, the same for both places; that of the task before is given back."""
        self._bound.clear()
        self._task = task
        item = ITEM_BYTES[task.dtype]
        source = self._contestant.empty(task.input_elements * item)
        for place in places:
            target = source if place == "in" else self._contestant.empty(task.output_elements * item)
            fill_neutral(task, target)
            self._bound[place] = (self._contestant.bind(task, source, target), source, target)
        return {}

    def _check(self, place: str) -> Message:
        assert self._task is not None
        call, source, target = self._bound[place]
        fill_input(self._task, self._contestant.rank, source)
        self._contestant.barrier()
        found = result_bytes(call(), target)
        wrong = count_wrong_results(self._task, self._contestant.rank, found)
        for memory in (source, target):
            fill_neutral(self._task, memory)
        return {"wrong": wrong, **self._contestant.ran()}

    def _time(self, place: str, warmups: int, iterations: int) -> Message:
        call = self._bound[place][0]
        for _ in range(warmups):
            call()
        self._contestant.barrier()
        used = _cpu_seconds()
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        seconds = time.perf_counter() - began
        return {"seconds": seconds / iterations, "cpu_seconds": (_cpu_seconds() - used) / iterations}


def result_bytes(result: Any, target: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Where the result is: what the call returned, or the target."""
    return result.view(np.uint8) if isinstance(result, np.ndarray) else target


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
