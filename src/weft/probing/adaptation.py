"""Changing the plan of a running job when its network has changed.

At a step boundary all ranks measure the network again, rank 0 asks the engine how long the schedule so far
and a new plan take on what is there now, and all ranks change together, or none does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from weft.errors import InputError
from weft.planning.plan_file import decode_plan, encode_plan
from weft.planning.planner import plan
from weft.probing.inferred_topology import infer
from weft.probing.measurements import (
    Flow,
    Measurements,
    join_all,
    plateau,
)
from weft.probing.session import ProbeEffort, probe
from weft.runtime.agreed_plan import share
from weft.runtime.planning_notice import PlanningNotice
from weft.schedule.ir import DEFAULT_ROUTE
from weft.simulation import simulate

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.runtime.communicator import Communicator
    from weft.runtime.schedule_selection import ScheduleSelector
    from weft.schedule import Schedule
    from weft.topology import Topology

_USUAL_BYTES: Final = 16 << 20
_PLAUSIBLE: Final = 1.5
"""How many times more or less than measured a prediction may be."""


@dataclass(frozen=True)
class Adaptation:
    """What came of it; the same on all ranks.

    Parameters
    ----------
    topology
        The network as it is now.
    before_seconds, after_seconds
        What an all-reduce of the latest size is predicted to take there, as it was planned so far and as a
        new plan would have it.
    plan
        The new plan, if it is worth it; None if everything stays as it was.
    """

    topology: Topology
    before_seconds: float
    after_seconds: float
    plan: Plan | None


class _Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    before: float
    after: float
    plan: bytes


def adapt(
    communicator: Communicator,
    *,
    size_bytes: int | None = None,
    seconds: float = 10.0,
    gain: float = 0.05,
    plan_time_limit: float = 20.0,
    seconds_now: float | None = None,
) -> Adaptation:
    """Measure the network again, and change the plan if that is worth it; every rank calls this.

    Parameters
    ----------
    communicator
        Of all ranks of a job, with a topology or a plan.
    size_bytes
        Of the all-reduce that matters; by default that of the latest operation.
    seconds
        For measuring.
    gain
        Part of the time that a new plan must save to be worth a change.
    plan_time_limit
        Seconds that rank 0 may plan for.
    seconds_now
        What such an all-reduce takes now, if that is known. Where the network as measured would have it take
        much more or less, the measurement does not explain what happens, and nothing is changed.

    Raises
    ------
    InputError
        If the communicator has no topology, or is of some of the ranks only.
    PeerLost, TimedOut
        If a rank is gone or does not come.
    RuntimeFailure
        If rank 0 cannot plan; then nothing changes anywhere.
    """
    known, control_plane = communicator.network, communicator._control_plane
    if known is None or control_plane is None or known.ranks != communicator.size:
        msg = "adapting needs a communicator of all ranks whose topology is known; weft.init(topology=...)"
        raise InputError(msg)
    topology = remeasure(known, probe(control_plane, ProbeEffort(seconds), memory=False))
    size = size_bytes or _latest_size(communicator)

    def decide() -> bytes:
        schedule, segment = communicator.choose("all_reduce", size)
        before = _time(_elsewhere(schedule, topology), size, segment)
        with PlanningNotice(f"the all_reduce on {topology.name}", plan_time_limit) as notice:
            made = plan(
                topology,
                size,
                time_limit=plan_time_limit,
                warm_start=communicator.plan,
                progress=notice.note,
            )
        choice = made.choose(size)
        after = _time(choice.schedule, size, choice.segment_bytes)
        explains = seconds_now is None or 1 / _PLAUSIBLE < before / seconds_now < _PLAUSIBLE
        worth = explains and after < (1 - gain) * before
        return msgspec.msgpack.encode(_Decision(before, after, encode_plan(made) if worth else b""))

    told = msgspec.msgpack.decode(share(communicator, decide, plan_time_limit), type=_Decision)
    new = decode_plan(told.plan) if told.plan else None
    if new is not None:
        communicator.use_plan(new)
    return Adaptation(topology, told.before, told.after, new)


class SpeedWatch:
    """Looks at how long steps take, and adapts when they take longer than they used to.

    A plan that was changed is on probation: if the next steps are slower than those that made it change, the
    one before is taken again, and stays.

    Parameters
    ----------
    communicator
        As for `adapt`. What its steps take at best, since this watch began, is what they should take.
    slower
        How many times as long as at best.
    steps
        How many in a row, so that a hiccup is not taken for a change.
    size_bytes
        Of the all-reduce that matters; by default the largest operation that was the latest at a step.

    Examples
    --------
    In a training loop, on every rank::

        watch = Watch(comm)
        for batch in data:
            ...
            began = time.perf_counter()
            comm.all_reduce(gradients)
            watch.step(time.perf_counter() - began)
    """

    def __init__(
        self,
        communicator: Communicator,
        *,
        slower: float = 1.2,
        steps: int = 3,
        size_bytes: int | None = None,
    ) -> None:
        if not slower > 1 or steps < 1:
            msg = f"{slower:g} times slower, {steps} steps in a row: give more than 1, and at least 1"
            raise InputError(msg)
        self._communicator, self._slower = communicator, slower
        self._size, self._given = size_bytes or 0, size_bytes is not None
        self._latest: deque[float] = deque(maxlen=steps)
        self._best = float("inf")
        self._replaced: tuple[ScheduleSelector, float] | None = None

    def step(self, seconds: float) -> Adaptation | None:
        """Take note of one step; every rank calls this, and it costs a small all-reduce.

        Returns
        -------
        Adaptation or None
            What came of adapting, if that was due.
        """
        if not self._given:
            self._size = max(self._size, _latest_size(self._communicator))
        self._latest.append(float(self._communicator.all_reduce(np.array([seconds]), "max")[0]))
        if len(self._latest) < (self._latest.maxlen or 0):
            return None
        now = median(self._latest)
        if self._replaced is not None:
            self._judge(now)
            return None
        self._best = min(self._best, now)
        if min(self._latest) < self._slower * self._best:
            return None
        before = self._communicator._chooser
        came = adapt(self._communicator, size_bytes=self._size, seconds_now=now)
        self._latest.clear()
        self._best = now  # whatever came of it: only what is slower than this is news again
        if came.plan is not None:
            self._replaced = before, now
        return came

    def _judge(self, now: float) -> None:
        """Keep a plan that was changed, or go back to the one before; all ranks see the same times."""
        assert self._replaced is not None
        chooser, before = self._replaced
        self._replaced = None
        if now > before:
            self._communicator.use(chooser)
            self._latest.clear()
        else:
            self._best = now


def _latest_size(communicator: Communicator) -> int:
    return _USUAL_BYTES if communicator.last is None else max(1, communicator.last.size_bytes)


def remeasure(topology: Topology, found: Measurements) -> Topology:
    """A topology with the speeds that were measured; where it has no cables of its own, what was inferred."""
    if found.cables and join_all(len(found.hosts), found.cables):
        return _with_speeds(topology, found)
    for number, host in enumerate(found.hosts):
        if len(host) > 1:
            found.memory[number] = [_inside(topology, rank) for rank in host]
    return infer(found).topology


def _with_speeds(topology: Topology, found: Measurements) -> Topology:
    """Cables keep their places; one that was not found keeps its speed, for it may only not be measurable."""
    speeds = {}
    for number, cable in enumerate(found.cables):
        for src, dst in (cable.hosts, cable.hosts[::-1]):
            rates = found.rates(Flow(src, dst, number))
            if rates:
                speeds[cable.address_of(src), cable.address_of(dst)] = round(plateau(rates).value)
    bandwidth = topology.bandwidth.copy()
    for link, src_address, dst_address in topology.addresses:
        bandwidth[link] = speeds.get((src_address, dst_address), bandwidth[link])
    return replace(topology, bandwidth=bandwidth)


def _inside(topology: Topology, rank: int) -> float:
    """Bytes per second between a rank and others of its host, as claimed."""
    return float(topology.bandwidth[topology.link_src == rank].max())


def _elsewhere(schedule: Schedule, topology: Topology) -> Schedule:
    """The same schedule on a network as it is now, by the routes it names where these are still there."""
    before = schedule.topology
    same = np.array_equal(before.link_src, topology.link_src)
    if same and np.array_equal(before.link_dst, topology.link_dst):
        return replace(schedule, topology=topology)
    return replace(
        schedule,
        topology=topology,
        route=np.full(schedule.transfers, DEFAULT_ROUTE, np.int32),
        route_offsets=np.zeros(1, np.int64),
        route_links=np.zeros(0, np.int32),
    )


def _time(schedule: Schedule, size_bytes: int, segment_bytes: int | None) -> float:
    return simulate(schedule, size_bytes, segment_bytes=segment_bytes, sharing="fluid", max_work=None).seconds
