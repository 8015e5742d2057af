"""A trial of policies: each trains for some steps in turn, and the one that was faster stays.

The model of an iteration (`weft.training.choice`) sees neither the hooks nor ranks that disturb each other on
shared cores and links, so policies that it expects to be equally fast may differ by several percent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from weft import units

if TYPE_CHECKING:
    from weft.training import Option, PolicyChoice

_TURNS: Final = 2
"""Of each policy: what else the machine does then seldom meets one of them alone."""

_NOISE: Final = 0.01
"""Share of an iteration's time by which two medians of the same plan differ."""


class PolicyTrial:
    """The policies that a model of an iteration has compared, in practice.

    Parameters
    ----------
    choice
        What the model has chosen; its `others` are tried as well.
    """

    def __init__(self, choice: PolicyChoice) -> None:
        self._choice = choice
        self._options: tuple[Option, ...] = (choice, *choice.others)
        self._times: list[list[float]] = [[] for _ in self._options]
        self._asked = 0

    def ask(self) -> Option | None:
        """Return what to train with until `tell`; None when the trial is over."""
        turn, place = divmod(self._asked, len(self._options))
        return self._options[place] if turn < _TURNS else None

    def tell(self, seconds: float) -> None:
        """Say how long an iteration took with what was asked for."""
        self._times[self._asked % len(self._options)].append(seconds)
        self._asked += 1

    def result(self) -> PolicyChoice:
        """Return the model's choice, or the option that was faster beyond noise; the reason has the times."""
        best = [min(times) for times in self._times]
        fastest = min(range(len(best)), key=best.__getitem__)
        if best[fastest] >= best[0] * (1 - _NOISE):
            fastest = 0
        taken = self._options[fastest]
        others = tuple(option for option in self._options if option is not taken)
        times = " and ".join(
            f"{units.human_seconds(seconds)} with {option.policy}"
            for option, seconds in sorted(
                zip(self._options, best, strict=True), key=lambda one: one[0] is not taken
            )
        )
        return replace(
            self._choice,
            policy=taken.policy,
            threshold_bytes=taken.threshold_bytes,
            groups=taken.groups,
            timeline=taken.timeline,
            others=others,
            reason=f"{taken.policy}: when tried, an iteration took {times}; "
            f"the model of an iteration had chosen {self._choice.reason}",
        )
