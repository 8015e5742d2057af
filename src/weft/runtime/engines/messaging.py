"""The base of the engines that pass messages: the interpreter does the work, a channel carries it.

Ranks that will talk to each other first exchange the fingerprint of what they are in. Nothing waits without
end: whatever takes too long, breaks or differs ends as a `OperationFailure`, is told to the others as far as
they can still be reached, and becomes one of Weft's errors.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, NoReturn, Protocol, TypeVar

import msgspec
import numpy as np

from weft.errors import DesyncError, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.members import Member
from weft.runtime.engines import B, Engine, PeerExchange, Prepared
from weft.runtime.engines.interpreter import (
    Interpreter,
    Message,
    MessageChannel,
    Move,
    Piece,
    Region,
    Script,
    Step,
    read_script,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.runtime.engines.interpreter import Arithmetic
    from weft.schedule import Schedule

MEMBER_BYTES: Final = 2048
FAREWELL_S: Final = 0.1
"""How long a rank that gives up tries to tell the others."""

V = TypeVar("V")


class FailureKind(IntEnum):
    """How an operation can end early."""

    LOST = 1
    LATE = 2
    DIFFERS = 3


class OperationFailure(Exception):
    """Why an operation ended early, and on whose account."""

    def __init__(self, kind: FailureKind, rank: int) -> None:
        self.kind, self.rank = kind, rank
        super().__init__(f"{kind.name.lower()}: rank {rank}")


class Messenger(MessageChannel, Protocol[V]):
    """A channel between processes."""

    def write(self, words: tuple[int, int]) -> V:
        """Two numbers as something to send."""
        ...

    def read(self, values: V) -> tuple[int, int]:
        """The two numbers that came."""
        ...

    def tell(self, failure: OperationFailure) -> None:
        """Let the others know, as far as they can be reached within a moment; nothing works afterwards."""
        ...


class MessagingEngine(Engine[B], Generic[B, V]):
    """An engine made of a channel.

    Parameters
    ----------
    members
        All ranks.
    rank
        This one.
    messenger
        What carries words, at least.
    """

    def __init__(self, members: list[Member], rank: int, messenger: Messenger[V]) -> None:
        self.rank, self.size = rank, len(members)
        self.messenger = messenger
        self._members = members
        self._sequence = 0
        self._met = [0] * self.size  # operations with each of the others
        self._failure: OperationFailure | None = None

    @abstractmethod
    def channel(self, flat: B) -> MessageChannel:
        """What carries such values."""

    @abstractmethod
    def values(self, flat: B) -> V:
        """What the arithmetic takes."""

    @abstractmethod
    def arithmetic(self, flat: B, op: str) -> Arithmetic[V]:
        """The arithmetic of the interpreter."""

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> Script:
        """Steps of this rank; messages stay whole."""
        del segment_elements
        return read_script(schedule, start, self.rank)

    def prepare_exchange(self, exchanges: Sequence[PeerExchange], segment_elements: int) -> Script:
        """One step with all sends and receives; messages stay whole."""
        del segment_elements
        sends, arrivals = [], []
        for peer, sent, received, here, _ in exchanges:
            if sent:
                pieces = (Piece(Region.BUFFER, here, here + sent),)
                sends.append(Message(peer, sent, False, pieces, ()))
            if received:
                pieces = (Piece(Region.OUTPUT, here, here + received),)
                arrivals.append(Message(peer, received, False, (), pieces))
        peers = tuple(exchange.peer for exchange in exchanges)
        codes = {exchange.peer: exchange.code(self.rank) for exchange in exchanges}
        return Script(self.rank, (Step(0, tuple(sends), tuple(arrivals)),), peers, 0, codes)

    def run(self, prepared: Prepared, flat: B, out: B, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        if self._failure is not None:
            self._fail(self._failure, prepared, wait, None)
        self._sequence += 1
        script: Script = prepared.script
        arithmetic, deadline = self.arithmetic(flat, op), time.monotonic() + wait
        scratch = arithmetic.empty(script.scratch_elements)
        memory = [self.values(flat), self.values(out), scratch]
        interpreter = Interpreter(script, memory, self.channel(flat), arithmetic, deadline)
        try:
            self._check_peers(script, prepared.fingerprint, deadline)
            interpreter.run()
        except OperationFailure as failure:
            self._give_up(failure)
            self._fail(failure, prepared, wait, interpreter.step)
        except BaseException:
            self._give_up(OperationFailure(FailureKind.LOST, self.rank))
            raise

    def close(self) -> None:
        """Leave the job, and tell the ranks that wait for this one."""
        if self._failure is None:
            self._give_up(OperationFailure(FailureKind.LOST, self.rank))

    def _check_peers(self, script: Script, mark: int, deadline: float) -> None:
        """Check that all ranks that exchange data are in the same operation, before any data moves."""
        channel = self.messenger
        expected = []
        for peer in script.peers:
            self._met[peer] += 1
            expected.append((peer, (self._met[peer], mark ^ script.between.get(peer, 0))))
        received = [channel.write((0, 0)) for _ in expected]
        moves = [Move(peer, channel.write(words), sends=True) for peer, words in expected]
        moves += [Move(peer, room, sends=False) for (peer, _), room in zip(expected, received, strict=True)]
        for handle in channel.start(moves):
            channel.wait(handle, deadline)
        for (peer, words), room in zip(expected, received, strict=True):
            if channel.read(room) != words:
                raise OperationFailure(FailureKind.DIFFERS, peer)

    def _give_up(self, failure: OperationFailure) -> None:
        self._failure = failure
        self.messenger.tell(failure)

    def _fail(self, failure: OperationFailure, prepared: Prepared, wait: float, step: int | None) -> NoReturn:
        what = f"{prepared.record.name} #{self._sequence} ({prepared.record.algorithm})"
        if failure.kind == FailureKind.LATE:
            raise TimedOut(what, wait, [failure.rank]) from failure
        if failure.kind == FailureKind.DIFFERS:
            raise DesyncError(failure.rank, what) from failure
        if not 0 <= failure.rank < self.size:
            msg = f"{what}: a rank was lost, and nobody knows which"
            raise RuntimeFailure(msg) from failure
        member = self._members[failure.rank]
        raise PeerLost(member.rank, member.host, member.pid, what, step) from failure


def heard(words: tuple[int, int], teller: int, me: int) -> OperationFailure:
    """The failure that a rank reported when it gave up; if it names this rank, the reporting rank is lost."""
    kind, rank = FailureKind(words[0]), words[1]
    return OperationFailure(
        FailureKind.LOST if kind == FailureKind.LATE else kind, teller if rank == me else rank
    )


def encode_member(rank: int) -> NDArray[np.uint8]:
    """Encode the member that this process is, in as many bytes on every rank."""
    record = msgspec.msgpack.encode(Member.here(rank))
    return np.frombuffer(len(record).to_bytes(2) + record.ljust(MEMBER_BYTES - 2, b"\0"), np.uint8).copy()


def decode_member(record: bytes) -> Member:
    """Decode the member that another process is."""
    return msgspec.msgpack.decode(record[2 : 2 + int.from_bytes(record[:2])], type=Member)
