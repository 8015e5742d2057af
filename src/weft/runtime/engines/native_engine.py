"""Weft's own runtime: shared memory within a machine, sockets between machines."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from msgspec.structs import replace

from weft import _core, limits
from weft.errors import (
    DesyncError,
    InputError,
    LimitError,
    LinkCorrupted,
    LinkLost,
    PeerLost,
    RuntimeFailure,
    TimedOut,
)
from weft.runtime.bootstrap.regroup import Regroup
from weft.runtime.buffers import Flat, flatten
from weft.runtime.engines import AwaitedPeer, group_by_host
from weft.runtime.recovery import Recovery, Survivors, agree, without_ranks
from weft.runtime.transport.arena_allocator import ArenaAllocator
from weft.runtime.transport.connect import (
    Transport,
    branch,
    connect,
    reconnect,
)
from weft.runtime.transport.link_connections import IN_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.engines import PeerExchange, Prepared
    from weft.schedule import Schedule
    from weft.topology import Topology

_log: Final = logging.getLogger("weft.runtime")

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
        self,
        wires: Transport,
        members: Sequence[Member],
        rank: int,
        arena: ArenaAllocator,
        roster: ControlPlane | None = None,
    ) -> None:
        self.rank, self.size = rank, len(members)
        self._wires, self._members, self._arena, self._roster = wires, members, arena, roster
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._done_before = 0
        self._now: Prepared | None = None
        self._watch()

    @staticmethod
    def connect(
        roster: ControlPlane,
        *,
        transport: str = "auto",
        streams: int = 2,
        arena_bytes: int | None = None,
        timeout: float = 60.0,
        checksums: bool | None = None,
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
            Room for `empty`, by default what ``WEFT_ARENA`` says or the address space has room for.
        timeout
            Seconds for connecting.
        checksums
            As for `weft.init`.
        topology
            May name the addresses to connect.
        """
        try:
            wires = connect(
                roster,
                transport=transport,
                streams=streams,
                arena_bytes=arena_bytes,
                timeout=timeout,
                checksums=wants_checksums(checksums),
                topology=topology,
            )
        except RuntimeFailure as failure:
            roster.reporter.tell(failure)
            raise
        return NativeEngine(wires, roster.members, roster.rank, ArenaAllocator(wires.host), roster)

    @property
    def roster(self) -> ControlPlane | None:
        """By which all ranks of the job meet; None for some of them."""
        return self._roster

    @property
    def hosts(self) -> list[list[int]]:
        """Ranks of each host."""
        return group_by_host(self._members)

    @property
    def job_ranks(self) -> list[int]:
        """Number in the job of each rank."""
        return self._wires.job

    def flatten(self, array: Any, *, writable: bool) -> Flat:
        """Take an array, or anything with DLPack or the buffer protocol."""
        return flatten(array, writable=writable)

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array in memory that the ranks of this machine share."""
        return self._arena.empty(elements, dtype)

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> _core.Script:
        """Tasks of this rank, and what waits for what."""
        try:
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
        except _core.TooMany as error:
            msg = f"more than {limits.MAX_SEGMENTS:,} {error}; cut it into larger segments"
            raise LimitError(f"{schedule.collective} ({schedule.algorithm}): {msg}") from error

    def prepare_exchange(self, dealings: Sequence[PeerExchange], segment_elements: int) -> _core.Script:
        """Tasks of this rank; nothing waits for anything."""

        def count(elements: int | None) -> int:
            return -1 if elements is None else elements

        counted = [
            (
                dealing.peer,
                count(dealing.sends),
                count(dealing.receives),
                dealing.here,
                dealing.there,
                dealing.code(self.rank),
            )
            for dealing in dealings
        ]
        return _core.write_exchange(counted, segment_elements, self._lanes)

    def split(
        self, members: Sequence[int], tell: Callable[[bytes], list[bytes]], timeout: float
    ) -> NativeEngine | None:
        """Engine of some of the ranks, over the same shared memory."""
        wires = branch(
            self._wires, self.rank, members, tell, timeout, check=lambda: self._check_losses(members)
        )
        if wires is None:
            return None
        named = [replace(self._members[rank], rank=new) for new, rank in enumerate(members)]
        return NativeEngine(wires, named, members.index(self.rank), self._arena)

    def run(self, prepared: Prepared, flat: Flat, out: Flat, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        self._now = prepared
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
            self._now = prepared
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
        self._watch()
        self._done_before = found.completed
        return found

    def cancel(self) -> None:
        """End the operation under way, from any thread; no other can follow."""
        self._wires.executor.cancel()

    def shrink(
        self,
        culprit: int | None,
        failed: bool,
        topology: Topology | None,
        minimum: int | None,
        timeout: float,
    ) -> tuple[NativeEngine, Survivors]:
        """Meet the survivors of lost ranks, and connect them anew; this engine is closed then.

        Parameters
        ----------
        culprit
            A rank that this one has lost, if it is known.
        failed
            Whether the latest operation failed here.
        topology
            What connections were made for; the same on all ranks.
        minimum
            How many survivors there must be at least.
        timeout
            Seconds for all survivors to come, and again for connecting them.

        Raises
        ------
        InputError
            If this engine serves only some of the ranks.
        RuntimeFailure, TimedOut, PeerLost
            If the survivors cannot go on.
        """
        roster, reunion = self._roster, self._wires.reunion
        if roster is None or reunion is None:
            msg = "only the communicator of all ranks can shrink; split what it returns"
            raise InputError(msg)
        host = self._wires.host

        def losses() -> dict[int, bool]:
            found = dict(host.losses())
            if culprit is not None:
                found.setdefault(culprit, True)
            return found

        completed = self._done_before + self._wires.executor.sequence - failed
        met = Regroup(self.rank, self._members, reunion, losses, completed, timeout, minimum).run()
        met.roster.reporter = roster.reporter.among(met.before)
        left = without_ranks(topology, self.hosts, met.before)
        wires, self._roster = self._wires, None
        try:
            engine = NativeEngine.connect(
                met.roster,
                transport=wires.transport,
                streams=wires.streams,
                arena_bytes=wires.arena_bytes,
                timeout=timeout,
                checksums=wires.checksums,
                topology=left,
            )
        except BaseException:
            met.roster.close()
            raise
        finally:
            wires.close()
            roster.close()
        engine._done_before = met.completed
        return engine, Survivors(met.before, completed - met.completed, left)

    def close(self) -> None:
        """Leave; the others see that this rank left on purpose."""
        self._wires.close()
        if self._roster is not None:
            self._roster.close()

    @property
    def waiting(self) -> AwaitedPeer | None:
        """The peer that the operation under way waits for; None where there is none."""
        found = self._wires.executor.waiting
        return self._explain(found) if found.rank >= 0 else None

    def _watch(self) -> None:
        """Have slow and silent ranks named while operations wait for them."""
        # The executor keeps what it calls: a bound method would keep this engine alive for ever.
        method = weakref.WeakMethod(self._tell_wait)

        def tell(found: _core.Waiting) -> None:
            if (bound := method()) is not None:
                bound(found)

        self._wires.executor.on_wait(tell)

    def _tell_wait(self, found: _core.Waiting) -> None:
        waiting, prepared = self._explain(found), self._now
        what = "an operation" if prepared is None else self._name(prepared)
        _log.warning("rank %d: %s %s", self.rank, what, waiting)

    def _explain(self, found: _core.Waiting) -> AwaitedPeer:
        member, prepared = self._members[found.rank], self._now
        step = None if prepared is None else _step(prepared, found.row)
        return AwaitedPeer(found.rank, member.host, member.pid, found.seconds, found.silent_ms / 1000, step)

    def _check_losses(self, ranks: Sequence[int]) -> None:
        """Raise if the watch has found that one of these ranks is lost."""
        lost = {rank for rank, _ in self._wires.host.losses()}
        for rank in ranks:
            if self._wires.job[rank] in lost:
                member = self._members[rank]
                raise PeerLost(member.rank, member.host, member.pid, "split")

    def _name(self, prepared: Prepared) -> str:
        number = self._done_before + self._wires.executor.sequence
        return f"{prepared.record.name} #{number} ({prepared.record.algorithm})"

    def _fail(self, ending: _core.Ending, prepared: Prepared, wait: float) -> NoReturn:
        what = self._name(prepared)
        status = ending.status
        if status == _core.Status.timed_out:
            raise TimedOut(what, wait, [ending.waited_for])
        if status == _core.Status.differs:
            raise DesyncError(ending.rank, what, prepared.fingerprint)
        if status in (_core.Status.cut, _core.Status.corrupt):
            kind = LinkCorrupted if status == _core.Status.corrupt else LinkLost
            raise kind((ending.rank, ending.waited_for), what)
        if status == _core.Status.given_up:
            msg = f"{what}: rank {ending.rank} gave up waiting for this rank, {self.rank}"
            raise RuntimeFailure(msg)
        if status == _core.Status.interrupted and ending.rank == self.rank:
            msg = f"{what}: this rank was interrupted or has aborted, so the others have given it up"
            raise RuntimeFailure(f"{msg}; close this communicator and start the job again")
        member = self._members[ending.rank] if ending.rank >= 0 else None
        if member is None:
            msg = f"{what}: a rank was lost, and nobody knows which"
            raise RuntimeFailure(msg)
        left = "it has closed its communicator" if status == _core.Status.left else None
        raise PeerLost(member.rank, member.host, member.pid, what, _step(prepared, ending.row), left)


def wants_checksums(said: bool | None) -> bool:
    """Whether data that crosses a network is checked: as the caller or ``WEFT_CHECKSUMS`` says, else yes.

    Raises
    ------
    InputError
        If the variable is neither 0 nor 1.
    """
    if said is not None:
        return said
    text = os.environ.get("WEFT_CHECKSUMS", "1")
    if text not in ("0", "1"):
        msg = f"WEFT_CHECKSUMS: {text[:40]!r}: expected 0 or 1"
        raise InputError(msg)
    return text == "1"


def _step(prepared: Prepared, row: int) -> int | None:
    """Step of a transfer in the schedule that runs."""
    return int(prepared.schedule.step[row]) if prepared.schedule is not None and row >= 0 else None
