"""Runs damages to frames, and judges what became of each."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict, dataclass
from typing import Any

from support.faults import frames
from support.faults.case import Setting
from support.faults.damage import Damage
from support.faults.nursery import Nursery
from support.faults.outcome import Facts, read_reports
from support.faults.trial import case_folder, job_variables

SECONDS_EACH = 9.0


@dataclass(frozen=True)
class Suffered:
    """What became of a job whose connection was damaged.

    Parameters
    ----------
    ends
        By rank: what it reported; empty if it never came so far.
    """

    damage: Damage
    ends: tuple[Facts, ...]

    @property
    def happened(self) -> bool:
        """Whether what was sent differs from what it should have been."""
        return any(end["damaged"] for end in self.ends)

    @property
    def detected(self) -> bool:
        """Whether a rank has raised one of Weft's errors, and none has returned a wrong sum."""
        raised = [end for end in self.ends if end["end"] != "done"]
        return len(self.ends) == frames.RANKS and bool(raised) and not self.problems()

    def problems(self) -> list[str]:
        """What is not as promised."""
        if len(self.ends) < frames.RANKS:
            return ["a rank did not end in time"]
        found = [f"{end['wrong']} elements of a sum were wrong" for end in self.ends if end["wrong"]]
        found += [f"{end['end']}: {end['text']}" for end in self.ends if not end.get("expected", True)]
        if self.happened and all(end["end"] == "done" for end in self.ends):
            found.append("nobody has noticed")
        return found

    def summary(self) -> dict[str, Any]:
        """What is worth keeping."""
        return {**asdict(self.damage), "ends": [end["end"] for end in self.ends], "problems": self.problems()}


def run_damages(damages: list[Damage], nursery: Nursery) -> tuple[list[Suffered], list[str]]:
    """Damage connections of two ranks, one job after the other; what became of each, and what was left."""
    with case_folder() as folder, job_variables(folder, Setting("tcp", frames.RANKS)) as variables:
        frames.write_order(folder, damages)
        variables["WEFT_FLIGHT_DIR"] = ""  # thousands of failures, each on purpose
        ranks = [
            nursery.start_program(
                folder, rank, program="frames", variables={**variables, "WEFT_RANK": str(rank)}
            )
            for rank in range(frames.RANKS)
        ]
        deadline = time.monotonic() + 60 + SECONDS_EACH * len(damages)
        try:
            ended = [rank.ends_within(max(0.0, deadline - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGKILL)
        reports = read_reports(folder, frames.RANKS)
        left = [] if all(ended) else ["a rank did not end in time"]
        left += [line for facts in reports.values() for one in facts for line in one.get("left", [])]
        output = [path.read_text("utf-8", "replace") for path in folder.glob("rank-*.txt")]
        left += [text[-500:] for text in output if "Traceback" in text]
    ends = [[facts for facts in reports[rank] if "end" in facts] for rank in range(frames.RANKS)]
    return [
        Suffered(damage, tuple(some[number] for some in ends if number < len(some)))
        for number, damage in enumerate(damages)
    ], left
