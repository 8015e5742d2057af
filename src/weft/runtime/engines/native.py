"""Weft's own runtime: shared memory within a machine, sockets between machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from msgspec.structs import replace

from weft import _core, limits
from weft.errors import DesyncError, InputError, LinkLost, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.arena import Arena
from weft.runtime.buffers import Flat, flatten
from weft.runtime.engines import group_by_host
from weft.runtime.lanes import IN_TURN
from weft.runtime.recovery import Recovery, agree
from weft.runtime.wiring import Wires, branch, connect, reconnect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from weft.runtime.engines import Dealing, Prepared
    from weft.runtime.roster import Member, Roster
    from weft.schedule import Schedule
    from weft.topology import Topology

_LARGE: Final = 64 << 10
"""Bytes from which a system call per piece is cheaper than copying twice."""


class NativeEngine:
    """Runs scripts in C++.

    Parameters
    ----------
    wires
        What connects this rank to the others.
    members
        Who they are, by rank.
    arena
        Of the memory that the ranks of this machine share.
    roster
        To be left at the end; not for some of the ranks.
    """

    def __init__(
        self, wires: Wires, members: Sequence[Member], rank: int, arena: Arena, roster: Roster | None = None
    ) -> None:
        self.rank, self.size = rank, len(members)
        self._wires, self._members, self._arena, self._roster = wires, members, arena, roster
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._done_before = 0

    @staticmethod
    def connect(
        roster: Roster,
        *,
        transport: str = "auto",
        streams: int = 2,
        arena_bytes: int = limits.DEFAULT_ARENA_BYTES,
        timeout: float = 60.0,
        topology: Topology | None = None,
    ) -> NativeEngine:
        """Connect all ranks of a job.

        Parameters
        ----------
        transport
            As for `weft.init`.
        streams
            Sockets between two ranks that are not reached through memory.
        arena_bytes
            Room for `empty`; only what is used takes memory.
        timeout
            Seconds for connecting.
        topology
            May name the addresses to connect.
        """
        wires = connect(
            roster,
            transport=transport,
            streams=streams,
            arena_bytes=arena_bytes,
            timeout=timeout,
            topology=topology,
        )
        return NativeEngine(wires, roster.members, roster.rank, Arena(wires.host), roster)

    @property
    def roster(self) -> Roster | None:
        """By which all ranks of the job meet; None for some of them."""
        return self._roster

    @property
    def hosts(self) -> list[list[int]]:
        """Ranks of each host."""
        return group_by_host(self._members)

    def flatten(self, array: Any, *, writable: bool) -> Flat:
        """Take an array, or anything with DLPack or the buffer protocol."""
        return flatten(array, writable=writable)

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array in memory that the ranks of this machine share."""
        return self._arena.empty(elements, dtype)

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> _core.Script:
        """Tasks of this rank, and what waits for what."""
        return _core.write_script(
            schedule.table,
            schedule.ranks,
            schedule.slots,
            start,
            schedule.collective == "all_to_all",
            segment_elements,
            self.rank,
            limits.MAX_SEGMENTS,
            self._lanes,
            self._lane_of(self._wires.lanes.out),
            self._lane_of(self._wires.lanes.into),
            self._wires.lanes.of_routes(schedule),
        )

    def prepare_exchange(self, dealings: Sequence[Dealing], segment_elements: int) -> _core.Script:
        """Tasks of this rank; nothing waits for anything."""

        def count(elements: int | None) -> int:
            return -1 if elements is None else elements

        counted = [
            (dealing.peer, count(dealing.sends), count(dealing.receives), dealing.code(self.rank))
            for dealing in dealings
        ]
        return _core.write_exchange(counted, segment_elements, self._lanes)

    def split(
        self, members: Sequence[int], tell: Callable[[bytes], list[bytes]], timeout: float
    ) -> NativeEngine | None:
        """Engine of some of the ranks, over the same shared memory."""
        wires = branch(self._wires, self.rank, members, tell, timeout)
        if wires is None:
            return None
        named = [replace(self._members[rank], rank=new) for new, rank in enumerate(members)]
        return NativeEngine(wires, named, members.index(self.rank), self._arena)

    def run(self, prepared: Prepared, flat: Flat, out: Flat, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        script: _core.Script = prepared.script
        needed = (script.scratch_elements + script.stage_elements) * flat.itemsize
        if self._scratch.nbytes < needed:
            self._scratch = self._arena.empty(needed, np.dtype(np.uint8))
        ending = self._wires.executor.run(
            script,
            prepared.fingerprint,
            flat.bytes,
            out.bytes,
            self._scratch,
            flat.nbytes > _LARGE,
            flat.dtype,
            op,
            max(1, int(wait * 1000)),
        )
        if ending.status != _core.Status.done:
            self._fail(ending, prepared, wait)

    def shortcut(self, prepared: Prepared, flat: Flat, op: str) -> Callable[[Any, float], bool]:
        """The same operation in place on other arrays, without looking at them in Python."""
        again = _core.Again(
            self._wires.executor,
            prepared.script,
            prepared.fingerprint,
            self._scratch,
            flat.nbytes,
            flat.nbytes > _LARGE,
            flat.dtype,
            op,
        ).run

        def run(array: Any, wait: float) -> bool:
            done = again(array, int(wait * 1000) or 1)
            if done is True:
                return True
            if isinstance(done, _core.Ending):
                self._fail(done, prepared, wait)
            return False

        return run

    @property
    def _lanes(self) -> NDArray[np.int32]:
        sockets = self._wires.sockets
        return np.array([len(sockets.get(rank, (None,))) for rank in range(self.size)], np.int32)

    def _lane_of(self, known: dict[int, int]) -> NDArray[np.int32]:
        return np.array([known.get(rank, IN_TURN) for rank in range(self.size)], np.int32)

    def recover(self, topology: Topology | None, failed: bool, timeout: float) -> Recovery:
        """Connect all ranks anew, without what was cut.

        Parameters
        ----------
        topology
            Says which addresses use which cable.
        failed
            Whether the latest operation failed here.
        timeout
            Seconds.

        Raises
        ------
        InputError
            If this engine serves only some of the ranks.
        PeerLost, TimedOut
            If a rank is gone or does not come.
        DisconnectedError
            If what is left does not hang together.
        """
        if self._roster is None:
            msg = "only the communicator of all ranks can be repaired; split it again afterwards"
            raise InputError(msg)
        mine = self._done_before + self._wires.executor.sequence - failed
        found = agree(self._roster, self._wires.host.cut, mine, topology, timeout)
        self._wires.host.mend()
        self._wires = reconnect(self._wires, self._roster, found.topology, timeout)
        self._done_before = found.completed
        return found

    def close(self) -> None:
        """Leave; the others see that this rank left on purpose."""
        self._wires.close()
        if self._roster is not None:
            self._roster.close()

    def _fail(self, ending: _core.Ending, prepared: Prepared, wait: float) -> NoReturn:
        what = f"{prepared.record.collective} #{self._wires.executor.sequence} ({prepared.record.algorithm})"
        status = ending.status
        if status == _core.Status.timed_out:
            raise TimedOut(what, wait, [ending.waited_for])
        if status == _core.Status.differs:
            raise DesyncError(ending.rank, what)
        if status == _core.Status.cut:
            raise LinkLost((ending.rank, ending.waited_for), what)
        if status == _core.Status.given_up:
            msg = f"{what}: rank {ending.rank} gave up waiting for this rank, {self.rank}"
            raise RuntimeFailure(msg)
        schedule = prepared.schedule
        step = int(schedule.step[ending.row]) if schedule is not None and ending.row >= 0 else None
        member = self._members[ending.rank] if ending.rank >= 0 else None
        if member is None:
            msg = f"{what}: a rank was lost, and nobody knows which"
            raise RuntimeFailure(msg)
        raise PeerLost(member.rank, member.host, member.pid, what, step)
