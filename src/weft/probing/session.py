"""A probe, from the first connection to the last round; every rank runs this.

All ranks see all numbers and come to the same decisions, so that nobody has to give orders. Only the clock is
rank 0's: when its time is over, it is over for all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure
from weft.probing import flow_rounds
from weft.probing.connecting import ProbeConnections
from weft.probing.flows import ping, run_flows
from weft.probing.local_speeds import measure_memory
from weft.probing.measurement_program import count_rounds, measure_cables, measure_fabric
from weft.probing.measurements import Flow, Measurements, Round
from weft.runtime.engines import group_by_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.runtime.bootstrap.control_plane import ControlPlane

    Report = Callable[[str, int, int], None]

DEFAULT_SECONDS: Final = 60.0
DEFAULT_BYTES: Final = 1 << 30
LONGEST_ROUND_S: Final = 0.25
SHORTEST_ROUND_S: Final = 0.05
MAX_HOSTS: Final = 128

_OVERHEAD_S: Final = 0.04
"""Of a round, besides the time in which data flows."""

_WAIT_S: Final = 60.0
_PINGS: Final = 12


@dataclass(frozen=True, slots=True)
class ProbeEffort:
    """How much a probe may take.

    Parameters
    ----------
    seconds
        For all rounds.
    max_bytes
        For one flow in one round.
    """

    seconds: float = DEFAULT_SECONDS
    max_bytes: int = DEFAULT_BYTES


def probe(
    control_plane: ControlPlane, effort: ProbeEffort, report: Report | None = None, *, memory: bool = True
) -> Measurements:
    """Measure the cluster that a job runs on; every rank calls this.

    Parameters
    ----------
    control_plane
        The job.
    effort
        That of rank 0 counts.
    report
        Told now and then what is measured, how many rounds are done, and how many there will be.
    memory
        Also inside of hosts; the control plane is of no use afterwards.

    Raises
    ------
    InputError
        If there is nothing to measure, or too much.
    PeerLost, TimedOut
        If a host does not answer.
    """
    if control_plane.size < 2:
        raise InputError("one rank alone has no network; start more, such as weft run -n 4 -- weft probe")
    hosts = tuple(tuple(host) for host in group_by_host(control_plane.members))
    limits.check("hosts to probe", len(hosts), MAX_HOSTS)
    told = control_plane.exchange(msgspec.msgpack.encode((effort.seconds, effort.max_bytes)), _WAIT_S)
    effort = ProbeEffort(*msgspec.msgpack.decode(told[0], type=tuple[float, int]))
    session = _Session(control_plane, hosts, effort, report or (lambda _now, _done, _total: None))
    if len(hosts) > 1:
        try:
            session.measure_network()
        except RuntimeFailure as error:
            raise control_plane.fail(error, "probe") from error
    found = session.found
    if memory and any(len(host) > 1 for host in hosts):
        found.memory, found.memory_latency_s = measure_memory(
            control_plane, hosts, max_bytes=effort.max_bytes, timeout=_WAIT_S
        )
    return found


class _Session:
    def __init__(
        self,
        control_plane: ControlPlane,
        hosts: tuple[tuple[int, ...], ...],
        effort: ProbeEffort,
        report: Report,
    ) -> None:
        self.found = Measurements(hosts)
        self._control_plane, self._effort, self._report = control_plane, effort, report
        self._reach = ProbeConnections(control_plane, hosts, _WAIT_S)
        self._round_s = LONGEST_ROUND_S
        self._done = self._planned = 0
        self._began = time.monotonic()
        self._is_over = False

    def measure_network(self) -> None:
        """Cables, and the fabric where cables do not join all hosts."""
        try:
            self._reach.connect()
            self.found.cables = self._reach.cables
            self.found.notes += self._reach.notes
            fabric = not self._reach.joined_by_cables
            hosts = self.found.hosts
            self._planned = count_rounds(len(hosts), self.found.cables, fabric=fabric)
            # Shorter rounds, if need be, so that all of them fit.
            room = self._effort.seconds / self._planned - _OVERHEAD_S
            self._round_s = min(LONGEST_ROUND_S, max(SHORTEST_ROUND_S, room))
            if self.found.cables:
                flows = flow_rounds.cable_flows(self.found.cables)
                self._ping(tuple(flow for flow in one if flow.src < flow.dst) for one in flows)
                measure_cables(self.found, self._run)
            if fabric:
                meetings = flow_rounds.tournament(len(hosts))
                self._ping(tuple(Flow(a, b) for a, b in meeting) for meeting in meetings)
                measure_fabric(self.found, self._run)
        finally:
            self._reach.close()
        if self._is_over:
            self.found.notes.append(
                f"the time of {self._effort.seconds:g} s was over after {self._done} of {self._planned} "
                f"rounds; --seconds allows for more"
            )

    def _ping(self, meetings: Iterable[tuple[Flow, ...]]) -> None:
        reach, leaders = self._reach, self._reach.leaders
        for meeting in meetings:
            seen: dict[int, float] = {}
            self._control_plane.barrier(_WAIT_S)
            for number, flow in enumerate(meeting):
                if reach.me is not None:
                    one_way = ping(reach.me, reach.connections, flow, times=_PINGS, leaders=leaders)
                    if one_way is not None:
                        seen[number] = one_way
            told = self._control_plane.exchange(msgspec.msgpack.encode(seen), _WAIT_S)
            for part in told:
                for number, one_way in msgspec.msgpack.decode(part, type=dict[int, float]).items():
                    self.found.latency_s[meeting[number]] = one_way

    def _run(self, kind: str, some: Iterable[tuple[Flow, ...]], *, must: bool = False) -> None:
        for flows in some:
            if self._is_over and not must:
                return
            self._report(kind, self._done, self._planned)
            self._run_one(kind, flows)
            self._done += 1

    def _run_one(self, kind: str, flows: tuple[Flow, ...]) -> None:
        reach = self._reach
        self._control_plane.barrier(_WAIT_S)
        seen: dict[int, float] = {}
        if reach.me is not None:
            rates = run_flows(
                reach.me,
                reach.connections,
                flows,
                seconds=self._round_s,
                max_bytes=self._effort.max_bytes,
                leaders=reach.leaders,
            )
            seen = {number: rates[flow] for number, flow in enumerate(flows) if flow in rates}
        elapsed = time.monotonic() - self._began
        told = self._control_plane.exchange(msgspec.msgpack.encode((elapsed, seen)), _WAIT_S)
        parts = [msgspec.msgpack.decode(part, type=tuple[float, dict[int, float]]) for part in told]
        found = {flows[number]: rate for _, part in parts for number, rate in part.items()}
        self.found.rounds.append(Round(kind, {flow: found[flow] for flow in flows}))
        self._is_over = parts[0][0] > self._effort.seconds
