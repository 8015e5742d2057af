"""The base of the engines that pass messages: the interpreter does the work, a channel carries it.

Ranks that will talk to each other first exchange the fingerprint of what they are in. Nothing waits without
end: whatever takes too long, breaks or differs ends as a `OperationFailure`, is told to the others as far as
they can still be reached, and becomes one of Weft's errors.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from weft.collective_names import REDUCING
from weft.errors import DesyncError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.members import peer_lost
from weft.runtime.engines import B, Engine, PeerExchange, Prepared
from weft.runtime.engines.interpreter import Interpreter, MessageChannel, Move, read_exchanges, read_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from weft.runtime.bootstrap.members import Member
    from weft.runtime.engines.interpreter import Script
    from weft.schedule import Schedule

FAREWELL_S: Final = 0.1
"""How long a rank that gives up tries to tell the others."""


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


class Messenger(MessageChannel, Protocol):
    """A channel between processes."""

    def write(self, words: tuple[int, int]) -> Any:
        """Two numbers as something to send."""

    def read(self, values: Any) -> tuple[int, int]:
        """The two numbers that came."""

    def tell(self, failure: OperationFailure) -> None:
        """Let the others know, as far as they can be reached within a moment; nothing works afterwards."""


class MessagingEngine(Engine[B]):
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

    def __init__(self, members: list[Member], rank: int, messenger: Messenger) -> None:
        self.rank, self.size = rank, len(members)
        self.messenger = messenger
        self.members = members
        self._sequence = 0
        self._met = [0] * self.size  # operations with each of the others
        self._failure: OperationFailure | None = None

    @abstractmethod
    def channel(self, flat: B) -> MessageChannel:
        """What carries such values."""

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> Script:
        """Steps of this rank; messages stay whole."""
        del segment_elements
        return read_script(schedule, start, self.rank)

    def prepare_exchange(self, exchanges: Sequence[PeerExchange], segment_elements: int) -> Script:
        """One step with all sends and receives; messages stay whole."""
        del segment_elements
        return read_exchanges(exchanges, self.rank)

    def run(self, prepared: Prepared, flat: B, out: B, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        if self._failure is not None:
            self._fail(self._failure, prepared, wait, None)
        self._sequence += 1
        script: Script = prepared.script
        deadline = time.monotonic() + wait
        if prepared.record.collective in REDUCING:  # the interpreter works in place
            out.fill(flat)
            flat = out
        memory = [flat, out, flat.empty(script.scratch_elements)]
        interpreter = Interpreter(script, memory, self.channel(flat), op, deadline)
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
            raise RuntimeFailure(f"{what}: a rank was lost, and nobody knows which") from failure
        raise peer_lost(self.members[failure.rank], what, step=step) from failure


def heard(words: tuple[int, int], teller: int, me: int) -> OperationFailure:
    """The failure that a rank reported when it gave up; if it names this rank, the reporting rank is lost."""
    kind, rank = FailureKind(words[0]), words[1]
    return OperationFailure(
        FailureKind.LOST if kind == FailureKind.LATE else kind, teller if rank == me else rank
    )
