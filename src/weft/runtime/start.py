"""`weft.init`: from an environment to a communicator."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError
from weft.runtime.chooser import Chooser
from weft.runtime.communicator import Communicator
from weft.runtime.engines.native import NativeEngine
from weft.runtime.environment import find_place
from weft.runtime.rendezvous import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.planning import Plan
    from weft.runtime.engines import Engine
    from weft.topology import Topology

ENGINES: Final = ("native", "mpi", "torch")


def init(
    *,
    plan: Plan | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str = "direct",
    transport: str = "auto",
    streams: int = 2,
    engine: str = "native",
    group: Any = None,
    timeout: float = 60.0,
) -> Communicator:
    """Join the job that this process was started in.

    Parameters
    ----------
    plan
        What ``weft plan`` wrote, for its collective.
    topology, algorithm
        What to build other schedules from; by default every rank reaches every other alike.
    transport
        Of Weft's own engine. ``"auto"``: memory within a machine, sockets between machines. ``"tcp"``:
        sockets everywhere.
    streams
        Sockets between two ranks that are not reached through memory; the same on all ranks.
    engine
        What moves the data: ``"native"``, Weft's own runtime; ``"mpi"``, the ranks of ``COMM_WORLD``;
        ``"torch"``, the ranks of a process group.
    group
        For ``"torch"``: which process group; by default all of torch.distributed.
    timeout
        Seconds for joining, and for each operation unless it is given its own.

    Raises
    ------
    InputError
        If the environment names no job, the plan is for another number of ranks, or the engine is not there.
    TimedOut, PeerLost
        If others do not come.
    """
    if isinstance(plan, str | Path):
        from weft.planning import load_plan

        plan = load_plan(plan)
    size, connect = _find_engine(engine, transport, streams, group, timeout)
    chooser = Chooser(size, plan=plan, topology=topology, algorithm=algorithm)
    communicator = Communicator(connect(), chooser, timeout=timeout)
    atexit.register(communicator.close)
    return communicator


def _find_engine(
    engine: str, transport: str, streams: int, group: Any, timeout: float
) -> tuple[int, Callable[[], Engine[Any]]]:
    """Number of ranks, known before they meet, and what makes them meet."""
    if engine not in ENGINES:
        msg = f"engine {engine!r} is unknown, expected {', '.join(ENGINES)}"
        raise InputError(msg)
    if engine != "native" and transport != "auto":
        msg = f"transport {transport!r} is for the native engine; {engine} has its own"
        raise InputError(msg)
    if engine != "torch" and group is not None:
        msg = f"a process group is for engine 'torch', not {engine!r}"
        raise InputError(msg)
    if engine == "mpi":
        from weft.runtime.engines.mpi import MpiEngine, load_mpi

        mpi = load_mpi()
        return mpi.COMM_WORLD.size, lambda: MpiEngine(mpi, mpi.COMM_WORLD, timeout=timeout)
    if engine == "torch":
        from weft.runtime.engines.torch import TorchEngine, find_group

        found = find_group(group)
        return found.size(), lambda: TorchEngine.join(found, timeout=timeout)
    place = find_place()
    return place.size, lambda: NativeEngine.connect(
        join(place, timeout=timeout), transport=transport, streams=streams, timeout=timeout
    )
