"""The engines that move data between ranks: Weft's own runtime, MPI, or a process group of torch.

`Communicator` knows what a collective is; an `Engine` knows how arrays lie in memory and how they reach other
ranks.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np

from weft.errors import RuntimeFailure
from weft.runtime.buffers import Buffer
from weft.runtime.extension import _runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.recovery import Recovery, Survivors
    from weft.schedule import Schedule
    from weft.topology import Topology

KEPT_OPERATIONS: Final = 1024
"""Operations that the flight recorder has of each communicator."""

_LONGEST_NAME: Final = 40


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an operation: which algorithm ran, on how many bytes."""

    collective: str
    algorithm: str
    digest: str
    size_bytes: int
    segment_bytes: int
    kind: str = ""
    """The caller's name for the operation, if it is more than the collective."""

    @property
    def name(self) -> str:
        """The caller's name for it: a barrier runs as an all-reduce."""
        return self.kind.partition(" ")[0][:_LONGEST_NAME] or self.collective


@dataclass(frozen=True, slots=True)
class Prepared:
    """A schedule made ready for one size and type.

    Parameters
    ----------
    schedule
        None where a few ranks only pass something on.
    script
        What the engine made of the schedule.
    fingerprint
        Equal on two ranks if they are in the same operation.
    share
        Of a reduce-scatter: the first of this rank's elements, and the end.
    share_only
        Whether the output of this reduce-scatter needs room for the share alone, and not for partial sums.
    details
        What the fingerprint is made of beside collective and size, in words, separated by commas.
    """

    schedule: Schedule | None
    script: Any
    record: Record
    fingerprint: int
    share: tuple[int, int] = (0, 0)
    share_only: bool = False
    details: str = ""


@dataclass(frozen=True, slots=True)
class AwaitedPeer:
    """The peer that an operation waits for.

    Parameters
    ----------
    member
        The peer.
    seconds
        Since the operation began on this rank.
    silent_s
        Seconds for which nothing was heard of the peer; 0 while its heartbeats come.
    step
        Step of the schedule that is waited for.
    """

    member: Member
    seconds: float
    silent_s: float = 0.0
    step: int | None = None

    def __str__(self) -> str:
        at = "" if self.step is None else f", in step {self.step}"
        state = f"has been silent for {self.silent_s:.1f} s" if self.silent_s else "is alive, but slow"
        return f"waits {self.seconds:.1f} s for {self.member}{at}; that rank {state}"


class PeerExchange(NamedTuple):
    """A point-to-point exchange with one peer: elements to send and to receive.

    None means that this direction is not used.
    """

    peer: int
    sends: int | None
    receives: int | None
    here: int = 0
    """First of these elements in this rank's array."""
    there: int = 0
    """First of them in the peer's."""

    def code(self, rank: int) -> int:
        """Number that both ends of an exchange have in common.

        It covers how many elements go each way and where they lie at their sender, which both ends know. Only
        the receiver knows where they go.
        """
        sent = None if self.sends is None else (self.sends, self.here)
        received = None if self.receives is None else (self.receives, self.there)
        up_and_down = (sent, received) if rank < self.peer else (received, sent)
        return int.from_bytes(hashlib.sha256(repr(up_and_down).encode()).digest()[:8])


B = TypeVar("B", bound=Buffer)


def group_by_host(members: Sequence[Member]) -> list[list[int]]:
    """Ranks of each host, hosts in the order of their first ranks."""
    found: dict[str, list[int]] = {}
    for rank, member in enumerate(members):
        found.setdefault(member.boot_id, []).append(rank)
    return list(found.values())


class Engine(ABC, Generic[B]):
    """Moves and combines arrays among the ranks of a job; used by one thread at a time."""

    rank: int
    size: int
    control_plane: ControlPlane | None = None
    """Of all ranks of the job; None where they meet by other means, and for some of the ranks."""
    done_before: int = 0
    """Operations that all ranks had completed before they were connected as they are now."""
    members: Sequence[Member]

    @cached_property
    def operations(self) -> _runtime.OperationRing:
        """The latest operations, of which the last may be under way."""
        ring = _runtime.OperationRing(KEPT_OPERATIONS)
        ring.resume(self.done_before)
        return ring

    @property
    def identity(self) -> str:
        """What all ranks of this communicator know it by, and no other communicator has; empty if nothing."""
        return ""

    @property
    def pids(self) -> list[int]:
        """Process of each rank."""
        return [member.pid for member in self.members]

    @property
    def hosts(self) -> list[list[int]]:
        """Ranks of each host, hosts in the order of their first ranks."""
        return group_by_host(self.members)

    @property
    def job_ranks(self) -> Sequence[int]:
        """Number in the job of each rank, as the launcher gave it."""
        given = [member.rank if member.job_rank is None else member.job_rank for member in self.members]
        # Processes that a rank has started all have its number; then only those among each other are left.
        return given if len(set(given)) == len(given) else [member.rank for member in self.members]

    @property
    def waiting(self) -> AwaitedPeer | None:
        """The peer that the running operation waits for; None where there is none, or it is not known."""
        return None

    @abstractmethod
    def flatten(self, array: Any, *, writable: bool) -> B:
        """Take an array, without copying where possible; TypeError if that cannot be."""

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Flat array where this engine works best; by default in ordinary memory."""
        return np.empty(elements, dtype)

    @abstractmethod
    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> Any:
        """Make of a schedule what `run` needs."""

    @property
    def over_sockets(self) -> bool:
        """Whether ranks are reached through a network; the same on all ranks."""
        return True

    def writes_shares_only(self, schedule: Schedule) -> bool:
        """Whether this engine needs no room for partial sums in the output of a reduce-scatter."""
        del schedule
        return False

    @abstractmethod
    def prepare_exchange(self, exchanges: Sequence[PeerExchange], segment_elements: int) -> Any:
        """Make of exchanges with single ranks what `run` needs."""

    @abstractmethod
    def run(self, prepared: Prepared, flat: B, out: B, op: str, wait: float) -> None:
        """Run one operation, within so many seconds.

        Raises
        ------
        PeerLost, TimedOut, DesyncError
            If it cannot be done; every later one then fails alike.
        """

    def repeatable(self, prepared: Prepared, flat: B, op: str) -> _runtime.RepeatedOperation | None:  # noqa: ARG002
        """The same operation in place, for arrays of its size and type; None if only `run` can do it."""
        return None

    def fail_repeated(self, ending: _runtime.OperationResult, wait: float) -> NoReturn:
        """Raise the failure of the latest operation, which was repeated."""
        raise NotImplementedError

    @abstractmethod
    def split(
        self, members: Sequence[int], exchange: Callable[[bytes], list[bytes]], timeout: float
    ) -> Engine[B] | None:
        """Engine of some of the ranks, in this order; every rank calls this, with none if it stays outside.

        Parameters
        ----------
        exchange
            Gives every rank the bytes of all ranks.
        """

    def recover(self, topology: Topology | None, failed: bool, timeout: float) -> Recovery:  # noqa: ARG002
        """Connect all ranks anew after a link was lost, and agree on what all have completed.

        Raises
        ------
        RuntimeFailure
            If the connections are not Weft's own.
        """
        raise RuntimeFailure("only Weft's own engine can be repaired; start the job again")

    def shrink(
        self,
        lost_rank: int | None,  # noqa: ARG002
        failed: bool,  # noqa: ARG002
        topology: Topology | None,  # noqa: ARG002
        minimum: int | None,  # noqa: ARG002
        timeout: float,  # noqa: ARG002
    ) -> tuple[Engine[B], Survivors]:
        """Connect the survivors of lost ranks anew.

        Raises
        ------
        RuntimeFailure
            If the connections are not Weft's own.
        """
        msg = "only Weft's own engine goes on without a rank; start the job again ('weft run --restarts')"
        raise RuntimeFailure(msg)

    def cancel(self) -> None:
        """Have the running operation fail, from any thread; no other can follow.

        Raises
        ------
        RuntimeFailure
            If the messages are not Weft's own.
        """
        msg = "only Weft's own engine can abort an operation; close() waits until it ends by its deadline"
        raise RuntimeFailure(msg)

    def leave(self) -> None:
        """Let the other ranks know that this one takes part in no further operation, if that can be told."""

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""
