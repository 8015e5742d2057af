"""Runtimes beside each other on an emulated cluster: measured in turn, each beside its prediction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.algorithms import ring
from weft.algorithms.common.ring_orders import ring_order
from weft.bench.bench_session import BenchSession
from weft.bench.measure import BenchEffort, measure
from weft.bench.peers import find_entry
from weft.bench.task import BenchTask
from weft.lab.expected_time import emulated, predict
from weft.planning.plan_file import save_plan
from weft.planning.planner import plan
from weft.runtime.operation_queue import SEGMENT_BYTES
from weft.schedule.codec import save_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.lab.network import Network
    from weft.planning import Plan
    from weft.schedule import Schedule

OWN: Final = "weft"
BEST_ORDER: Final = "best order"
RANK_ORDER: Final = "rank order"
_NOTHING_GIVEN: Final = dict.fromkeys(("topology", "algorithm", "plan", "schedule"))


@dataclass(frozen=True)
class Entrant:
    """Who takes part, and how.

    Parameters
    ----------
    name
        Each has its own; that of the one to which all others are compared is ``weft``.
    runtime
        Name of a peer of ``weft bench``.
    schedule, plan
        What Weft runs; none of them for what it plans itself. What a plan that was made for another view of
        the network takes is not predicted.
    order
        Which rank of the topology each rank of the job takes the place of; None for its own.
    """

    name: str
    runtime: str = OWN
    schedule: Schedule | None = None
    plan: Plan | None = None
    order: tuple[int, ...] | None = None


@dataclass
class EntrantResult:
    """What one entrant did: the schedule it ran, if it told, and its time beside the predicted one."""

    name: str
    runtime: str
    algorithm: str | None = None
    digest: str | None = None
    order: tuple[int, ...] | None = None
    predicted_seconds: float | None = None
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    median_seconds: float = 0.0

    @property
    def deviation(self) -> float | None:
        """How much longer it took than predicted, as a share of that."""
        if self.predicted_seconds is None:
            return None
        return self.median_seconds / self.predicted_seconds - 1

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft lab bench --json`` prints them."""
        return {**asdict(self), "deviation": self.deviation}


def peers_of(network: Network, names: Sequence[str]) -> list[Entrant]:
    """Runtimes to compare with; Gloo both in the order of the ranks and in the best one for its ring."""
    entrants = []
    for name in names:
        if name != "gloo":
            entrants.append(Entrant(name, name))
            continue
        best = tuple(ring_order(network.topology)[0])
        identity = tuple(range(network.topology.ranks))
        entrants.append(Entrant(f"gloo, {RANK_ORDER}", name, order=identity))
        if best != identity:
            entrants.append(Entrant(f"gloo, {BEST_ORDER}", name, order=best))
    return entrants


def hold(
    network: Network,
    entrants: Sequence[Entrant],
    size_bytes: int,
    *,
    rounds: int,
    timeout: float,
    progress: Callable[[str], None] = lambda _now: None,
) -> list[EntrantResult]:
    """Measure an in-place all-reduce of float32, every entrant in turn, round after round.

    Parameters
    ----------
    network
        Where.
    entrants
        Who; the first is Weft's own, called ``weft``.
    size_bytes
        Of the buffer of each rank.
    rounds
        How often each is measured.
    timeout
        Seconds for a job to start, and for each operation.
    progress
        Told what is going on.
    """
    ranks = network.topology.ranks
    task = BenchTask("all_reduce", "float32", "sum", ranks, size_bytes // 4)
    with BenchSession(timeout) as stage:
        outcomes, teams = [], []
        for entrant in entrants:
            progress(f"starting {entrant.name}")
            outcome = EntrantResult(entrant.name, entrant.runtime, order=entrant.order)
            settings = _prepare(network, entrant, outcome, size_bytes, stage.folder)
            seats = network.seats(entrant.order)
            entry = find_entry(entrant.runtime)
            team = stage.start(entry, ranks, settings, name=entrant.name, seats=seats)
            outcomes.append(outcome)
            teams.append(team)
        progress(f"{rounds} rounds")
        row = next(measure(teams, [task], BenchEffort(rounds, 1, 0), ["in"], lambda _task: None))
        for outcome in outcomes:
            series, ran = row.series[outcome.name]["in"], row.ran[outcome.name]
            outcome.algorithm = ran.get("algorithm", outcome.algorithm)
            outcome.digest = ran.get("digest")
            outcome.wrong, outcome.median_seconds = series.wrong or 0, series.median
            outcome.seconds, outcome.cpu_seconds = series.seconds, series.cpu_seconds
        for team in teams:
            team.leave()
    return outcomes


def _prepare(
    network: Network, entrant: Entrant, outcome: EntrantResult, size_bytes: int, folder: str
) -> dict[str, Any]:
    """What a job is told; the prediction goes to the outcome."""
    settings: dict[str, Any] = {"memory": "private", "transport": "auto", **_NOTHING_GIVEN}
    path = str(Path(folder, f"{entrant.name}.weft"))
    if entrant.runtime == "gloo":
        # Gloo's ring goes down the ranks: each receives from the next and sends to the one before.
        outcome.algorithm = "ring"
        order = entrant.order or range(network.topology.ranks)
        its_ring = ring.all_reduce(network.topology, order=order[::-1])
        outcome.predicted_seconds = predict(its_ring, size_bytes)
    elif entrant.runtime == OWN and entrant.schedule is not None:
        save_schedule(entrant.schedule, path)
        settings["schedule"] = path
        outcome.predicted_seconds = predict(
            entrant.schedule, size_bytes, network.topology, segment_bytes=SEGMENT_BYTES
        )
    elif entrant.runtime == OWN:
        given = entrant.plan or plan(emulated(network.topology), size_bytes)
        save_plan(given, path)
        settings["plan"] = path
        if entrant.plan is None:
            choice = given.choose(size_bytes)
            cut = choice.segment_bytes
            seconds = predict(choice.schedule, size_bytes, network.topology, segment_bytes=cut)
            outcome.predicted_seconds = seconds
    return settings
