"""How fast ranks of one host reach each other: through whatever the runtime itself uses there.

All ranks of a host send at once, each to the next, because that is what collectives do: processors and memory
are shared, and a pair alone would promise a speed that nobody gets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from weft.runtime.communicator import Communicator
from weft.runtime.engines.native_engine import NativeEngine
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.transport.rank_transport import TransportSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane

_BYTES: Final = 8 << 20
_REPEATS: Final = 5
_PINGS: Final = 30


def measure_memory(
    control_plane: ControlPlane, hosts: Sequence[Sequence[int]], *, max_bytes: int, timeout: float
) -> tuple[dict[int, list[float]], float]:
    """Bytes per second of each rank of each host with several, and seconds of the fastest small message.

    Every rank calls this. The control plane cannot be used afterwards.
    """
    engine = NativeEngine.connect(control_plane, TransportSettings(streams=1), timeout=timeout)
    with Communicator(
        engine, ScheduleSelector(control_plane.size, hosts=engine.hosts), timeout=timeout
    ) as communicator:
        host = next(number for number, ranks in enumerate(hosts) if control_plane.rank in ranks)
        ranks = hosts[host]
        rates: list[float] = []
        latency = 0.0
        if len(ranks) > 1:
            place = ranks.index(control_plane.rank)
            after, before = ranks[(place + 1) % len(ranks)], ranks[place - 1]
            _time(communicator, after, before, 64, 2)
            latency = min(_time(communicator, after, before, 64, _PINGS))
            size = min(_BYTES, max_bytes)
            rates = [size / seconds for seconds in _time(communicator, after, before, size, 1 + _REPEATS)[1:]]
        told = control_plane.exchange(msgspec.msgpack.encode((host, rates, latency)), timeout)
    found: dict[int, list[float]] = {}
    latencies = []
    for number, some, least in (
        msgspec.msgpack.decode(part, type=tuple[int, list[float], float]) for part in told
    ):
        if some:
            found.setdefault(number, []).extend(some)
            latencies.append(least)
    return found, min(latencies, default=0.0)


def _time(communicator: Communicator, after: int, before: int, size_bytes: int, times: int) -> list[float]:
    array = np.zeros(max(1, size_bytes // 4), np.float32)
    into = np.zeros_like(array)
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        communicator.send_recv(array, after, into, before)
        seconds.append(time.perf_counter() - began)
    return seconds
