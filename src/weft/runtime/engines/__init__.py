"""Who moves what a collective has to move.

`Communicator` knows what a collective is; an `Engine` knows how arrays lie in memory and how they reach other
ranks: Weft's own runtime (`native`), or something people already operate.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.recovery import Recovery, Survivors
    from weft.schedule import Schedule
    from weft.topology import Topology

_LONGEST_NAME: Final = 40


@dataclass(frozen=True, slots=True)
class Record:
    """What ran: for people, logs and tests."""

    collective: str
    algorithm: str
    digest: str
    size_bytes: int
    segment_bytes: int
    kind: str = ""
    """What the caller says it is, if that is more than the collective."""

    @property
    def name(self) -> str:
        """What the caller would call it: a barrier is an all-reduce, but nobody has called one."""
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
    start
        First element of each chunk, and the end.
    share
        Of a reduce-scatter: the first of this rank's elements, and the end.
    """

    schedule: Schedule | None
    script: Any
    record: Record
    fingerprint: int
    start: NDArray[np.int64]
    share: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class AwaitedPeer:
    """The peer that an operation waits for.

    Parameters
    ----------
    rank, host, pid
        Who it is.
    seconds
        Since the operation began on this rank.
    silent_s
        Seconds for which nothing was heard of the peer; 0 while its heartbeats come.
    step
        Step of the schedule that is waited for.
    """

    rank: int
    host: str
    pid: int
    seconds: float
    silent_s: float = 0.0
    step: int | None = None

    def __str__(self) -> str:
        at = "" if self.step is None else f", in step {self.step}"
        who = f"rank {self.rank} (host {self.host}, pid {self.pid})"
        state = f"has been silent for {self.silent_s:.1f} s" if self.silent_s else "is alive, but slow"
        return f"waits {self.seconds:.1f} s for {who}{at}; that rank {state}"


class PeerExchange(NamedTuple):
    """How many elements go to a peer, out of one array, and come from it, into another; None: none do."""

    peer: int
    sends: int | None
    receives: int | None
    here: int = 0
    """First of these elements in this rank's array."""
    there: int = 0
    """First of them in the peer's."""

    def code(self, rank: int) -> int:
        """Number that both ends of a dealing have in common."""
        up, down = (self.sends, self.receives) if rank < self.peer else (self.receives, self.sends)
        counts = (0 if count is None else count + 1 for count in (up, down))
        return int.from_bytes(hashlib.sha256(repr(tuple(counts)).encode()).digest()[:8])


class Buffer(Protocol):
    """A user's array as an engine takes it: flat, contiguous, of a known type."""

    array: Any
    dtype: str
    copied: bool

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        ...

    @property
    def elements(self) -> int:
        """Elements in all."""
        ...

    def copy(self) -> Self:
        """A copy that may be overwritten."""
        ...

    def empty(self, times: int) -> Self:
        """Room for so many arrays like this one."""
        ...

    def part(self, first: int, last: int) -> Self:
        """Some of the elements, in the same memory."""
        ...

    def fill(self, other: Self) -> None:
        """Take over the elements of another, of the same size."""
        ...

    def overlaps(self, other: Self) -> bool:
        """Whether they share memory."""
        ...

    def is_at(self, other: Self) -> bool:
        """Whether they are the same memory."""
        ...

    def divide(self, by: int) -> None:
        """Divide every element."""
        ...

    def give_back(self) -> Any:
        """The user's array, with what was computed in it."""
        ...

    def take(self) -> Any:
        """The elements as a flat array, for the user to keep."""
        ...


B = TypeVar("B", bound=Buffer)


def group_by_host(members: Sequence[Member]) -> list[list[int]]:
    """Ranks of each host, hosts in the order of their first ranks."""
    found: dict[str, list[int]] = {}
    for rank, member in enumerate(members):
        found.setdefault(member.boot_id, []).append(rank)
    return list(found.values())


class Engine(Protocol[B]):
    """Moves and combines arrays among the ranks of a job; used by one thread at a time."""

    rank: int
    size: int
    control_plane: ControlPlane | None
    """Of all ranks of the job; None where they meet by other means, and for some of the ranks."""

    @property
    def hosts(self) -> list[list[int]]:
        """Ranks of each host, hosts in the order of their first ranks."""
        ...

    @property
    def job_ranks(self) -> Sequence[int]:
        """Number in the job of each rank."""
        ...

    @property
    def waiting(self) -> AwaitedPeer | None:
        """The peer that the operation under way waits for; None where there is none, or it is not known."""
        ...

    def flatten(self, array: Any, *, writable: bool) -> B:
        """Take an array, without copying where possible; TypeError if that cannot be."""
        ...

    def empty(self, elements: int, dtype: np.dtype[Any]) -> Any:
        """Flat array where this engine works best."""
        ...

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> Any:
        """Make of a schedule what `run` needs."""
        ...

    def prepare_exchange(self, dealings: Sequence[PeerExchange], segment_elements: int) -> Any:
        """Make of dealings with single ranks what `run` needs."""
        ...

    def run(self, prepared: Prepared, flat: B, out: B, op: str, wait: float) -> None:
        """Run one operation, within so many seconds.

        Raises
        ------
        PeerLost, TimedOut, DesyncError
            If it cannot be done; every later one then fails alike.
        """
        ...

    def shortcut(self, prepared: Prepared, flat: B, op: str) -> Callable[[Any, float], bool] | None:
        """The same operation in place on other arrays of the same size and type, within so many seconds.

        False if an array cannot be worked on as it lies; nothing has happened then. None if there is no
        shorter way than `run`.
        """
        ...

    def split(
        self, members: Sequence[int], exchange: Callable[[bytes], list[bytes]], timeout: float
    ) -> Engine[B] | None:
        """Engine of some of the ranks, in this order; every rank calls this, with none if it stays outside.

        Parameters
        ----------
        exchange
            Gives every rank the bytes of all ranks.
        """
        ...

    def recover(self, topology: Topology | None, failed: bool, timeout: float) -> Recovery:
        """Connect all ranks anew after a link was lost; learn what is left, and what all have completed."""

    def shrink(
        self,
        culprit: int | None,
        failed: bool,
        topology: Topology | None,
        minimum: int | None,
        timeout: float,
    ) -> tuple[Engine[B], Survivors]:
        """Connect the survivors of lost ranks anew."""
        ...

    def cancel(self) -> None:
        """Have the operation under way fail, from any thread; no other can follow."""
        ...

    def close(self) -> None:
        """Leave."""
        ...
