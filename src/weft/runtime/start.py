"""`weft.init`: from an environment to a communicator."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING

from weft.runtime.chooser import Chooser
from weft.runtime.communicator import Communicator
from weft.runtime.engines.native import NativeEngine
from weft.runtime.environment import find_place
from weft.runtime.rendezvous import join

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.topology import Topology


def init(
    *,
    plan: Plan | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str = "direct",
    transport: str = "auto",
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
        ``"auto"`` or ``"tcp"``.
    timeout
        Seconds for joining, and for each operation unless it is given its own.

    Raises
    ------
    InputError
        If the environment names no job, or the plan is for another number of ranks.
    TimedOut, PeerLost
        If others do not come.
    """
    if isinstance(plan, str | Path):
        from weft.planning import load_plan

        plan = load_plan(plan)
    place = find_place()
    chooser = Chooser(place.size, plan=plan, topology=topology, algorithm=algorithm)
    engine = NativeEngine(join(place, timeout=timeout), transport=transport, timeout=timeout)
    communicator = Communicator(engine, chooser, timeout=timeout)
    atexit.register(communicator.close)
    return communicator
