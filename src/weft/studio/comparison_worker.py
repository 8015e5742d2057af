"""The process that compares for the studio: one comparison at a time, each row told as soon as it is there.

It reads lines of JSON from standard input, a comparison or the number of one to cancel, and writes lines of
JSON to standard output. A thread reads, so that a cancellation is noticed while the main thread computes: it
signals the main thread, whose handler raises `ComparisonCancelled`. The loops of C++ hear signals
(``cpp/common/work_limit.hpp``) and release the interpreter, so that this takes milliseconds, and the process,
with all that it has imported, is there for the next comparison. The process ends when its input does.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.collective_names import Collective
from weft.errors import WeftError
from weft.planning import compare
from weft.reporting import make_document
from weft.reporting.result_forms import read_form
from weft.reporting.result_sections import comparison_sections
from weft.topology import load_topology
from weft.topology.record import TopologyRecord, from_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import BinaryIO

    from weft.planning import Comparison
    from weft.reporting.section_kinds import Section

_CANCEL: Final = signal.SIGUSR1
OVERTIME_S: Final = 20.0
"""Seconds after the time limit of a comparison, when the process is ended if it is still at it."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """A comparison to make, or, without a topology, the number of one to cancel."""

    comparison: int
    topology: TopologyRecord | None = None
    size: str = ""
    collective: Collective = "all_reduce"
    algorithms: list[str] = []
    time_limit: float = 0.0


class ComparisonCancelled(BaseException):
    """Raised in the middle of a comparison that is no longer wanted; nothing that handles errors stops it."""


class ComparisonWorker:
    """Orders that come in, and events that go out.

    Parameters
    ----------
    orders, events
        The streams from which orders are read and to which events are written, line by line.
    """

    def __init__(self, orders: BinaryIO, events: BinaryIO) -> None:
        self._orders, self._events = orders, events
        self._waiting: queue.SimpleQueue[WorkerOrder] = queue.SimpleQueue()
        self._current = self._cancelled = 0
        self._writing = False

    def serve(self) -> None:
        """Compare until the input ends, which ends the process."""
        signal.signal(_CANCEL, self._hear)
        threading.Thread(target=self._read, daemon=True).start()
        self._emit({"event": "ready"})
        while True:
            self._carry_out(self._waiting.get())

    def _read(self) -> None:
        """Take orders while the main thread computes; comparisons have ascending numbers."""
        decode = msgspec.json.Decoder(WorkerOrder).decode
        for line in self._orders:
            order = decode(line)
            if order.topology is not None:
                self._waiting.put(order)
                continue
            self._cancelled = order.comparison
            if self._current == order.comparison:
                signal.pthread_kill(threading.main_thread().ident or 0, _CANCEL)
        os._exit(0)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        # A line that is half written is finished first.
        if not self._writing:
            self._check()

    def _check(self) -> None:
        if 0 < self._current <= self._cancelled:
            raise ComparisonCancelled

    def _emit(self, event: dict[str, Any]) -> None:
        line = msgspec.json.encode(event) + b"\n"
        self._writing = True
        try:
            self._events.write(line)
            self._events.flush()
        finally:
            self._writing = False
        self._check()

    def _carry_out(self, order: WorkerOrder) -> None:
        # Whatever happens, this process does not compute for ever: the alarm ends it.
        signal.setitimer(signal.ITIMER_REAL, order.time_limit + OVERTIME_S)
        number = order.comparison
        self._emit({"event": "taken"})
        try:
            try:
                self._current = number
                self._check()
                last = _compare(order, self._emit)
            finally:
                self._current = 0
        except ComparisonCancelled:
            last = {"event": "cancelled"}
        except WeftError as error:
            last = {"event": "error", "error": str(error), "what_to_do": "Change the cluster or the choice."}
        except MemoryError:
            last = {"event": "error", "error": "not enough memory", "what_to_do": "Take a smaller cluster."}
        except Exception as error:  # noqa: BLE001 - a bug is told to the page, and shown in the terminal
            traceback.print_exc()
            text = f"a bug in Weft: {type(error).__name__}: {error}"
            last = {"event": "error", "error": text, "what_to_do": "Please report it."}
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._emit({**last, "comparison": number})


def _compare(order: WorkerOrder, emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Make one comparison; returns its last event."""
    assert order.topology is not None
    count = [0]

    def note(_name: str, _done: int, total: int) -> None:
        count[0] = total

    def tell(found: Comparison) -> None:
        event = _describe(found, tried=len(found.results) + len(found.skipped), of=count[0])
        emit({"event": "rows", "comparison": order.comparison, **event})

    found = compare(
        from_record(order.topology),
        order.size,
        order.collective,
        order.algorithms or None,
        time_limit=order.time_limit,
        progress=note,
        watch=tell,
    )
    return {"event": "done", "result": found.to_dict(), "document": make_document([found])}


def _describe(found: Comparison, *, tried: int, of: int) -> dict[str, Any]:
    result = found.to_dict()
    sections: list[Section] = comparison_sections([read_form(result, "comparison")])
    return {"tried": tried, "of": of, "result": result, "sections": sections}


def main() -> None:
    """Serve the process that started this one."""
    # What anything prints must not come between the events.
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Imports what comparisons need, so that the first one does not wait for it.
    make_document([compare(load_topology("torus:2x2"), "1KiB")])
    ComparisonWorker(sys.stdin.buffer, events).serve()


if __name__ == "__main__":
    main()
