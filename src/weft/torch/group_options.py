"""The options of a process group of backend weft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.runtime.transport.connections import CONNECT_S

if TYPE_CHECKING:
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime import Communicator
    from weft.schedule import Schedule
    from weft.topology import Topology


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
    streams: int = 2
    connect_timeout: float = CONNECT_S
    plan_time_limit: float = 20.0
    communicator: Communicator | None = None
    """To run on one that is there already, instead of connecting through the store."""
