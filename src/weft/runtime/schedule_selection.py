"""Schedule selection: which schedule runs for a collective and a size."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from weft.algorithms import registry
from weft.errors import InputError, ScheduleError, UnsupportedError
from weft.runtime.communicator_inputs import CommunicatorInputs
from weft.topology.full_mesh import full_mesh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology

Chosen: TypeAlias = "tuple[Schedule, int | None]"
"""A schedule, and bytes of a segment; None for the runtime's own, all bytes for messages that stay whole."""

_log: Final = logging.getLogger("weft.runtime")

_NOTHING: Final = CommunicatorInputs()
"""Neither a plan nor a schedule, topology or algorithm is given."""

_SMALL: Final = 16 << 10
"""Bytes up to which a message takes the same time however short it is: few rounds are better."""

_MANY_HOSTS: Final = 8
"""From here on a ring between hosts, which talks to two others only, instead of everyone to everyone."""


class ScheduleSelector:
    """A plan's choice where there is a plan, else an algorithm's schedule on a topology.

    Without any of them, what suits ranks that reach each other through memory: for a small all-reduce few
    rounds, for a large one everybody's part straight from everybody. Over several hosts, the same inside each
    host, and between hosts a schedule that gives each rank its slice.

    Parameters
    ----------
    ranks
        Of the job.
    inputs
        The plan runs for its collective, whatever the size; so does the schedule, which is verified. Either
        may be for as many ranks as there are hosts, and then runs between the hosts. The topology and the
        algorithm are for everything else; by default every rank reaches every other alike, as in one machine.
    further
        Plans of other collectives for the same ranks.
    hosts
        The ranks of each host, where there are several.

    Raises
    ------
    InputError
        If plan or topology are for another number of ranks.
    LimitError
        If verifying a schedule of a plan or file would take more operations than ``inputs.max_work``.
    """

    def __init__(
        self,
        ranks: int,
        inputs: CommunicatorInputs = _NOTHING,
        *,
        further: Sequence[Plan] = (),
        hosts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.inputs, self.further, self._ranks = inputs, tuple(further), ranks
        self.hosts = hosts if hosts is not None and 1 < len(hosts) < ranks else None
        self.topology = inputs.topology or _alike(max(2, ranks))
        plan, schedule, algorithm = inputs.plan, inputs.schedule, inputs.algorithm
        if plan is not None and schedule is not None:
            raise InputError("plan= and schedule= exclude each other: pass one of them")
        planned = [("plan", one.topology) for one in (plan, *further) if one is not None]
        prescribed = [] if schedule is None else [("schedule", schedule.topology)]
        for what, there in [*planned, *prescribed, ("topology", self.topology)]:
            self.check_ranks(what, there)
        self._built: dict[tuple[str, str, int, int], Schedule] = {}
        self._spread: dict[str, Schedule] = {}
        self._halved: dict[str, tuple[Schedule, Schedule] | None] = {}
        self._proven: set[str] = set()
        if schedule is not None:
            self._verified(schedule)
        if algorithm is not None and "all_reduce" in registry.find(algorithm).collectives and ranks > 1:
            self._build(algorithm, "all_reduce", 0)  # what does not apply here is told at once

    def check_ranks(self, what: str, topology: Topology) -> None:
        """Refuse the topology of `what` if it is neither of these ranks nor of their hosts."""
        counts = {self._ranks} if self.hosts is None else {self._ranks, len(self.hosts)}
        if self._ranks > 1 and topology.ranks not in counts:
            spread = "" if self.hosts is None else f" on {len(self.hosts)} hosts"
            made_for = f"{topology.name}, {topology.ranks} ranks"
            msg = f"the {what} is for {made_for}; this job has {self._ranks}{spread}"
            raise InputError(f"{msg}: start {topology.ranks} ranks, or give none or another {what}")

    def on(
        self, topology: Topology | None, plan: Plan | None = None, further: Sequence[Plan] = ()
    ) -> ScheduleSelector:
        """The same choices on another cluster of as many ranks.

        Parameters
        ----------
        topology
            None if it is not known.
        plan, further
            Instead of the plans or schedule so far.
        """
        inputs = replace(self.inputs, plan=plan, schedule=None, topology=topology)
        return ScheduleSelector(self._ranks, inputs, further=further, hosts=self.hosts)

    def extended(self, further: Sequence[Plan]) -> ScheduleSelector:
        """The same choices, and plans of other collectives for the same cluster."""
        inputs = replace(self.inputs, topology=self.inputs.network)
        return ScheduleSelector(self._ranks, inputs, further=further, hosts=self.hosts)

    def among(
        self, ranks: int, hosts: Sequence[Sequence[int]], topology: Topology | None
    ) -> ScheduleSelector:
        """The same choices for the ranks that are left of these.

        An algorithm that does not apply to them is given up, which is logged.

        Parameters
        ----------
        ranks, hosts
            Those that are left.
        topology
            What is left of the cluster; None if it is not known.
        """
        inputs = CommunicatorInputs(topology=topology, algorithm=self.inputs.algorithm)
        try:
            return ScheduleSelector(ranks, inputs, hosts=hosts)
        except UnsupportedError as error:
            _log.warning("%s; the ranks that are left choose by themselves", error)
            return ScheduleSelector(ranks, replace(inputs, algorithm=None), hosts=hosts)

    def choose(self, collective: str, size_bytes: int, root: int) -> Chosen:
        """Schedule and bytes of a segment; None for the runtime's own, all bytes for whole messages."""
        for plan in (self.inputs.plan, *self.further):
            if plan is not None and (plan.collective, plan.root) == (collective, root):
                choice = plan.choose(max(1, size_bytes))
                segment = choice.segment_bytes or max(1, size_bytes)
                return self._fit(self._verified(choice.schedule)), segment
        own, algorithm = self.inputs.schedule, self.inputs.algorithm
        if own is not None and (own.collective, _root(own)) == (collective, root):
            return self._fit(own), None
        if collective == "all_reduce" and algorithm is None and self.inputs.topology is None:
            if size_bytes == 0 and self.hosts is None:
                # Nothing is sent that a rank could wait for: so each meets all others, and learns whether
                # one is elsewhere.
                return self._build("direct", collective, root), None
            if size_bytes <= _SMALL:
                return self._build("recursive_doubling", collective, root), None
            if self.hosts is not None:
                name = "ring" if len(self.hosts) > _MANY_HOSTS else "direct"
                between_hosts = _alike(len(self.hosts))
                return self._build(name, collective, root, between_hosts), None
        return self._build(algorithm or "direct", collective, root), None

    def choose_halves(self, size_bytes: int) -> tuple[Chosen, Chosen]:
        """What runs for the two halves of an all-reduce, so that what the first leaves the second finds.

        Those of the schedule that would run for the whole, or a reduce-scatter and an all-gather that were
        planned each for itself: whichever the simulator finds faster.
        """
        whole, segment = self.choose("all_reduce", size_bytes, 0)
        pairs: list[tuple[Chosen, Chosen]] = []
        if (cut := self._halve(whole)) is not None:
            pairs.append(((cut[0], segment), (cut[1], segment)))
        if {"reduce_scatter", "all_gather"} <= {plan.collective for plan in self.further}:
            planned = (self.choose(half, size_bytes, 0) for half in ("reduce_scatter", "all_gather"))
            pairs.append((next(planned), next(planned)))
        if not pairs:
            scatter, gather = (self._build("direct", half, 0) for half in ("reduce_scatter", "all_gather"))
            return (scatter, None), (gather, None)
        if len(pairs) == 1:
            return pairs[0]
        return min(pairs, key=lambda pair: _predict(pair, max(1, size_bytes)))

    def _halve(self, whole: Schedule) -> tuple[Schedule, Schedule] | None:
        """Verified halves of an all-reduce; None if it has none."""
        if whole.digest not in self._halved:
            from weft.schedule.passes import halves

            try:
                found = halves(whole)
            except ScheduleError:
                self._halved[whole.digest] = None
            else:
                self._halved[whole.digest] = self._verified(found[0]), self._verified(found[1])
        return self._halved[whole.digest]

    def _build(self, name: str, collective: str, root: int, on: Topology | None = None) -> Schedule:
        """Verified schedule of an algorithm, on a topology or on the one that is for the collective."""
        where = self._where(collective) if on is None else on
        key = (name, collective, root, where.ranks)
        if key not in self._built:
            schedule = registry.find(name).build(where, collective, root)
            self._built[key] = self._fit(self._verified(schedule, bounded=False))
        return self._built[key]

    def _verified(self, schedule: Schedule, *, bounded: bool = True) -> Schedule:
        """The schedule, which is proven once: a file may hold anything."""
        if schedule.digest not in self._proven:
            from weft.verification import verify

            verify(schedule, max_work=self.inputs.max_work if bounded else None)
            self._proven.add(schedule.digest)
        return schedule

    def _where(self, collective: str) -> Topology:
        """A topology of hosts says how to all-reduce between them; for anything else ranks are alike."""
        if self.topology.ranks == self._ranks or collective == "all_reduce":
            return self.topology
        return _alike(self._ranks)

    def _fit(self, schedule: Schedule) -> Schedule:
        """Take a schedule of ranks as it is, and spread one of hosts over their ranks."""
        if schedule.ranks == self._ranks or self.hosts is None:
            return schedule
        if schedule.digest not in self._spread:
            from weft.algorithms.common.host_composition import spread

            self._spread[schedule.digest] = self._verified(spread(schedule, self.hosts))
        return self._spread[schedule.digest]


def _alike(ranks: int) -> Topology:
    """What a job runs on whose cluster nobody describes: every rank reaches every other alike."""
    return full_mesh(f"fullmesh:{ranks}", ranks)


def _predict(pair: tuple[Chosen, Chosen], size_bytes: int) -> float:
    from weft.simulation import simulate

    return sum(simulate(schedule, size_bytes, segment_bytes=segment).seconds for schedule, segment in pair)


def _root(schedule: Schedule) -> int:
    """Root of a broadcast or reduce; 0 for what has none."""
    ends = {"broadcast": schedule.source, "reduce": schedule.target}.get(schedule.collective)
    return 0 if ends is None or not len(ends) else int(ends[0])
