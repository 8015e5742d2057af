"""What became of a job: what each rank said and when, and what was left behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.faults.case import Case

Facts = dict[str, Any]

OPERATING = ("learn", "reduce", "gather")
"""Phases in which an operation can fail; what fails before has no communicator to record."""

GONE_WITHIN_S = 2.0
"""What a launcher has to end a job in which a rank was killed."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    Parameters
    ----------
    reports
        By rank: everything it has reported.
    codes
        By rank: how its process ended; None if it had to be killed by the test.
    left
        What remained after all processes had ended, empty as it should be.
    output
        What processes printed: tracebacks, and what the launcher said.
    gone_after
        Seconds from the fault until no process of the job was left, where a launcher ends them.
    flights
        The ranks that have written a flight record that can be read.
    """

    case: Case
    reports: dict[int, list[Facts]]
    codes: dict[int, int | None]
    left: list[str]
    output: str = ""
    gone_after: float | None = None
    flights: frozenset[int] = frozenset()

    def fact(self, rank: int, name: str) -> Any:
        """What a rank reported under a name, None if it has not."""
        return next((facts[name] for facts in self.reports.get(rank, []) if name in facts), None)

    def error(self, rank: int) -> Facts | None:
        """The error that a rank has raised."""
        return next((facts for facts in self.reports.get(rank, []) if "raised" in facts), None)

    @property
    def struck(self) -> Facts | None:
        """When, and in which phase, the fault happened."""
        return next(
            (facts for facts in self.reports.get(self.case.fault.rank, []) if "struck" in facts), None
        )

    @property
    def survivors(self) -> list[int]:
        """The ranks that the fault is not for."""
        return [rank for rank in range(self.case.setting.ranks) if rank != self.case.fault.rank]

    def seconds(self) -> dict[int, float]:
        """By survivor: from the fault, or from the call that met it if that came later, until it raised."""
        if self.struck is None:
            return {}
        errors = {rank: error for rank in self.survivors if (error := self.error(rank)) is not None}
        return {
            rank: error["raised"] - max(self.struck["struck"], error["entered"])
            for rank, error in errors.items()
        }

    def misnaming(self) -> list[int]:
        """Survivors whose error names another rank than the lost one, or none."""
        victim = self.case.fault.rank
        pid = self.fact(victim, "pid")
        wrong = []
        for rank in self.survivors:
            error = self.error(rank)
            if error is None:
                continue
            right = error.get("names") == [victim] and error.get("named_pid", pid) in (pid, None)
            if not right:
                wrong.append(rank)
        return wrong

    def problems(self) -> list[str]:
        """Everything that is not as promised, in words; empty as it should be."""
        found = [*self.left]
        if self.case.fault.is_fatal and self.struck is None:  # a process may be over before its last phase is
            return found if self.case.fault.phase == "close" else [*found, "the fault never happened"]
        if self.case.setting.way == "mpi" and self.case.fault.action == "kill":
            return found + self._problems_of_launcher()
        for rank in range(self.case.setting.ranks):
            found += self._problems_of(rank)
        if self.case.fault.is_fatal:
            found += [f"rank {rank} names {self._named(rank)}" for rank in self.misnaming()]
        return found

    def _problems_of_launcher(self) -> list[str]:
        """``mpirun`` ends the job: nobody has to raise, but all have to be gone, and the lost one named."""
        pid = self.fact(self.case.fault.rank, "pid")
        found = []
        if self.gone_after is None or self.gone_after > GONE_WITHIN_S:
            found.append(f"the job was gone after {self.gone_after} s")
        if f"rank {self.case.fault.rank} with PID {pid}" not in " ".join(self.output.split()):
            found.append(f"the launcher does not name rank {self.case.fault.rank}: {self.output[-300:]}")
        return found

    def _named(self, rank: int) -> str:
        error = self.error(rank) or {}
        return (
            f"{error.get('names')} (pid {error.get('named_pid')}): {error.get('kind')}: {error.get('text')}"
        )

    def _problems_of(self, rank: int) -> list[str]:
        fault, error = self.case.fault, self.error(rank)
        victim = rank == fault.rank and fault.is_fatal
        if victim and not fault.thaws:
            return []
        found = []
        if error is not None and not error["expected"]:
            found.append(f"rank {rank} raised {error['kind']}: {error['text']}")
        if error is None and fault.is_fatal and fault.phase != "close":
            found.append(f"rank {rank} raised nothing")
        if error is not None and not fault.is_fatal:
            found.append(f"rank {rank} raised {error['kind']} although nobody was lost: {error['text']}")
        if error is not None and error["phase"] in OPERATING and rank not in self.flights:
            found.append(f"rank {rank} wrote no flight record")
        if self.codes.get(rank) != 0:
            found.append(f"rank {rank} ended with {self.codes.get(rank)}")
        if changed := self.fact(rank, "changed"):
            found.append(f"{changed} bytes of rank {rank} changed after it had raised")
        if left := self.fact(rank, "left"):
            found.append(f"rank {rank} still had {', '.join(left)}")
        if (close := next((f for f in self.reports.get(rank, []) if "close_raised" in f), None)) is not None:
            found.append(f"rank {rank} raised in close: {close['text']}")
        return found

    def summary(self) -> Facts:
        """What is worth keeping, for a table of many."""
        setting, fault, seconds = self.case.setting, self.case.fault, self.seconds()
        return {
            "way": setting.way,
            "ranks": setting.ranks,
            "elements": setting.elements,
            "algorithm": setting.algorithm,
            "shared": setting.shared,
            "action": fault.action,
            "victim": fault.rank,
            "phase": fault.phase,
            "struck_in": None if self.struck is None else self.struck["phase"],
            "raised": len(seconds),
            "kinds": sorted({str((self.error(rank) or {}).get("kind")) for rank in self.survivors}),
            "seconds": round(max(seconds.values()), 4) if seconds else None,
            "seconds_each": [round(one, 4) for one in seconds.values()],
            "named_wrongly": len(self.misnaming()),
            "left_behind": len(self.left) + sum(len(self.fact(r, "left") or ()) for r in self.survivors),
            "bytes_watched": sum(self.fact(r, "bytes") or 0 for r in self.survivors),
            "bytes_changed": sum(self.fact(r, "changed") or 0 for r in self.survivors),
            "close_seconds": round(
                max((self.fact(r, "seconds") or 0.0 for r in self.survivors), default=0.0), 4
            ),
            "gone_after_s": self.gone_after,
            "problems": self.problems(),
        }


def read_flights(folder: Path) -> frozenset[int]:
    """The ranks whose flight records lie in a folder, whole."""
    found = set()
    for path in folder.glob("flight-*.json"):
        record: Facts = json.loads(path.read_text("utf-8"))
        found.add(int(record["rank"]))
    return frozenset(found)


def read_reports(folder: Path, ranks: int) -> dict[int, list[Facts]]:
    """By rank: all that it has written so far."""
    found = {}
    for rank in range(ranks):
        path = folder / f"rank-{rank}.jsonl"
        text = path.read_text("utf-8") if path.exists() else ""
        found[rank] = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return found
