"""Weft's own runtime: shared memory within a machine, sockets between machines.

The C++ half is ``cpp/runtime/executor.cpp``; ``cpp/runtime/operation_run.cpp`` carries out the scripts of
``cpp/runtime/script.cpp``.
"""

from __future__ import annotations

import logging
import threading
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from msgspec.structs import replace

from weft import _core, limits
from weft.collective_names import REDUCING
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
from weft.runtime.bootstrap.members import peer_lost
from weft.runtime.bootstrap.shrink import SurvivorMeeting
from weft.runtime.buffers import Flat, flatten
from weft.runtime.element_ranges import share_of
from weft.runtime.engines import AwaitedPeer, Engine
from weft.runtime.extension import _runtime
from weft.runtime.recovery import Recovery, Survivors, agree, without_ranks
from weft.runtime.transport.arena_allocator import ArenaAllocator
from weft.runtime.transport.connect import connect, connect_part, reconnect
from weft.runtime.transport.link_connections import IN_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.members import Member
    from weft.runtime.bootstrap.shrink import ShrinkKit, SurvivorGroup
    from weft.runtime.engines import PeerExchange, Prepared
    from weft.runtime.transport.rank_transport import Transport, TransportSettings
    from weft.schedule import Schedule
    from weft.topology import Topology

_log: Final = logging.getLogger("weft.runtime")

_CLOCK_S: Final = 0.01
"""More than what the clocks of a wait and of its deadline, of milliseconds, differ by."""

_LOOK_S: Final = 0.1
"""Between two looks at the losses that were found while survivors connect."""

_LARGE: Final = 64 << 10
"""Bytes from which a system call per piece is cheaper than copying twice."""


class NativeEngine(Engine[Flat]):
    """The engine that is Weft's own: it runs scripts in C++.

    Parameters
    ----------
    transport
        The connections of this rank to the others.
    members
        All ranks.
    arena
        Allocates from the memory that the ranks of this machine share.
    control_plane
        Of all ranks of the job, closed with the engine; None for an engine of some of the ranks.
    """

    def __init__(
        self,
        transport: Transport,
        members: Sequence[Member],
        arena: ArenaAllocator,
        control_plane: ControlPlane | None = None,
    ) -> None:
        self.rank, self.size = transport.rank, len(members)
        self.control_plane = control_plane
        self._transport, self.members, self._arena = transport, members, arena
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._watch()

    @staticmethod
    def connect(
        control_plane: ControlPlane,
        settings: TransportSettings,
        *,
        timeout: float = 60.0,
        topology: Topology | None = None,
    ) -> NativeEngine:
        """Connect all ranks of a job; parameters as for `weft.runtime.transport.connect.connect`."""
        transport = connect(control_plane, settings, timeout=timeout, topology=topology)
        return NativeEngine(transport, control_plane.members, ArenaAllocator(transport.host), control_plane)

    @property
    def identity(self) -> str:
        """What all ranks of this communicator know it by, and no other communicator has."""
        return f"{self._transport.identity:016x}"

    def flatten(self, array: Any, *, writable: bool) -> Flat:
        """Take an array, or anything with DLPack or the buffer protocol."""
        return flatten(array, writable=writable)

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array in memory that the ranks of this machine share."""
        return self._arena.empty(elements, dtype)

    def prepare(self, schedule: Schedule, start: NDArray[np.int64], segment_elements: int) -> _runtime.Script:
        """Tasks of this rank, and what waits for what."""
        try:
            return _runtime.write_script(
                table=schedule.table,
                ranks=schedule.ranks,
                slots=schedule.slots,
                start=start,
                pairs=schedule.collective == "all_to_all",
                elsewhere=schedule.collective in REDUCING,
                output_start=_output_starts(schedule, start),
                segment=segment_elements,
                rank=self.rank,
                max_segments=limits.MAX_SEGMENTS,
                connections=self._connection_counts,
                out=self._by_rank(self._transport.link_connections.out),
                in_=self._by_rank(self._transport.link_connections.into),
                of_route=self._transport.link_connections.of_routes(schedule),
                needs_all=_needs_all(schedule, start),
            )
        except _core.TooMany as error:
            msg = f"more than {limits.MAX_SEGMENTS:,} {error}; cut it into larger segments"
            raise LimitError(f"{schedule.collective} ({schedule.algorithm}): {msg}") from error

    @property
    def over_sockets(self) -> bool:
        """Whether ranks are reached through sockets; the same on all ranks."""
        return bool(self._transport.sockets)

    def writes_shares_only(self, schedule: Schedule) -> bool:
        """Whether the output needs room for the rank's own share alone."""
        return _writes_shares_only(schedule)

    def prepare_exchange(self, exchanges: Sequence[PeerExchange], segment_elements: int) -> _runtime.Script:
        """Tasks of this rank; nothing waits for anything."""

        def count(elements: int | None) -> int:
            return -1 if elements is None else elements

        codes = [exchange.code(self.rank) for exchange in exchanges]
        counted = [
            (peer, count(sends), count(receives), here, there, code)
            for (peer, sends, receives, here, there), code in zip(exchanges, codes, strict=True)
        ]
        return _runtime.write_exchange(counted, segment_elements, self._connection_counts)

    def split(
        self, members: Sequence[int], exchange: Callable[[bytes], list[bytes]], timeout: float
    ) -> NativeEngine | None:
        """Engine of some of the ranks, over the same shared memory."""
        part = connect_part(
            self._transport, members, exchange, timeout, check=lambda: self._check_losses(members)
        )
        if part is None:
            return None
        renumbered = [replace(self.members[rank], rank=new) for new, rank in enumerate(members)]
        return NativeEngine(part, renumbered, self._arena)

    def run(self, prepared: Prepared, flat: Flat, out: Flat, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        script: _runtime.Script = prepared.script
        if prepared.share_only and out.elements == flat.elements:
            out = out.part(*prepared.share)
        needed = (script.scratch_elements + script.stage_elements) * flat.itemsize
        if self._scratch.nbytes < needed:
            self._scratch = self._make_scratch(needed)
        ending = self._transport.executor.run(
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
        if ending.status != _runtime.Status.done:
            self._fail(ending, prepared, wait)

    def _make_scratch(self, size_bytes: int) -> NDArray[np.uint8]:
        """Room for intermediate results; in ordinary memory, which peers copy from, if the arena is full.

        A rank that refused to take part for want of it would leave the others waiting.
        """
        try:
            return self._arena.empty(size_bytes, np.dtype(np.uint8))
        except LimitError as error:
            msg = f"{error}; operations use ordinary memory, which is slower; a larger WEFT_ARENA avoids that"
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
            return np.empty(size_bytes, np.uint8)

    def repeatable(self, prepared: Prepared, flat: Flat, op: str) -> _runtime.RepeatedOperation:
        """The same operation in place, for other arrays of the same size and type."""
        first, last = prepared.share if prepared.share_only else (0, flat.elements)
        return _runtime.RepeatedOperation(
            self._transport.executor,
            prepared.script,
            prepared.fingerprint,
            self._scratch,
            flat.nbytes,
            (first * flat.itemsize, (last - first) * flat.itemsize),
            flat.nbytes > _LARGE,
            flat.dtype,
            op,
        )

    def fail_repeated(self, ending: _runtime.OperationResult, wait: float) -> NoReturn:
        """Raise the failure of the latest operation, which was repeated."""
        self._fail(ending, self.operations.latest, wait)

    @property
    def _connection_counts(self) -> NDArray[np.int32]:
        """How many connections a message to each rank can choose from."""
        sockets = self._transport.sockets
        return np.array([len(sockets.get(rank, (None,))) for rank in range(self.size)], np.int32)

    def _by_rank(self, known: dict[int, int]) -> NDArray[np.int32]:
        """Number of the connection to each rank that is known for some of them."""
        return np.array([known.get(rank, IN_TURN) for rank in range(self.size)], np.int32)

    def recover(self, topology: Topology | None, failed: bool, timeout: float) -> Recovery:
        """Connect all ranks anew, without the links that were lost.

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
            If the links that are left do not connect all ranks.
        """
        if self.control_plane is None:
            raise InputError("only the communicator of all ranks can be repaired; split it again afterwards")
        host = self._transport.host
        found = agree(self.control_plane, host.cut, self._completed(failed), topology, timeout)
        host.mend()
        self._transport = reconnect(self._transport, self.control_plane, found.topology, timeout)
        self._watch()
        self.done_before = found.completed
        return found

    def _completed(self, failed: bool) -> int:
        """Operations that this rank has completed; `failed` if the latest of them was not."""
        return self.done_before + self._transport.executor.sequence - failed

    def cancel(self) -> None:
        """End the operation under way, from any thread; no other can follow."""
        self._transport.executor.cancel()

    def shrink(
        self,
        lost_rank: int | None,
        failed: bool,
        topology: Topology | None,
        minimum: int | None,
        timeout: float,
    ) -> tuple[NativeEngine, Survivors]:
        """Meet the survivors of lost ranks, and connect them anew; this engine is closed then.

        Parameters
        ----------
        lost_rank
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
            If this engine serves only some of the ranks, or a single one.
        RuntimeFailure, TimedOut, PeerLost
            If the survivors cannot go on.
        """
        control_plane, transport = self.control_plane, self._transport
        if control_plane is None:
            raise InputError("only the communicator of all ranks can shrink; split what it returns")
        if transport.shrink_kit is None:
            msg = "this rank is the only one of its communicator, so there is no other that it can have lost"
            raise InputError(f"{msg}; go on with the communicator as it is")
        completed = self._completed(failed)
        lost = set() if lost_rank is None else {lost_rank}
        while True:
            met = self._meet_survivors(transport.shrink_kit, lost, completed, timeout, minimum)
            met.control_plane.reporter = control_plane.reporter.among(met.before)
            left = without_ranks(topology, self.hosts, met.before)
            try:
                with self._giving_up_lost(met):
                    engine = NativeEngine.connect(
                        met.control_plane, transport.settings, timeout=timeout, topology=left
                    )
                break
            except PeerLost as failure:
                late = met.before[failure.rank]
                if late == self.rank:
                    raise
                lost.add(late)  # the others meet again without it
        if (kit := engine._transport.shrink_kit) is not None:
            kit.inherit(transport.shrink_kit)
        self.close()
        self.control_plane = None
        engine.done_before = met.completed
        return engine, Survivors(met.before, completed - met.completed, left)

    @contextmanager
    def _giving_up_lost(self, met: SurvivorGroup) -> Iterator[None]:
        """While survivors connect, hang up on those that the watch of this engine finds frozen.

        They are not watched anew before they are connected, and would hold up all others until the deadline.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_S):
                for rank, _ in self._transport.host.losses():
                    if rank in met.before and rank != self.rank:
                        met.control_plane.give_up(met.before.index(rank))

        thread = threading.Thread(target=watch, name="weft-shrink", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _meet_survivors(
        self, kit: ShrinkKit, lost: set[int], completed: int, timeout: float, minimum: int | None
    ) -> SurvivorGroup:
        """Meet the other survivors; ranks in `lost` may only be frozen."""
        host = self._transport.host

        def losses() -> dict[int, bool]:
            return dict.fromkeys(lost, True) | dict(host.losses())

        return SurvivorMeeting(self.rank, self.members, kit, losses, completed, timeout, minimum).run()

    def leave(self) -> None:
        """Hang up: operations that other ranks have begun with this one, or begin, fail and name it."""
        self._transport.close()

    def close(self) -> None:
        """Leave; the others see that this rank left on purpose."""
        self._transport.close()
        if self.control_plane is not None:
            self.control_plane.close()

    @property
    def waiting(self) -> AwaitedPeer | None:
        """The peer that the operation under way waits for; None where there is none."""
        found = self._transport.executor.waiting
        return self._explain(found) if found.rank >= 0 else None

    def _watch(self) -> None:
        """Have slow and silent ranks named while operations wait for them."""
        # The executor keeps what it calls: a bound method would keep this engine alive for ever.
        method = weakref.WeakMethod(self._tell_wait)

        def tell(found: _runtime.Waiting) -> None:
            if (bound := method()) is not None:
                bound(found)

        self._transport.executor.on_wait(tell)

    def _tell_wait(self, found: _runtime.Waiting) -> None:
        waiting, prepared = self._explain(found), self.operations.latest
        what = "an operation" if prepared is None else self._name(prepared)
        job_rank = self.job_ranks[self.rank]
        in_job = "" if job_rank == self.rank else f" (rank {job_rank} of the job)"
        _log.warning("rank %d%s: %s %s", self.rank, in_job, what, waiting)

    def _explain(self, found: _runtime.Waiting) -> AwaitedPeer:
        latest = self.operations.latest
        step = None if latest is None else _step(latest, found.row)
        return AwaitedPeer(self.members[found.rank], found.seconds, found.silent_ms / 1000, step)

    def _check_losses(self, ranks: Sequence[int]) -> None:
        """Raise if the watch has found that one of these ranks is lost."""
        gone = {rank for rank, _ in self._transport.host.losses()}
        for rank in ranks:
            if self._transport.job[rank] in gone:
                raise peer_lost(self.members[rank], "split")

    def _name(self, prepared: Prepared) -> str:
        number = self.done_before + self._transport.executor.sequence
        return f"{prepared.record.name} #{number} ({prepared.record.algorithm})"

    def _fail(self, ending: _runtime.OperationResult, prepared: Prepared, wait: float) -> NoReturn:
        what = self._name(prepared)
        status = ending.status
        if status == _runtime.Status.timed_out:
            raise self._timed_out(ending, what, wait)
        if status == _runtime.Status.differs:
            raise DesyncError(ending.rank, what, prepared.fingerprint)
        if status in (_runtime.Status.cut, _runtime.Status.corrupt):
            kind = LinkCorrupted if status == _runtime.Status.corrupt else LinkLost
            raise kind((ending.rank, ending.waited_for), what)
        if status == _runtime.Status.given_up:
            raise RuntimeFailure(f"{what}: rank {ending.rank} gave up waiting for this rank, {self.rank}")
        if status == _runtime.Status.interrupted and ending.rank == self.rank:
            msg = f"{what}: this rank was interrupted or has aborted, so the others have given it up"
            raise RuntimeFailure(f"{msg}; close this communicator and start the job again")
        if ending.rank < 0:
            raise RuntimeFailure(f"{what}: a rank was lost, and nobody knows which")
        left = "it has closed its communicator" if status == _runtime.Status.left else None
        raise peer_lost(self.members[ending.rank], what, left, _step(prepared, ending.row))

    def _timed_out(self, ending: _runtime.OperationResult, what: str, wait: float) -> TimedOut:
        """The error of an operation that this rank, or before its own time was over another one, gave up."""
        found = self._transport.executor.waiting
        if found.rank < 0 or found.seconds + _CLOCK_S >= wait:
            return TimedOut(what, wait, [ending.waited_for])
        # What another rank reports names the rank that it waited for or, through a rank that was given up,
        # the rank that gave up. This rank knows whom it waited for itself.
        late = found.rank
        by = "another rank" if ending.rank in (late, self.rank) else f"rank {ending.rank}"
        limit = f"while this rank waits for up to {wait:g} s"
        who = f"{by}, whose time limit is shorter, gave up waiting for rank {late}, {limit}"
        return TimedOut(what, found.seconds, [late], who=who)


def _writes_shares_only(schedule: Schedule) -> bool:
    """Whether no rank of a reduce-scatter has partial sums of what others get."""
    if schedule.collective != "reduce_scatter":
        return False
    into_output = slice(None) if schedule.dst_slot is None else schedule.dst_slot == 0
    return bool((schedule.target[schedule.chunk[into_output]] == schedule.dst[into_output]).all())


def _output_starts(schedule: Schedule, start: NDArray[np.int64]) -> NDArray[np.int64]:
    """By rank, the first element that the output has, which is all of the array or the rank's own share."""
    if not _writes_shares_only(schedule):
        return np.zeros(0, np.int64)
    return np.array([share_of(schedule, start, rank)[0] for rank in range(schedule.ranks)], np.int64)


def _needs_all(schedule: Schedule, start: NDArray[np.int64]) -> bool:
    """Whether no rank ends without something from every other; not so where shares are empty."""
    full = np.diff(start) > 0
    source, target = schedule.source[full], schedule.target[full]
    if ((source < 0) & (target < 0)).any():
        return True
    needs = np.eye(schedule.ranks, dtype=bool)
    needs[:, source[target < 0]] = True
    needs[target[source < 0], :] = True
    one = (source >= 0) & (target >= 0)
    needs[target[one], source[one]] = True
    return bool(needs.all())


def _step(prepared: Prepared, row: int) -> int | None:
    """Step of a transfer in the schedule that runs."""
    return int(prepared.schedule.step[row]) if prepared.schedule is not None and row >= 0 else None
