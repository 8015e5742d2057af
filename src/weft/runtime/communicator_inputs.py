"""The inputs of a communicator: the plan, the schedule and the topology that say what runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import limits
from weft.errors import InputError

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology


@dataclass(frozen=True)
class CommunicatorInputs:
    """The plan, the schedule and the topology of a communicator, loaded.

    Parameters
    ----------
    plan, schedule, topology, algorithm, max_work
        As for `weft.init`.
    """

    plan: Plan | None = None
    schedule: Schedule | None = None
    topology: Topology | None = None
    algorithm: str | None = None
    max_work: float | None = limits.MAX_WORK

    @property
    def network(self) -> Topology | None:
        """The cluster that schedules are for, if known: that of the plan or schedule, if one is given."""
        given = self.plan or self.schedule
        return self.topology if given is None else given.topology

    @property
    def unplanned_topology(self) -> Topology | None:
        """The topology that rank 0 has to plan for, if nothing else says what runs."""
        return self.topology if (self.plan, self.schedule, self.algorithm) == (None, None, None) else None


def load_inputs(
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    max_work: float | None = limits.MAX_WORK,
) -> CommunicatorInputs:
    """Load the plan, the schedule and the topology that are given by name; parameters as for `weft.init`.

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
    if plan is not None:
        check_plan(plan)
    found = None
    if topology is not None:
        from weft.topology import load_topology

        found = load_topology(topology)
    if plan is not None and found is not None:
        plan.check_topology(found)
    return CommunicatorInputs(plan, schedule, found, algorithm, max_work)


def check_plan(plan: Any) -> None:
    """Refuse what is not a plan with an `InputError`."""
    from weft.planning import Plan

    if not isinstance(plan, Plan):
        msg = f"expected a plan, as weft.plan or weft.load_plan returns it, not {type(plan).__name__}"
        raise InputError(msg)
