"""`weft.init`: set up a communicator in three steps: load its inputs, connect the ranks, open it.

`load_inputs` reads the plan, the schedule and the topology that a communicator is given. `connect_engine`
connects the ranks of the job; `weft.torch` connects the ranks of a process group instead. `open_communicator`
makes a communicator of the two.
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from weft import limits
from weft.errors import InputError
from weft.runtime.bootstrap.client import join
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.environment import find_place
from weft.runtime.communicator import Communicator
from weft.runtime.engines.native_engine import NativeEngine
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.transport.connections import CONNECT_S
from weft.runtime.transport.rank_transport import TransportSettings
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.planning import Plan
    from weft.runtime.engines import Engine
    from weft.runtime.transport.rank_transport import TransportName
    from weft.schedule import Schedule
    from weft.topology import Topology

EngineName = Literal["native", "mpi", "torch"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)


def init(
    *,
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    transport: TransportName = "auto",
    streams: int = 2,
    engine: EngineName = "native",
    group: Any = None,
    timeout: float = 60.0,
    connect_timeout: float = CONNECT_S,
    plan_time_limit: float = 20.0,
    checksums: bool | None = None,
    max_work: float | None = limits.MAX_WORK,
) -> Communicator:
    """Join the job that this process was started in.

    Parameters
    ----------
    plan, schedule
        What runs for its collective: a plan that ``weft plan`` wrote, or any schedule, which is verified. One
        for as many ranks as there are hosts runs between the hosts, each rank on its slice.
    topology
        The cluster, by default what ``WEFT_TOPOLOGY`` names. Rank 0 plans the all-reduce for it, unless a
        plan, a schedule or an algorithm is given. Addresses that it gives to cables are the ones used.
    algorithm
        Name in the registry, for every collective that the plan does not serve.
    transport, streams, checksums
        As for `weft.runtime.transport.rank_transport.TransportSettings`; only for Weft's own engine.
    engine, group
        What moves the data: ``"native"``, Weft's own runtime; ``"mpi"``, the ranks of ``COMM_WORLD``;
        ``"torch"``, the ranks of a process group, by default all of torch.distributed.
    timeout
        Seconds for all ranks to come, and for each operation unless it is given its own.
    connect_timeout
        Seconds for connecting the ranks once all have come, at most `timeout`; MPI connects by itself.
    plan_time_limit
        Seconds that rank 0 may plan for.
    max_work
        Operations that reading and verifying a plan or a schedule may take, by estimate; None for any number.

    Raises
    ------
    InputError, LimitError
        If the environment names no job, the plan or schedule does not fit, or the engine is not there.
    TimedOut, PeerLost
        If other ranks do not come.
    """
    if topology is None and plan is None and schedule is None:
        topology = os.environ.get("WEFT_TOPOLOGY") or None
    inputs = load_inputs(plan, schedule, topology, algorithm, max_work)
    settings = TransportSettings(transport, streams, checksums)
    connected = connect_engine(engine, inputs, settings, group, timeout, connect_timeout)
    return open_communicator(connected, inputs, timeout=timeout, plan_time_limit=plan_time_limit)


@dataclass(frozen=True)
class CommunicatorInputs:
    """The plan, the schedule and the topology of a communicator, loaded.

    Parameters
    ----------
    plan, schedule, topology, algorithm, max_work
        As for `init`.
    """

    plan: Plan | None = None
    schedule: Schedule | None = None
    topology: Topology | None = None
    algorithm: str | None = None
    max_work: float | None = limits.MAX_WORK

    @property
    def link_topology(self) -> Topology | None:
        """The topology that may prescribe connections: that of the plan or schedule, if one is given."""
        given = self.plan or self.schedule
        return self.topology if given is None else given.topology

    @property
    def unplanned_topology(self) -> Topology | None:
        """The topology that rank 0 has to plan for, if nothing else says what runs."""
        return self.topology if (self.plan, self.schedule, self.algorithm) == (None, None, None) else None

    def make_selector(self, ranks: int, hosts: Sequence[Sequence[int]] | None = None) -> ScheduleSelector:
        """Selector of the schedules of so many ranks."""
        return ScheduleSelector(ranks, hosts=hosts, **vars(self))  # it takes all inputs by their names


def load_inputs(
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    max_work: float | None = limits.MAX_WORK,
) -> CommunicatorInputs:
    """Load the plan, the schedule and the topology that are given by name; parameters as for `init`.

    Raises
    ------
    InputError, LimitError
        If one cannot be read, or the plan is for another topology.
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
    return CommunicatorInputs(plan, schedule, found, algorithm, max_work)


def connect_engine(
    engine: str,
    inputs: CommunicatorInputs,
    settings: TransportSettings,
    group: Any,
    timeout: float,
    connect_timeout: float,
) -> Engine[Any]:
    """Connect the ranks of the job that this process was started in; parameters as for `init`."""
    if engine not in ENGINES:
        msg = f"engine {engine!r} is unknown, expected {', '.join(ENGINES)}"
        raise InputError(msg)
    if engine != "native" and settings.transport != "auto":
        msg = f"transport {settings.transport!r} is for the native engine; {engine} has its own"
        raise InputError(msg)
    if engine != "torch" and group is not None:
        msg = f"a process group is for engine 'torch', not {engine!r}"
        raise InputError(msg)
    connect_timeout = min(timeout, check_timeout(connect_timeout, "connect_timeout"))
    if engine == "mpi":
        from weft.runtime.engines.mpi_engine import MpiEngine, load_mpi

        mpi = load_mpi()
        return MpiEngine(mpi, mpi.COMM_WORLD, timeout=timeout)
    if engine == "torch":
        from weft.runtime.engines.torch_engine import TorchEngine, find_group

        return TorchEngine.join(find_group(group), timeout=timeout, connect_timeout=connect_timeout)
    control_plane = join(find_place(), timeout=timeout)
    return NativeEngine.connect(
        control_plane, settings, timeout=connect_timeout, topology=inputs.link_topology
    )


def open_communicator(
    engine: Engine[Any], inputs: CommunicatorInputs, *, timeout: float = 60.0, plan_time_limit: float = 20.0
) -> Communicator:
    """Make a communicator of connected ranks; every rank calls this.

    Parameters
    ----------
    engine
        Connects the ranks; it is closed if the inputs do not fit them.
    inputs
        The same on all ranks.
    timeout, plan_time_limit
        As for `init`.
    """
    try:
        selector = inputs.make_selector(engine.size, engine.hosts)
        reporter = None if engine.control_plane is None else engine.control_plane.reporter
        communicator = Communicator(engine, selector, timeout=timeout, reporter=reporter)
    except BaseException:
        engine.close()
        raise
    atexit.register(communicator.close)
    topology = inputs.unplanned_topology
    if topology is not None and engine.size > 1:
        communicator.replan(topology, time_limit=plan_time_limit)
    return communicator
