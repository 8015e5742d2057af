"""One model on one network: an iteration under every policy, and what of the possible gain DeAR reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.papers.claims import StudyCase
from weft.papers.dear.fusion_searches import QuickFusions, search
from weft.papers.dear.setup import authors_lines
from weft.training.exhaustive import FIRST_GUESS
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.policies import LINES, find
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.papers.dear.setup import Setting
    from weft.training.costs import Costs
    from weft.training.layers import Layer

FUSED: Final = ("ddp", "horovod", "horovod-ahead", "mg-wfbp")
"""What the paper holds DeAR against, as far as is known: policies that fuse."""

UNFUSED: Final = ("wfbp", "bytescheduler")
"""And those that do not, which it holds DeAR without fusion against."""

PLAIN: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "serial": ("serial", {}),
    "wfbp": ("wfbp", {}),
    "bytescheduler": ("bytescheduler", {}),
    "ddp": ("ddp", {}),
    "horovod": ("horovod", {}),
    "horovod-ahead": ("horovod", {"host_share": 0.0}),
    "bytescheduler-authors": ("bytescheduler", {"partition_bytes": 16_000_000}),
    "mg-wfbp": ("mg-wfbp", {}),
    "zero": ("zero", {}),
    "dear-unfused": ("dear", {"threshold_bytes": 1}),
    "dear-25MB": ("dear", {"threshold_bytes": FIRST_GUESS}),
}
"""Policies with their options; tuned ones come in addition, and MG-WFBP that believes the authors' lines."""

OURS: Final = "dear-bayesian"
"""DeAR as in the paper: its fusion, its prefetching, its search."""

QUEUED: Final = "dear-queued"
"""DeAR as in `weft.torch`: all all-gathers wait in line from the step on, at the best fusion."""

MOST_TUNED: Final = 500
"""Fusions tried for policies that the tuner table does not judge; in even ratios where there are more."""


@dataclass(frozen=True, slots=True)
class Cell(StudyCase):
    """The times of one model on one network under every policy.

    Parameters
    ----------
    model
        Which one.
    setting
        Name of a `Setting`.
    forward_s, backward_s
        What the model computes.
    all_reduce_s
        Of everything in one piece.
    seconds
        Of an iteration by policy.
    lines
        Times that no fusion can beat, by name.
    tuner
        Of `weft.papers.dear.fusion_searches`.
    """

    derived = ("ideal_gain", "reached", "verdict")

    model: str
    setting: str
    forward_s: float
    backward_s: float
    all_reduce_s: float
    seconds: Mapping[str, float]
    lines: Mapping[str, float]
    tuner: dict[str, Any]

    @property
    def ideal_gain(self) -> float:
        """How much faster the ideal line of DeAR is than that of WFBP; 0 where it is not."""
        return max(0.0, self.lines["ideal-wfbp"] / self.lines["ideal-dear"] - 1)

    @property
    def reached(self) -> float | None:
        """DeAR's share of the way from a perfect WFBP to a perfect DeAR; below 0 if slower than the former.

        None where a perfect DeAR is no faster.
        """
        possible = self.lines["ideal-wfbp"] - self.lines["ideal-dear"]
        if not self.ideal_gain:
            return None
        return (self.lines["ideal-wfbp"] - self.seconds[OURS]) / possible

    def gain(self, over: str, policy: str = OURS) -> float:
        """How much faster a policy is than another, as a share."""
        return self.seconds[over] / self.seconds[policy] - 1

    def gain_over_best(self, of: Sequence[str], policy: str = OURS) -> float:
        """How much faster a policy is than the best of some."""
        return min(self.gain(name, policy) for name in of)

    @property
    def verdict(self) -> str:
        """Whether to use DeAR here, and why not."""
        if self.all_reduce_s <= self.backward_s:
            sent, behind = units.human_seconds(self.all_reduce_s), units.human_seconds(self.backward_s)
            return f"use WFBP: an all-reduce ({sent}) is shorter than backward ({behind}), DeAR cannot win"
        best = min((*FUSED, "wfbp-tuned"), key=lambda name: self.seconds[name])
        queued = f"with all all-gathers queued at the step {self.gain(best, QUEUED):+.1%}"
        if self.gain(best) <= 0:
            slower = self.seconds[OURS] / self.seconds[best] - 1
            return f"use WFBP: {best} is {slower:.1%} faster than DeAR as published; {queued} for DeAR"
        return f"use DeAR: {self.gain(best):.1%} faster than {best}, the best without it; {queued}"


def fill(model: str, layers: Sequence[Layer], setting: Setting) -> Cell:
    """Run every policy.

    Parameters
    ----------
    model
        Its name.
    layers
        In the order of the forward pass.
    setting
        The costs.
    """
    costs = setting.costs
    seconds = {name: iteration(layers, costs, *plain) for name, plain in PLAIN.items()}
    merged = find("mg-wfbp").build(layers, costs=authors_lines(setting.network))
    seconds["mg-wfbp-authors"] = run(merged, costs).seconds
    seconds["wfbp-tuned"] = _best(QuickFusions(layers, costs, "wfbp"))
    found = search(layers, costs, misjudged=setting.kind == "simulated")
    for name in ("bayesian", "bounded"):
        seconds[f"dear-{name}"] = found["searches"][name]["seconds"]
    seconds[QUEUED] = _best(QuickFusions(layers, costs, prefetch=None))
    return Cell(
        model,
        setting.name,
        forward_seconds(layers),
        backward_seconds(layers),
        costs.all_reduce(total_bytes(layers)),
        seconds,
        {name: line.seconds(layers, costs) for name, line in LINES.items()},
        found,
    )


def iteration(layers: Sequence[Layer], costs: Costs, policy: str, options: Mapping[str, Any]) -> float:
    """Seconds of an iteration in the steady state."""
    return run(find(policy).build(layers, costs=costs, **options), costs).seconds


def _best(fusions: QuickFusions) -> float:
    return fusions.seconds(fusions.best(MOST_TUNED))
