"""The bootstrap of a communicator through the store of a torch process group.

Only the members of a new group know of it, so its store is the only place where they can find each other. The
variables ``WEFT_ADDRESS``, ``WEFT_PORT`` and ``WEFT_SECRET`` say where rank 0 of the *job* listens, which
need not be in the group: they are not used here. A process that can reach the store can read the note that is
left there, and so could join in a rank's place; that is true of every backend of torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from torch import distributed as dist

from weft.runtime import flight_recorder
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.group_store import count_visit, find_place_in_group
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.engines.engine_choice import connect_native
from weft.runtime.engines.torch_engine import find_group
from weft.runtime.start import open_communicator
from weft.runtime.transport.rank_transport import DEFAULT_STREAMS, TransportSettings
from weft.runtime.transport.tcp_connections import CONNECT_S
from weft.torch.internals import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime.communicator import Communicator
    from weft.schedule import Schedule
    from weft.topology import Topology

_KEY: Final = "weft/note"


@dataclass(frozen=True, kw_only=True)
class Options:
    """``pg_options`` of a group of backend ``"weft"``, the same on all its ranks.

    Parameters are as for `weft.init`.

    Examples
    --------
    >>> Options(algorithm="ring").transport
    'auto'
    """

    plan: Plan | str | Path | None = None
    schedule: Schedule | str | Path | None = None
    topology: Topology | str | None = None
    algorithm: str | None = None
    transport: str = "auto"
    streams: int = DEFAULT_STREAMS
    connect_timeout: float = CONNECT_S
    plan_time_limit: float = 20.0
    communicator: Communicator | None = None
    """To run on one that is there already, instead of connecting through the store."""


class ConnectionOptions(TypedDict, total=False):
    """What functions that connect the ranks of a group take besides a plan; the same as of `Options`."""

    schedule: Schedule | str | Path | None
    topology: Topology | str | None
    algorithm: str | None
    transport: str
    streams: int
    connect_timeout: float
    plan_time_limit: float


def connect(
    group: dist.ProcessGroup | None = None,
    *,
    plan: Plan | str | Path | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    **options: Unpack[ConnectionOptions],
) -> Communicator:
    """Make a communicator of the ranks of a process group of any backend; every rank of it calls this.

    Parameters
    ----------
    group
        By default all ranks of torch.distributed.
    plan, schedule, topology, algorithm, transport, streams, connect_timeout, plan_time_limit
        As for `weft.init`.
    timeout
        Seconds for connecting, and for each operation unless it is given its own.

    Raises
    ------
    InputError
        If there is no group, or this process is not in it.
    TimedOut, PeerLost
        If other ranks do not join.
    """
    return connect_group(group, Options(plan=plan, **options), timeout)


def connect_group(group: dist.ProcessGroup | None, options: Options, timeout: float) -> Communicator:
    """Connect the ranks of a process group; parameters and errors as for `connect`."""
    found = find_group(group)
    store, rank = found.get_group_store(), found.rank()
    key = f"{_KEY}/{count_visit(store, rank)}"
    return meet(store, rank, found.size(), options, timeout=timeout, key=key)


def meet(
    store: Any, rank: int, size: int, options: Options, *, timeout: float, key: str = _KEY
) -> Communicator:
    """Make a communicator of ranks that share a store, and a key in it that was not used before."""
    inputs = load_inputs(options.plan, options.schedule, options.topology, options.algorithm)
    timeout = check_timeout(timeout)
    connect_timeout = min(timeout, check_timeout(options.connect_timeout, "connect_timeout"))
    settings = TransportSettings(options.transport, options.streams)
    flight_recorder.write_on_signal()
    with flight_recorder.in_phase("meeting the other ranks of the group at its store"):
        place = find_place_in_group(store, rank, size, key, timeout)
    engine = connect_native(place, inputs, settings, timeout, connect_timeout)
    return open_communicator(engine, inputs, timeout=timeout, plan_time_limit=options.plan_time_limit)


def find_topology(options: Options, size: int) -> Topology | str | None:
    """Return the topology of the options or, for all ranks of the job, of ``WEFT_TOPOLOGY``."""
    if options.topology is not None or options.plan is not None or options.schedule is not None:
        return options.topology
    everybody = not dist.is_initialized() or size == dist.get_world_size()
    return os.environ.get("WEFT_TOPOLOGY") or None if everybody else None
