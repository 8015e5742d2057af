"""Every rival at the settings that it has when nobody sets any, and at those of the authors' scripts.

The abstract names no rival. The authors' repository has five: WFBP, ByteScheduler, Horovod, PyTorch's
DistributedDataParallel and MG-WFBP. Their scripts set nothing for the third and fourth (Horovod's automatic
tuning is off). They set larger parts for ByteScheduler, and give MG-WFBP the times of layers, so that its
code does not measure the network but takes the lines that are written into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.papers.claims import percent_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.papers.claims import ClaimRow
    from weft.papers.dear.cells import Cell
    from weft.papers.dear.setup import TestbedNetwork


@dataclass(frozen=True, slots=True)
class Rival:
    """What DeAR is held against.

    Parameters
    ----------
    policy
        Its name in the times of a `Cell`.
    title
        For people.
    settings, source
        What is set to what, and where that is written.
    fuses
        Whether it fuses; DeAR without fusion is the fair match of one that does not.
    """

    policy: str
    title: str
    settings: str
    source: str
    fuses: bool = True


_RELEASE_NOTES: Final = "change log of its release 0.21.0; the authors' README asks for 0.21.3"
_SCRIPT: Final = "the authors' bytescheduler/horovod_mpi_cj.sh"

RIVALS: Final = (
    Rival("wfbp", "WFBP", "no fusion, an all-reduce per tensor", "threshold 0 in the authors' script", False),
    Rival(
        "bytescheduler",
        "ByteScheduler",
        "parts of 1,000,000 elements, credit 4,000,000",
        "bytescheduler/common/bytecore.py",
        False,
    ),
    Rival(
        "bytescheduler-authors",
        "ByteScheduler as the authors ran it",
        "parts of 4,000,000 elements, credit 16,000,000",
        _SCRIPT,
        False,
    ),
    Rival(
        "ddp",
        "PyTorch DDP",
        "buckets of 25 MiB, the first of 1 MiB",
        "bucket_cap_mb and kDefaultFirstBucketBytes of torch 1.8.1",
    ),
    Rival("horovod", "Horovod, host in step", "128 MiB, cycle of 1 ms", _RELEASE_NOTES),
    Rival("horovod-ahead", "Horovod, host far ahead", "128 MiB, cycle of 1 ms", _RELEASE_NOTES),
    Rival("mg-wfbp", "MG-WFBP", "its rule, by the network's true times", "mgwfbp/dopt.py, where it measures"),
    Rival(
        "mg-wfbp-authors",
        "MG-WFBP as the authors ran it",
        "its rule, by the lines in its code",
        "mgwfbp/dopt.py, where it is given the times of layers",
    ),
)


def rival_rows(network: TestbedNetwork, cells: Sequence[Cell], setup: str) -> Iterator[ClaimRow]:
    """Give one row for each rival, with its best and its worst model."""
    for rival in RIVALS:
        best, worst = extremes(cells, rival)
        without = ""
        if not rival.fuses:
            fair = max(cell.gain(rival.policy, "dear-unfused") for cell in cells)
            without = f"; without fusion DeAR is at most {fair:.1%} faster"
        yield percent_row(
            f"{network.title}: up to {network.claimed:g} % faster, taken as over {rival.title}",
            f"{setup}; {rival.settings} ({rival.source}); {best.model}",
            best.gain(rival.policy),
            f"least on {worst.model}, {worst.gain(rival.policy):+.1%}; "
            f"{judge(best.gain(rival.policy), network.claimed)}{without}",
            up_to=network.claimed,
        )


def extremes(cells: Sequence[Cell], rival: Rival) -> tuple[Cell, Cell]:
    """Give the model on which DeAR gains most over a rival, and that on which it gains least."""
    ordered = sorted(cells, key=lambda cell: cell.gain(rival.policy))
    return ordered[-1], ordered[0]


def judge(most: float, claimed_percent: float) -> str:
    """Say whether a claim of an "up to" can be over this rival.

    Examples
    --------
    >>> judge(0.1, 83.0)
    'the claim is more than over this rival on any model here'
    >>> judge(0.9, 83.0)
    'the claim may be over this rival'
    """
    if 100 * most < claimed_percent:
        return "the claim is more than over this rival on any model here"
    return "the claim may be over this rival"
