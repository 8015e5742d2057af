"""How segments share links, in the reference engine: one at a time (`Queue`), or all at once (`Fluid`).

Both are told when a segment is ready, are asked after each batch of events to start what can start, and
report when a segment starts, leaves its source and arrives. What takes time goes through the `Agenda`.
"""

from __future__ import annotations

import heapq
import math
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from weft.probing.fair_sharing import share_fairly
from weft.units import PS_PER_S, transfer_ps

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.reference.lowering import Segment
    from weft.topology import Topology

Connection = tuple[int, int, tuple[int, ...]]


class Agenda:
    """The heap of what happens when."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._tickets = count()

    def at(self, instant: int, happening: Callable[[], None]) -> None:
        """Let something happen, now or later."""
        heapq.heappush(self._heap, (instant, next(self._tickets), happening))

    def advance(self) -> bool:
        """Go to the earliest instant and let happen all there is for it, or say that nothing is left.

        What a happening adds for the same instant belongs to the same batch.
        """
        if not self._heap:
            return False
        self.now = self._heap[0][0]
        while self._heap and self._heap[0][0] == self.now:
            _, _, happening = heapq.heappop(self._heap)
            happening()
        return True


class Journeys(Protocol):
    """Who wants to know how far each segment is."""

    def started(self, segment: Segment) -> None:
        """Note that it is on its first link now."""

    def left(self, segment: Segment) -> None:
        """Note that its source has sent all of it now."""

    def arrived(self, segment: Segment) -> None:
        """Note that its destination has received all of it now."""


class Sharing(Protocol):
    """What a run asks of a network."""

    def ready(self, segment: Segment) -> None:
        """Take a segment that may start from now on."""

    def start(self) -> None:
        """Start all that can start now."""


class WaitingRoom:
    """Segments that wait for one link or connection; the smallest key goes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int, int], int, Segment, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, segment: Segment, hop: int = 0) -> None:
        """Wait from now on."""
        heapq.heappush(self._heap, (segment.key, segment.number, segment, hop))

    def call(self) -> tuple[Segment, int]:
        """Let the next one out, with the hop it waits at."""
        _, _, segment, hop = heapq.heappop(self._heap)
        return segment, hop


class Queue:
    """A link carries one segment at a time and keeps it for bytes / bandwidth; switches cut through.

    A segment goes on to the next link as soon as its head is there, but not so soon that a fast link would
    have to wait for a slow one in the middle of it.
    """

    def __init__(self, topology: Topology, agenda: Agenda, journeys: Journeys) -> None:
        self.bandwidth: list[int] = topology.bandwidth.tolist()
        self.latency_ps: list[int] = topology.latency_ps.tolist()
        self.agenda, self.journeys = agenda, journeys
        self.busy: set[int] = set()
        self.waiting = [WaitingRoom() for _ in self.bandwidth]

    def ready(self, segment: Segment, hop: int = 0) -> None:
        """Let it wait for the link of a hop from now on."""
        self.waiting[segment.route[hop]].enter(segment, hop)

    def start(self) -> None:
        """Let every free link take the next of those that wait for it."""
        for link, room in enumerate(self.waiting):
            if room and link not in self.busy:
                self._occupy(link, *room.call())

    def _occupy(self, link: int, segment: Segment, hop: int) -> None:
        now, at, latency = self.agenda.now, self.agenda.at, self.latency_ps[link]
        duration = transfer_ps(segment.size_bytes, self.bandwidth[link])
        self.busy.add(link)
        at(now + duration, partial(self.busy.discard, link))
        if hop == 0:
            self.journeys.started(segment)
            at(now + duration, partial(self.journeys.left, segment))
        if hop + 1 == len(segment.route):
            at(now + duration + latency, partial(self.journeys.arrived, segment))
        else:
            onward = transfer_ps(segment.size_bytes, self.bandwidth[segment.route[hop + 1]])
            at(now + latency + max(0, duration - onward), partial(self.ready, segment, hop + 1))


class Fluid:
    """Connections flow at once and share links max-min fair; each carries one segment at a time."""

    def __init__(self, topology: Topology, agenda: Agenda, journeys: Journeys) -> None:
        self.bandwidth: list[int] = topology.bandwidth.tolist()
        self.latency_ps: list[int] = topology.latency_ps.tolist()
        self.agenda, self.journeys = agenda, journeys
        self.waiting: dict[Connection, WaitingRoom] = {}
        self.busy: set[Connection] = set()
        self.flows: dict[int, Flow] = {}
        self.changed = False
        self.rated_at = 0

    def ready(self, segment: Segment) -> None:
        """Let it wait for its connection from now on."""
        room = self.waiting.setdefault(_connection(segment), WaitingRoom())
        room.enter(segment)

    def start(self) -> None:
        """Let every idle connection take its next; if any flow came or went, share the links anew."""
        for connection, room in self.waiting.items():
            if room and connection not in self.busy:
                segment, _ = room.call()
                self.busy.add(connection)
                self.flows[segment.number] = Flow(segment)
                self.changed = True
                self.journeys.started(segment)
        if self.changed:
            self._share()

    def _share(self) -> None:
        now = self.agenda.now
        for flow in self.flows.values():
            flow.remaining = max(0.0, flow.remaining - flow.rate * (now - self.rated_at) * 1e-12)
        rates = share_fairly({n: flow.segment.route for n, flow in self.flows.items()}, self.bandwidth)
        for number, flow in self.flows.items():
            flow.rate = rates[number]
            flow.finish = now + math.ceil(flow.remaining / flow.rate * PS_PER_S)
            self.agenda.at(flow.finish, partial(self._finish, flow))
        self.changed, self.rated_at = False, now

    def _finish(self, flow: Flow) -> None:
        """End a flow, unless this is a plan of the past: its rate has changed, or it has ended already."""
        segment, now = flow.segment, self.agenda.now
        if flow.finish != now or segment.number not in self.flows:
            return
        del self.flows[segment.number]
        self.busy.remove(_connection(segment))
        self.changed = True
        self.journeys.left(segment)
        latency = sum(self.latency_ps[link] for link in segment.route)
        self.agenda.at(now + latency, partial(self.journeys.arrived, segment))


class Flow:
    """A segment on its way: bytes to go, bytes per second, and when it would be through at this rate."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.remaining = float(segment.size_bytes)
        self.rate = 0.0
        self.finish = 0


def _connection(segment: Segment) -> Connection:
    return segment.src, segment.dst, segment.route
