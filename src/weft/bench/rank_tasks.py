"""The tasks of one rank of a measured job: prepare one, check its result, time it."""

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
    """One rank of one peer, and its current task.

    Every rank is given the same orders in the same order: ``prepare``, then any number of ``check`` and
    ``time`` in either place.
    """

    def __init__(self, peer: PeerRank) -> None:
        self._peer = peer
        self._task: BenchTask | None = None
        self._bound: dict[str, tuple[Call, NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def do(self, order: Message) -> Message:
        """Carry out one order; the answer is what there is to tell."""
        if order["do"] == "prepare":
            return self._prepare(msgspec.convert(order["task"], BenchTask), order["places"])
        if order["do"] == "check":
            return self._check(order["place"], compare=order["compare"])
        return self._time(order["place"], order["warmups"], order["iterations"])

    def _prepare(self, task: BenchTask, places: list[str]) -> Message:
        """Memory for input and output, the same for both places; that of the task before is given back."""
        self._bound.clear()
        self._task = task
        item = ITEM_BYTES[task.dtype]
        source = self._peer.empty(task.input_elements * item)
        for place in places:
            target = source if place == "in" else self._peer.empty(task.output_elements * item)
            fill_neutral(task, target)
            self._bound[place] = (self._peer.bind(task, source, target), source, target)
        return {}

    def _check(self, place: str, *, compare: bool) -> Message:
        """Do it once and count wrong elements, unless the result is not to be compared; tell what ran."""
        assert self._task is not None
        call, source, target = self._bound[place]
        fill_input(self._task, self._peer.rank, source)
        self._peer.barrier()
        found = result_bytes(call(), target)
        wrong = count_wrong_results(self._task, self._peer.rank, found) if compare else 0
        for memory in (source, target):
            fill_neutral(self._task, memory)
        return {"wrong": wrong, **self._peer.ran()}

    def _time(self, place: str, warmups: int, iterations: int) -> Message:
        call = self._bound[place][0]
        for _ in range(warmups):
            call()
        self._peer.barrier()
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
