"""One comparison of the studio: what is asked for, the events so far, and what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.studio.api_bodies import CompareBody
    from weft.topology import Topology

Outcome = Literal["finished", "cancelled", "failed"]
OUTCOMES: Final[dict[str, Outcome]] = {"done": "finished", "cancelled": "cancelled", "error": "failed"}
"""What became of a comparison, by its last event."""


class ComparisonJob:
    """One comparison, from being accepted to its last event.

    Parameters
    ----------
    number
        The number of the comparison; the first one has 1.
    topology, body
        The cluster, and what to compare on it.
    """

    def __init__(self, number: int, topology: Topology, body: CompareBody) -> None:
        self.number, self.topology, self.body = number, topology, body
        self.outcome: Outcome | None = None
        self.on_end: Callable[[ComparisonJob], None] = lambda _job: None
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()

    def add(self, line: bytes) -> None:
        """Add an event; there are few, one for each algorithm and three more."""
        if self.outcome is None:
            self._events.put_nowait(line)

    def end(self, outcome: Outcome, line: bytes) -> None:
        """Add the last event, unless there was one already."""
        if self.outcome is None:
            self.outcome = outcome
            self._events.put_nowait(line)
            self._events.put_nowait(None)
            self.on_end(self)

    def end_with(self, event: Literal["cancelled", "error"], **fields: str) -> None:
        """End with an event of the server's own."""
        self.end(OUTCOMES[event], self.line(event, **fields))

    def cancel(self, reason: str) -> None:
        """End the comparison now, if it has not ended."""
        self.end_with("cancelled", reason=reason)

    def line(self, event: str, **fields: Any) -> bytes:
        """One event of this comparison as a line."""
        return msgspec.json.encode({"event": event, "comparison": self.number, **fields}) + b"\n"

    async def next_line(self) -> bytes | None:
        """The next event; None after the last. Comparisons have deadlines, so that this ends."""
        return await self._events.get()
