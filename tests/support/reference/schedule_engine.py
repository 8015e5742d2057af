"""A small engine that can be checked by reading, and that checks the fast one.

`simulate_reference` means exactly what `weft.simulate` means and gives the same picoseconds; it is slower by
orders of magnitude and knows no critical path. It shares no code with the C++ engine. Three files, one
concept each: `lowering` says what waits for what, `reference_sharing` how links are shared, this is
the run itself.

The rules that leave room
-------------------------
- Instants are handled in batches. A batch is all that is queued for the earliest instant, and all that this
  makes happen at the same instant: an apply, what it makes ready, a move within a rank, an arrival over links
  without latency. Only then every free link (or idle connection) starts one segment. What a start makes
  happen at the same instant, such as the head reaching the next link without latency, is the next batch.
- In fluid sharing a flow ends in the batch of its finish instant, even if rates change in that batch. New
  rates that put a finish at the present instant end that flow in the next batch.
- A connection is known by its links, whether its route is explicit or the network's own.
- A segment from a rank to itself crosses no links, whatever its route says: it leaves and arrives when ready.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from support.reference.link_sharing import Agenda, Fluid, Journeys, Queue, Sharing
from support.reference.lowering import Passed, Segment, Waits, cut_segments, derive_waits
from weft.errors import InputError, SimulationError
from weft.units import transfer_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

SHARINGS: Final[dict[str, Callable[[Topology, Agenda, Journeys], Sharing]]] = {
    "queue": Queue,
    "fluid": Fluid,
}


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """Everything in whole picoseconds.

    Parameters
    ----------
    time_ps
        When the last segment was applied.
    started_ps, applied_ps
        Per segment, in the order of (message, index in it): start on the first link, and apply.
    link_busy_ps
        Per link: how long it would take to carry its bytes.
    rank_finish_ps
        Per rank: when the last of its segments left it, or the last one for it was applied; 0 if it had none.
    """

    time_ps: int
    started_ps: tuple[int, ...]
    applied_ps: tuple[int, ...]
    link_busy_ps: tuple[int, ...]
    rank_finish_ps: tuple[int, ...]


def simulate_reference(
    schedule: Schedule,
    size_bytes: int,
    *,
    segment_bytes: int | None = None,
    sharing: str = "queue",
    element_bytes: int = 1,
) -> ReferenceResult:
    """Run a collective on its topology; the parameters are those of `weft.simulate`.

    Raises
    ------
    SimulationError
        If segments remain that nothing can set off.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:4@bw=1GB/s,lat=1us"), "broadcast", "chain", chunks=1)
    >>> for rank in range(3):
    ...     builder.add(step=rank, chunk=0, src=rank, dst=rank + 1, op=Op.COPY)
    >>> simulate_reference(builder.build(), 1000).applied_ps
    (2000000, 4000000, 6000000)
    """
    segments = cut_segments(schedule, size_bytes, segment_bytes, element_bytes)
    run = Run(schedule.topology, segments, derive_waits(segments), sharing=sharing)
    return run.to_the_end()


class Run:
    """One simulation under way: who waits for what (struck off as it passes), and what happened when."""

    def __init__(
        self,
        topology: Topology,
        segments: Sequence[Segment],
        waits: Sequence[Waits],
        *,
        sharing: str = "queue",
    ) -> None:
        if sharing not in SHARINGS:
            msg = f"sharing {sharing!r} is unknown, expected one of {', '.join(SHARINGS)}"
            raise InputError(msg)
        self.topology, self.segments, self.waits = topology, segments, waits
        self.agenda = Agenda()
        self.network: Sharing = SHARINGS[sharing](topology, self.agenda, self)
        self.followers: dict[Passed, list[Segment]] = defaultdict(list)
        self.started_ps: dict[int, int] = {}
        self.applied_ps: dict[int, int] = {}
        self.rank_finish_ps = [0] * topology.ranks

    def to_the_end(self) -> ReferenceResult:
        """Let everything happen."""
        for segment, waits in zip(self.segments, self.waits, strict=True):
            for passed in waits.start | waits.apply:
                self.followers[passed].append(segment)
            if not waits.start:
                self.agenda.at(0, partial(self.ready, segment))
        while self.agenda.advance():
            self.network.start()
        if len(self.applied_ps) < len(self.segments):
            raise SimulationError(self._stuck())
        return ReferenceResult(
            time_ps=max(self.applied_ps.values(), default=0),
            started_ps=tuple(self.started_ps[segment.number] for segment in self.segments),
            applied_ps=tuple(self.applied_ps[segment.number] for segment in self.segments),
            link_busy_ps=self._link_busy_ps(),
            rank_finish_ps=tuple(self.rank_finish_ps),
        )

    def ready(self, segment: Segment) -> None:
        """Let it start as soon as the network can take it."""
        if segment.route:
            self.network.ready(segment)
        else:
            self.started(segment)
            self.left(segment)
            self.arrived(segment)

    def started(self, segment: Segment) -> None:
        """Note that it is on its first link now."""
        self.started_ps[segment.number] = self.agenda.now

    def left(self, segment: Segment) -> None:
        """Note that its source has sent all of it now."""
        self.rank_finish_ps[segment.src] = self.agenda.now
        self._pass(segment.left)

    def arrived(self, segment: Segment) -> None:
        """Note that its destination has received all of it now."""
        self._pass(segment.arrived)

    def applied(self, segment: Segment) -> None:
        """Note that its destination holds or has added it now."""
        self.applied_ps[segment.number] = self.rank_finish_ps[segment.dst] = self.agenda.now
        self._pass(segment.applied)

    def _pass(self, passed: Passed) -> None:
        """Strike a milestone off the waits of all; whoever waited for nothing else goes on in this batch."""
        for segment in self.followers.pop(passed, ()):
            waits = self.waits[segment.number]
            for missing, go_on in ((waits.start, self.ready), (waits.apply, self.applied)):
                if passed in missing:
                    missing.remove(passed)
                    if not missing:
                        self.agenda.at(self.agenda.now, partial(go_on, segment))

    def _link_busy_ps(self) -> tuple[int, ...]:
        busy = [0] * self.topology.links
        for segment in self.segments:
            for link in segment.route:
                busy[link] += transfer_ps(segment.size_bytes, int(self.topology.bandwidth[link]))
        return tuple(busy)

    def _stuck(self) -> str:
        segment = next(s for s in self.segments if s.number not in self.applied_ps)
        waits = self.waits[segment.number]
        what, missing = ("start", waits.start) if waits.start else ("be applied", waits.apply)
        other = min(missing, key=lambda passed: passed.segment)
        return (
            f"segment {segment.number} (transfer {segment.row}: chunk {segment.pieces[0].chunk} from rank "
            f"{segment.src} to rank {segment.dst} in step {segment.step}) can never {what}: "
            f"segment {other.segment} has not {other.milestone.value}"
        )
