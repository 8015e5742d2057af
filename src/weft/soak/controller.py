"""The controller of a soak test: it orders episodes, counts what they did, and judges the outcome.

Ranks that are killed by plan are started again, and all ranks then meet anew. The others stay the processes
that they are, so that what failures leave behind adds up in them, and is seen.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final

import msgspec

from weft.runtime.bootstrap.environment import LOOPBACK
from weft.runtime.bootstrap.meeting_point import reserve_port
from weft.runtime.diagnosis import diagnose, load_flight
from weft.runtime.extension import require_runtime
from weft.runtime.launcher.launch import job_variables
from weft.soak.health import Sample, judge_growth
from weft.soak.random_operations import choose_algorithm, make_episode
from weft.soak.rank_processes import WORKER, RankProcesses, Trouble
from weft.soak.tally import SoakFailure, SoakOutcome, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.soak.random_operations import Episode
    from weft.soak.settings import Settings

_TICK_S: Final = 0.2
_JOB_VARIABLES: Final = tuple(
    f"WEFT_{name}" for name in ("SIZE", "LOCAL_SIZE", "ADDRESS", "PORT", "JOB", "SECRET")
)


def run(
    settings: Settings, watch: Callable[[Tally], None], *, command: Sequence[str] = WORKER
) -> SoakOutcome:
    """Run a soak test.

    Parameters
    ----------
    settings
        What to do.
    watch
        Called a few times a second with the tally.
    command
        Program of a rank; another one only to see what the test finds.

    Raises
    ------
    InputError
        If `weft._runtime` is not there.
    RuntimeFailure
        If the ranks cannot be started.
    """
    require_runtime()
    return _Controller(settings, watch).run(command)


class _Controller:
    def __init__(self, settings: Settings, watch: Callable[[Tally], None]) -> None:
        self._settings, self._watch = settings, watch
        self._tally = Tally()
        self._samples: list[Sample] = []
        self._number = settings.start
        self._episode: Episode | None = None
        self._began = time.monotonic()

    def run(self, command: Sequence[str]) -> SoakOutcome:
        failure = None
        with RankProcesses(self._settings, command, self._tick) as processes:
            processes.start()
            self._began = time.monotonic()
            try:
                self._soak(processes)
            except Trouble as trouble:
                failure = self._describe(trouble, processes)
            self._tally.seconds = self._elapsed()
        growth = judge_growth(self._samples)
        if failure is None and (leaks := [str(one) for one in growth if one.leaks]):
            failure = SoakFailure("leak", "; ".join(leaks), self._settings.start)
        return SoakOutcome(self._settings, self._tally, failure, growth)

    def _soak(self, processes: RankProcesses) -> None:
        algorithm: str | None = None
        joined = False
        while self._goes_on():
            if not joined:
                algorithm = choose_algorithm(self._settings, self._number)
                self._join(processes, algorithm)
            self._episode = episode = make_episode(self._settings, self._number, algorithm)
            self._carry_out(processes, episode)
            joined = episode.ending == "stay"
            self._number += 1
        self._episode = None
        processes.order([{"do": "leave"}] * self._settings.ranks)
        for rank in range(self._settings.ranks):
            processes.await_end(rank, 0)

    def _join(self, processes: RankProcesses, algorithm: str | None) -> None:
        holder, port = reserve_port(LOOPBACK)
        with holder:
            job = job_variables(self._settings.ranks, port)
            shared = {name: job[name] for name in _JOB_VARIABLES}
            orders = [
                {
                    "do": "join",
                    "algorithm": algorithm,
                    "variables": {**shared, "WEFT_RANK": str(rank), "WEFT_LOCAL_RANK": str(rank)},
                }
                for rank in range(self._settings.ranks)
            ]
            for answer in processes.order(orders):
                assert answer is not None
                self._samples.append(msgspec.convert(answer["sample"], Sample))
        self._tally.joins += 1

    def _carry_out(self, processes: RankProcesses, episode: Episode) -> None:
        kill = episode.kill
        pids = [process.process.pid for process in processes.ranks]
        order = {"do": "episode", "number": episode.number, "pids": pids}
        answers = processes.order([order] * self._settings.ranks, None if kill is None else kill.rank)
        for answer in answers:
            if answer is not None:
                self._tally.operations.update(answer["operations"])
                self._tally.checked_bytes += answer["bytes"]
        self._tally.episodes += 1
        if kill is not None:
            dies_at = processes.ranks[kill.rank].dies_at
            assert dies_at is not None
            self._tally.losses += [answer["lost_at"] - dies_at for answer in answers if answer is not None]
            self._tally.kills += 1
            processes.await_end(kill.rank, -signal.SIGKILL)
            processes.replace(kill.rank)

    def _describe(self, trouble: Trouble, processes: RankProcesses) -> SoakFailure:
        steps = {}
        if self._episode is not None:
            for process in processes.ranks:
                if process.step is not None:
                    steps[process.rank] = f"step {process.step}: {self._episode.steps[process.step]}"
        return SoakFailure(
            trouble.kind, trouble.text, self._number, steps, trouble.said, _findings(processes)
        )

    def _goes_on(self) -> bool:
        done, most = self._tally.episodes, self._settings.episodes
        return not done or (self._elapsed() < self._settings.seconds and (most is None or done < most))

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _tick(self) -> None:
        elapsed = self._elapsed()
        if elapsed - self._tally.seconds >= _TICK_S:
            self._tally.seconds = elapsed
            self._watch(self._tally)


def _findings(processes: RankProcesses) -> list[str]:
    """What the flight records of the ranks say together, if they have left any."""
    records = [load_flight(path) for path in sorted(processes.folder.glob("flight-*.json"))]
    return list(diagnose(records).findings) if records else []
