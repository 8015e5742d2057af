"""The interpreter: runs one rank's part of a schedule in Python, over any channel and on any buffers.

The meaning is that of `weft.schedule.ir`. A rank takes its steps one after the other. At the beginning of a
step it starts all sends and receives of the step; arrivals go into separate memory first. Then, in
row order, each arrival is waited for and applied, once the sends that still read its place are over. Other
sends may go on while later steps begin.

That cannot deadlock, whatever the schedule: take the ranks at the earliest step. All they wait for belongs to
that step or to earlier ones, and the ranks at the other end have started it, since they are there or further.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

import numpy as np

from weft.runtime.engines import B
from weft.schedule import Op, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from weft.runtime.engines import PeerExchange


class Region(IntEnum):
    """Where a value lives at a rank."""

    BUFFER = 0
    OUTPUT = 1
    SCRATCH = 2


class Piece(NamedTuple):
    """Elements that lie side by side."""

    region: Region
    first: int
    last: int

    def overlaps(self, other: Piece) -> bool:
        """Whether they share elements."""
        return self.region == other.region and self.first < other.last and other.first < self.last


@dataclass(frozen=True, slots=True)
class Message:
    """Rows that travel together.

    Parameters
    ----------
    peer
        The rank at the other end; this rank itself for what goes from slot to slot.
    reads, writes
        Where at this rank; empty for the end that is elsewhere.
    """

    peer: int
    elements: int
    reduces: bool
    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What a rank does at one step of a schedule, in row order."""

    number: int
    sends: tuple[Message, ...]
    arrivals: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """What a rank does in one collective."""

    rank: int
    steps: tuple[Step, ...]
    peers: tuple[int, ...]
    scratch_elements: int
    between: dict[int, int] = field(default_factory=dict)
    """What only this rank and a peer have to agree on; nothing in a collective."""


class Move(NamedTuple):
    """Values to send to a peer, or room for the values that it sends."""

    peer: int
    values: Any
    sends: bool


class MessageChannel(Protocol):
    """Carries values to other ranks and from them, in the order in which they were started."""

    def start(self, moves: Sequence[Move]) -> Sequence[Any]:
        """Start sends and receives, all at once; something to wait for, for each."""

    def wait(self, handle: Any, deadline: float) -> None:
        """Return once a send was read, or a receive has all there is; `Failure` if that cannot be."""


class ChunkLayout:
    """Where each chunk lies at one rank; `cpp/runtime/script.cpp` has the same.

    Parameters
    ----------
    start
        First element of each chunk, and the end.
    pairs
        All-to-all: chunk ``s * ranks + d`` lies in the buffer of s and the output of d.
    """

    def __init__(self, start: NDArray[np.int64], ranks: int, rank: int, *, pairs: bool) -> None:
        self.start, self.ranks, self.rank, self.pairs = start.tolist(), ranks, rank, pairs
        into = np.diff(start).reshape(ranks, ranks)[:, rank] if pairs else np.zeros(0, np.int64)
        self.arrival: list[int] = (np.cumsum(into) - into).tolist()

    def find(self, chunk: int, slot: int) -> Piece:
        """Place of a chunk in a slot."""
        first, last = self.start[chunk], self.start[chunk + 1]
        source, target = divmod(chunk, self.ranks)
        if self.pairs and slot == 0 and source == self.rank:
            region, at = Region.BUFFER, first - self.start[source * self.ranks]
        elif self.pairs and slot == 0 and target == self.rank:
            region, at = Region.OUTPUT, self.arrival[source]
        elif slot == 0 and not self.pairs:
            region, at = Region.BUFFER, first
        else:
            region, at = Region.SCRATCH, (slot - (not self.pairs)) * self.start[-1] + first
        return Piece(region, at, at + last - first)

    def scratch_elements(self, slots: int) -> int:
        """Room for all slots that are not the buffer."""
        return int((slots - (not self.pairs)) * self.start[-1])

    def find_all(self, chunks: range, slot: int) -> tuple[Piece, ...]:
        """Places of consecutive chunks, joined where they touch."""
        found: list[Piece] = []
        for piece in (self.find(chunk, slot) for chunk in chunks):
            if found and found[-1].region == piece.region and found[-1].last == piece.first:
                found[-1] = found[-1]._replace(last=piece.last)
            elif piece.first < piece.last:
                found.append(piece)
        return tuple(found)


def read_script(schedule: Schedule, start: NDArray[np.int64], rank: int) -> Script:
    """Keep what concerns one rank; messages without elements travel nowhere.

    Parameters
    ----------
    start
        First element of each chunk, and the end.
    """
    layout = ChunkLayout(start, schedule.ranks, rank, pairs=schedule.collective == "all_to_all")
    steps: dict[int, tuple[list[Message], list[Message]]] = {}
    peers: set[int] = set()
    for row, chunks in _messages_of(schedule, rank):
        src, dst = int(schedule.src[row]), int(schedule.dst[row])
        elements = int(start[chunks.stop] - start[chunks.start])
        peers |= {src, dst}
        if not elements:
            continue
        src_slot = 0 if schedule.src_slot is None else int(schedule.src_slot[row])
        dst_slot = 0 if schedule.dst_slot is None else int(schedule.dst_slot[row])
        message = Message(
            dst if src == rank else src,
            elements,
            bool(schedule.op[row] == Op.REDUCE),
            layout.find_all(chunks, src_slot) if src == rank else (),
            layout.find_all(chunks, dst_slot) if dst == rank else (),
        )
        sends, arrivals = steps.setdefault(int(schedule.step[row]), ([], []))
        (arrivals if dst == rank else sends).append(message)
    ordered = tuple(Step(step, tuple(sends), tuple(came)) for step, (sends, came) in sorted(steps.items()))
    return Script(rank, ordered, tuple(sorted(peers - {rank})), layout.scratch_elements(schedule.slots))


def _messages_of(schedule: Schedule, rank: int) -> Iterator[tuple[int, range]]:
    """First row and chunks of each message that a rank sends or receives."""
    starts = schedule.message_starts
    ends = np.append(starts[1:], schedule.transfers)
    mine = (schedule.src[starts] == rank) | (schedule.dst[starts] == rank)
    for row, end in zip(starts[mine].tolist(), ends[mine].tolist(), strict=True):
        chunk = int(schedule.chunk[row])
        yield row, range(chunk, chunk + end - row)


def read_exchanges(exchanges: Sequence[PeerExchange], rank: int) -> Script:
    """Make one step of all sends and receives of point-to-point exchanges."""
    sends, arrivals = [], []
    for peer, sent, received, here, _ in exchanges:
        if sent:
            sends.append(Message(peer, sent, False, (Piece(Region.BUFFER, here, here + sent),), ()))
        if received:
            places = (Piece(Region.OUTPUT, here, here + received),)
            arrivals.append(Message(peer, received, False, (), places))
    peers = tuple(exchange.peer for exchange in exchanges)
    codes = {exchange.peer: exchange.code(rank) for exchange in exchanges}
    return Script(rank, (Step(0, tuple(sends), tuple(arrivals)),), peers, 0, codes)


class Interpreter(Generic[B]):
    """One collective under way.

    Parameters
    ----------
    memory
        By `Region`.
    op
        What a reduction does.
    deadline
        When to give up, by ``time.monotonic()``.
    """

    def __init__(
        self, script: Script, memory: Sequence[B], channel: MessageChannel, op: str, deadline: float
    ) -> None:
        self.script, self.memory = script, memory
        self.channel, self.op, self.deadline = channel, op, deadline
        self.step: int | None = None
        self._leaving: list[tuple[tuple[Piece, ...], Any]] = []

    def run(self) -> None:
        """Carry out all steps of this rank's part."""
        for step in self.script.steps:
            self.step = step.number
            self._take(step)
        for _, handle in self._leaving:
            self.channel.wait(handle, self.deadline)

    def _take(self, step: Step) -> None:
        # A single piece is sent from where it lies, and must stay as it is until it has left.
        sent = [self._view(m.reads[0]) if len(m.reads) == 1 else self._gather(m) for m in step.sends]
        arrived = [
            self._gather(m) if m.peer == self.script.rank else self.memory[0].empty(m.elements)
            for m in step.arrivals
        ]
        moves = [Move(m.peer, buffer.values, sends=True) for m, buffer in zip(step.sends, sent, strict=True)]
        moves += [
            Move(m.peer, buffer.values, sends=False)
            for m, buffer in zip(step.arrivals, arrived, strict=True)
            if m.peer != self.script.rank
        ]
        handles = iter(self.channel.start(moves))
        self._leaving += [(m.reads if len(m.reads) == 1 else (), next(handles)) for m in step.sends]
        for message, buffer in zip(step.arrivals, arrived, strict=True):
            if message.peer != self.script.rank:
                self.channel.wait(next(handles), self.deadline)
            self._let_leave(message.writes)
            self._apply(message, buffer)

    def _let_leave(self, places: tuple[Piece, ...]) -> None:
        """Wait for the sends that still read what is to be written."""
        staying = []
        for reads, handle in self._leaving:
            if any(read.overlaps(place) for read in reads for place in places):
                self.channel.wait(handle, self.deadline)
            else:
                staying.append((reads, handle))
        self._leaving = staying

    def _apply(self, message: Message, buffer: B) -> None:
        for place, part in self._parts(message.writes, buffer):
            if message.reduces:
                place.combine(part, self.op)
            else:
                place.fill(part)

    def _gather(self, message: Message) -> B:
        gathered = self.memory[0].empty(message.elements)
        for place, part in self._parts(message.reads, gathered):
            part.fill(place)
        return gathered

    def _parts(self, pieces: tuple[Piece, ...], buffer: B) -> Iterator[tuple[B, B]]:
        """The place of each piece, with its part of a buffer that has them one after the other."""
        at = 0
        for piece in pieces:
            size = piece.last - piece.first
            yield self._view(piece), buffer.part(at, at + size)
            at += size

    def _view(self, piece: Piece) -> B:
        return self.memory[piece.region].part(piece.first, piece.last)
