"""`weft.init`: from an environment to a communicator."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.errors import InputError
from weft.runtime.bootstrap.client import join
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.environment import find_place
from weft.runtime.communicator import Communicator
from weft.runtime.engines.native_engine import NativeEngine
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.transport.connections import CONNECT_S
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.planning import Plan
    from weft.runtime.engines import Engine
    from weft.schedule import Schedule
    from weft.topology import Topology

ENGINES: Final = ("native", "mpi", "torch")


def init(
    *,
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    transport: str = "auto",
    streams: int = 2,
    engine: str = "native",
    group: Any = None,
    timeout: float = 60.0,
    connect_timeout: float = CONNECT_S,
    planning: float = 20.0,
    checksums: bool | None = None,
    max_work: float | None = limits.MAX_WORK,
) -> Communicator:
    """Join the job that this process was started in.

    Parameters
    ----------
    plan
        What ``weft plan`` wrote, for its collective. One for as many as there are hosts runs between them,
        each rank on its slice.
    schedule
        Any schedule, or the name of its file: it is verified, and runs for its collective.
    topology
        The cluster; by default what ``WEFT_TOPOLOGY`` names. Without a plan, a schedule or an algorithm, rank
        0 plans the all-reduce for it, and all use that. Where it says which addresses use a cable, what a
        schedule sends over that cable goes there.
    algorithm
        Name in the registry, for all that the plan does not serve. Without it, and without a topology, what
        suits ranks that reach each other through memory, and hosts that reach each other alike.
    transport
        Of Weft's own engine. ``"auto"``: memory within a machine, sockets between machines. ``"copy"``: the
        same, but no rank reads the private memory of another. ``"tcp"``: sockets everywhere.
    streams
        Sockets between two ranks that are not reached through memory; the same on all ranks.
    engine
        What moves the data: ``"native"``, Weft's own runtime; ``"mpi"``, the ranks of ``COMM_WORLD``;
        ``"torch"``, the ranks of a process group.
    group
        For ``"torch"``: which process group; by default all of torch.distributed.
    timeout
        Seconds for all ranks to come, and for each operation unless it is given its own.
    connect_timeout
        Seconds for connecting the ranks to each other once all have come; `timeout` if that is less. MPI
        connects by itself.
    planning
        Seconds that rank 0 may plan for.
    checksums
        Of Weft's own engine: whether data that goes through sockets is followed by its checksum (CRC-32C), so
        that what was changed on the way is a `LinkCorrupted` and not a wrong sum. By default as
        ``WEFT_CHECKSUMS`` says, and that is 1. The same on all ranks.
    max_work
        Operations that reading a plan or a schedule may take, and verifying a schedule of it, by estimate;
        None for any number.

    Raises
    ------
    InputError
        If the environment names no job, the plan is for another number of ranks, or the engine is not there.
    LimitError
        If a plan or schedule would take more operations than `max_work`.
    TimedOut, PeerLost
        If others do not come.
    """
    if topology is None and plan is None and schedule is None:
        topology = os.environ.get("WEFT_TOPOLOGY") or None

    def meet(cables: Topology | None) -> Engine[Any]:
        return _connect_engine(engine, transport, streams, group, timeout, connect_timeout, cables, checksums)

    return open_communicator(
        meet,
        plan=plan,
        schedule=schedule,
        topology=topology,
        algorithm=algorithm,
        timeout=timeout,
        planning=planning,
        max_work=max_work,
    )


def open_communicator(
    meet: Callable[[Topology | None], Engine[Any]],
    *,
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    timeout: float = 60.0,
    planning: float = 20.0,
    max_work: float | None = limits.MAX_WORK,
) -> Communicator:
    """Communicator of ranks that meet as they like; parameters as for `init`.

    Parameters
    ----------
    meet
        Given the topology that may prescribe connections, an engine that connects the ranks.
    """
    if isinstance(plan, str | Path):
        from weft.planning import load_plan

        plan = load_plan(plan, max_work=max_work)
    if isinstance(schedule, str | Path):
        from weft.schedule.codec import load_schedule

        schedule = load_schedule(schedule, max_work=max_work)
    found = None if topology is None else load_topology(topology)
    if plan is not None and found is not None:
        plan.check_topology(found)
    given = plan or schedule
    connected = meet(found if given is None else given.topology)
    size, hosts = connected.size, connected.hosts
    try:
        chooser = ScheduleSelector(
            size,
            plan=plan,
            schedule=schedule,
            topology=found,
            algorithm=algorithm,
            hosts=hosts,
            max_work=max_work,
        )
        roster = getattr(connected, "roster", None)
        reporter = None if roster is None else roster.reporter
        communicator = Communicator(connected, chooser, timeout=timeout, reporter=reporter)
    except BaseException:
        connected.close()
        raise
    atexit.register(communicator.close)
    if found is not None and given is None and algorithm is None and size > 1:
        communicator.replan(found, seconds=planning)
    return communicator


def _connect_engine(
    engine: str,
    transport: str,
    streams: int,
    group: Any,
    timeout: float,
    connect_timeout: float,
    topology: Topology | None,
    checksums: bool | None,
) -> Engine[Any]:
    """Make the ranks meet."""
    if engine not in ENGINES:
        msg = f"engine {engine!r} is unknown, expected {', '.join(ENGINES)}"
        raise InputError(msg)
    if engine != "native" and transport != "auto":
        msg = f"transport {transport!r} is for the native engine; {engine} has its own"
        raise InputError(msg)
    if engine != "torch" and group is not None:
        msg = f"a process group is for engine 'torch', not {engine!r}"
        raise InputError(msg)
    check_timeout(connect_timeout, "connect_timeout")
    if engine == "mpi":
        from weft.runtime.engines.mpi_engine import MpiEngine, load_mpi

        mpi = load_mpi()
        return MpiEngine(mpi, mpi.COMM_WORLD, timeout=timeout)
    if engine == "torch":
        from weft.runtime.engines.torch_engine import TorchEngine, find_group

        found = find_group(group)
        return TorchEngine.join(found, timeout=timeout, connect_timeout=min(timeout, connect_timeout))
    roster = join(find_place(), timeout=timeout)
    return NativeEngine.connect(
        roster,
        transport=transport,
        streams=streams,
        timeout=min(timeout, connect_timeout),
        topology=topology,
        checksums=checksums,
    )
