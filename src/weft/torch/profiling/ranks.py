"""What every rank tells the others at the end of a profile, and who keeps whom waiting."""

from __future__ import annotations

import socket
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.profiling.figures import Figures
    from weft.torch.profiling.recording import Recording

NOTICEABLE: Final = 0.05
"""Share of an iteration that a rank must wait less than others usually do to count as a straggler."""


class RankFigures(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Medians of one rank's iterations."""

    rank: int
    host: str
    iteration_s: float
    computing_s: float
    other_s: float
    wait_s: float

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON has them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def rank_figures(recording: Recording, figures: Figures) -> RankFigures:
    """What this rank tells."""
    return RankFigures(
        rank=recording.rank,
        host=socket.gethostname(),
        iteration_s=figures.whole.median_s,
        computing_s=figures.computing_s,
        other_s=figures.parts["other"].median_s,
        wait_s=figures.parts["wait"].median_s,
    )


def stragglers(ranks: Sequence[RankFigures]) -> list[int]:
    """Ranks that wait noticeably less than usual: whatever keeps them busy, everybody waits for them.

    Examples
    --------
    >>> usual = [RankFigures(rank, "a", 1.0, 0.6, 0.0, 0.4) for rank in range(3)]
    >>> stragglers([*usual, RankFigures(3, "b", 1.0, 0.6, 0.38, 0.02)])
    [3]
    """
    usual = median(one.wait_s for one in ranks)
    return [one.rank for one in ranks if one.wait_s < usual - NOTICEABLE * one.iteration_s]
