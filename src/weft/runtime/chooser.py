"""Which schedule runs for which collective and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.algorithms import registry
from weft.errors import InputError
from weft.topology import load_topology

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology


class Chooser:
    """A plan's choice where there is a plan, else an algorithm's schedule on a topology.

    Parameters
    ----------
    ranks
        Of the job.
    plan
        For its collective, whatever the size.
    topology
        For everything else; by default every rank reaches every other alike, as in one machine.
    algorithm
        Name in the registry.

    Raises
    ------
    InputError
        If plan or topology are for another number of ranks.
    """

    def __init__(
        self,
        ranks: int,
        *,
        plan: Plan | None = None,
        topology: Topology | str | None = None,
        algorithm: str = "direct",
    ) -> None:
        self.plan = plan
        self.topology = load_topology(topology if topology is not None else f"fullmesh:{max(2, ranks)}")
        self.algorithm = registry.find(algorithm)
        planned = [] if plan is None else [("plan", plan.topology)]
        for what, there in [*planned, ("topology", self.topology)]:
            if ranks > 1 and there.ranks != ranks:
                msg = f"the {what} is for {there.name}, {there.ranks} ranks; this job has {ranks}"
                raise InputError(msg)
        self._built: dict[tuple[str, int], Schedule] = {}

    def choose(self, collective: str, size_bytes: int, root: int) -> tuple[Schedule, int | None]:
        """Schedule and bytes of a segment, None for the runtime's own."""
        if self.plan is not None and self.plan.collective == collective:
            choice = self.plan.choose(max(1, size_bytes))
            return choice.schedule, choice.segment_bytes
        key = (collective, root)
        if key not in self._built:
            from weft.verification import verify

            self._built[key] = self.algorithm.build(self.topology, collective, root)
            verify(self._built[key])
        return self._built[key], None
