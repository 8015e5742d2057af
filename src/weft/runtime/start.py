"""`weft.init`: set up a communicator in three steps: load its inputs, connect the ranks, open it.

`load_inputs` of `weft.runtime.communicator_inputs` reads the plan, the schedule and the topology that a
communicator is given. `connect_engine` of `weft.runtime.engines.engine_choice` connects the ranks of the job;
`weft.torch` connects the ranks of a process group instead. `open_communicator` makes a communicator of the
two.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from weft import limits
from weft.runtime import flight_recorder
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.communicator import Communicator
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.engines.engine_choice import connect_engine
from weft.runtime.extension import require_runtime
from weft.runtime.resources import close_on_error
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.transport.rank_transport import DEFAULT_STREAMS, TransportSettings
from weft.runtime.transport.tcp_connections import CONNECT_S

if TYPE_CHECKING:
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime.communicator_inputs import CommunicatorInputs
    from weft.runtime.engines import Engine
    from weft.runtime.engines.engine_choice import EngineName
    from weft.runtime.transport.rank_transport import TransportName
    from weft.schedule import Schedule
    from weft.topology import Topology


def init(
    *,
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    transport: TransportName = "auto",
    streams: int = DEFAULT_STREAMS,
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
        If the environment names no job, the plan or schedule does not fit, or the engine or `weft._runtime`
        is not there.
    TimedOut, PeerLost
        If other ranks do not come.
    """
    require_runtime()
    flight_recorder.write_on_signal()  # at once: a job may hang before all ranks have come
    if topology is None and plan is None and schedule is None:
        topology = os.environ.get("WEFT_TOPOLOGY") or None
    with flight_recorder.in_phase("reading its plan, schedule or topology"):
        inputs = load_inputs(plan, schedule, topology, algorithm, max_work)
    settings = TransportSettings(transport, streams, checksums)
    timeout, plan_time_limit = check_timeout(timeout), check_timeout(plan_time_limit, "plan_time_limit")
    with flight_recorder.in_phase(f"connecting to the other ranks by engine {engine!r}"):
        connected = connect_engine(engine, inputs, settings, group, timeout, connect_timeout)
    return open_communicator(connected, inputs, timeout=timeout, plan_time_limit=plan_time_limit)


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
    with close_on_error(engine):
        selector = ScheduleSelector(engine.size, inputs, hosts=engine.hosts)
        reporter = None if engine.control_plane is None else engine.control_plane.reporter
        communicator = Communicator(engine, selector, timeout=timeout, reporter=reporter)
    atexit.register(communicator.close)
    topology = inputs.unplanned_topology
    if topology is not None and engine.size > 1:
        communicator.replan(topology, time_limit=plan_time_limit)
    return communicator
