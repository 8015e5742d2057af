"""Weft itself as a measured runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import numpy as np

from weft.bench.peers.peer import Call, JobInvitation, JobPlace, Peer, PeerRank, Start, one_thread
from weft.bench.rank_tasks import RankTasks
from weft.runtime.bootstrap.environment import LOOPBACK
from weft.runtime.bootstrap.meeting_point import reserve_port
from weft.runtime.byte_exchange import CommunicatorWords, exchange_bytes
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.extension import _runtime
from weft.runtime.launcher.launch import job_variables
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.start import init

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bench.control_messages import Message
    from weft.bench.task import BenchTask


_WHAT_RUNS: Final = ("plan", "schedule", "topology", "algorithm")


class WeftRank(PeerRank):
    """One rank of a Weft job; what it measures is `weft.Communicator` as any user calls it.

    Parameters
    ----------
    settings
        ``memory`` is ``shared`` for `Communicator.empty`; ``transport``, ``topology``, ``algorithm``,
        ``plan`` and ``schedule`` are as for `weft.init`.
    timeout
        Seconds for joining and for each operation.
    """

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        given = {name: settings[name] for name in _WHAT_RUNS if settings[name]}
        self.communicator = init(**given, transport=settings["transport"], timeout=timeout)
        self.rank = self.communicator.rank
        self._shared = settings["memory"] == "shared"

    def empty(self, size_bytes: int) -> NDArray[np.uint8]:
        """Memory of this process, or of all ranks."""
        if self._shared:
            shared: NDArray[np.uint8] = self.communicator.empty(size_bytes, np.uint8)
            return shared
        return super().empty(size_bytes)

    def bind(self, task: BenchTask, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Call:
        """As a user would write it."""
        given, result = (_typed(array, task.dtype) for array in (source, target))
        comm, op = self.communicator, task.op
        if task.collective == "all_gather":
            return lambda: comm.all_gather(given)
        if task.collective == "reduce_scatter":
            return lambda: comm.reduce_scatter(given, op)
        if task.collective == "broadcast":
            return lambda: _nothing(comm.broadcast(result))
        if source is target:
            return lambda: _nothing(comm.all_reduce(result, op))
        return lambda: _nothing(comm.all_reduce(given, op, out=result))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.communicator.barrier()

    def versions(self) -> dict[str, str]:
        """Of Weft, and what its kernels use of the processor."""
        return {"weft": _runtime.version(), "kernels": _runtime.cpu_level()}

    def ran(self) -> dict[str, str]:
        """Algorithm and digest of the latest operation."""
        last = self.communicator.last
        return {} if last is None else {"algorithm": last.algorithm, "digest": last.digest}

    def close(self) -> None:
        """Leave the job."""
        self.communicator.close()


class Weft(Peer):
    """Starts Weft's ranks as ``weft run`` does, but each by itself."""

    name: ClassVar[str] = "weft"

    def start(self, job: JobPlace) -> Start:
        """One process per rank."""
        holder, port = reserve_port(LOOPBACK)
        job.resources.enter_context(holder)
        return Start((), job.ranks, {**one_thread(), **job_variables(job.ranks, port)})

    def join(self, invitation: JobInvitation) -> WeftRank:
        """Join the job and return this rank of it."""
        return WeftRank(invitation.settings, invitation.timeout)


class OwnJob:
    """The job that this process is a rank of, measured from inside: all ranks measure and exchange answers.

    Parameters
    ----------
    settings, timeout
        As for `WeftRank`.
    """

    name = "weft"

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        self._rank = WeftRank(settings, timeout)
        self._tasks = RankTasks(self._rank)
        self.versions = self._rank.versions()
        self.rank = self._rank.rank

    def do(self, order: Message) -> list[Message]:
        """Carry out an order here, as every rank does, and exchange the answers."""
        answer = msgspec.json.encode(self._tasks.do(order))
        told = exchange_bytes(CommunicatorWords(self._rank.communicator, "bench answers"), answer)
        return [msgspec.json.decode(part) for part in told]

    def close(self) -> None:
        """Leave the job."""
        self._rank.close()


def make_chooser(ranks: int, settings: dict[str, Any]) -> ScheduleSelector:
    """Selector of the schedules that will run.

    Raises
    ------
    InputError
        If there is no such plan, topology or algorithm, or it is for another number of ranks.
    """
    return ScheduleSelector(ranks, load_inputs(**{name: settings[name] for name in _WHAT_RUNS}))


def _typed(array: NDArray[np.uint8], dtype: str) -> Any:
    """The bytes as a type; numpy has no bfloat16, so that is a torch tensor over the same memory."""
    if dtype != "bfloat16":
        return array.view(dtype)
    import torch

    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _nothing(_result: Any) -> None:
    """Forget the result, which is the array that was given."""
