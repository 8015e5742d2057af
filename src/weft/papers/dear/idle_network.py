"""What could fill the time in which the end of BERT computes and the network idles.

While the head of a model computes forward and backward, everything before it has been gathered, since forward
came that far, and none of its gradients is there yet. So nothing of the layers before the head can be under
way, whatever the policy. `weft.training.iteration.placed_dear` is the bound that knows this. Here are the
ways around it that one may think of, each tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from weft import units
from weft.papers.claims import StudyCase, percent_row
from weft.papers.dear.fusion_searches import QuickFusions
from weft.training.fusion import distinct_thresholds, fuse
from weft.training.iteration import dear, ideal_dear, placed_dear, placed_wfbp
from weft.training.layers import total_bytes, with_tied_last

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.papers.claims import ClaimRow
    from weft.training.costs import Simulated
    from weft.training.layers import Layer

STUDIED: Final = "bert-base"
PARTS: Final = (2, 4, 8)
"""Into how many parts the word embeddings are cut."""

FINE: Final = (2, 4, 8, 16)
"""How many layers at the end of the model are sent each on its own."""

ROW_BYTES: Final = 64 * 64 * 768 * 4
"""Of the words of a rank's batch: 64 sentences of 64, each a row of the embeddings, 768 numbers of fp32."""

MOST_TUNED: Final = 500
"""Fusions tried for each; in even ratios where there are more."""

PLAIN: Final = "as it is"
TIED: Final = "gradient of the output's tied weights last (tied_last)"


@dataclass(frozen=True, slots=True)
class IdleCase(StudyCase):
    """One way to fill the gap.

    Parameters
    ----------
    change
        What is done.
    seconds
        Of an iteration by DeAR with all all-gathers queued and the best fusion; None where only the bound was
        computed, which is enough to know that nothing is gained.
    wfbp_s
        The same model by WFBP with its best fusion; None if not tried.
    bound_s
        What no fusion of it can beat.
    """

    change: str
    seconds: float | None
    wfbp_s: float | None
    bound_s: float


def fill_gap(layers: Sequence[Layer], costs: Simulated) -> list[IdleCase]:
    """Try every way on one model: first the model as it is, and last tied weights last."""
    bound_s = placed_dear(layers, costs)
    return [
        _case(PLAIN, layers, costs),
        IdleCase(
            "finer groups near the head",
            min(_fine_seconds(layers, costs, count) for count in FINE),
            None,
            bound_s,
        ),
        *(_case(f"word embeddings in {parts} parts", cut_first(layers, parts), costs) for parts in PARTS),
        IdleCase("the output's part of the tied gradient on its own", None, None, _sent_twice(layers, costs)),
        IdleCase("rows of the batch before the table", None, None, _rows_first(layers, costs)),
        _case(TIED, with_tied_last(layers), costs),
    ]


def idle_rows(
    where: str, layers: Sequence[Layer], costs: Simulated, cases: Sequence[IdleCase]
) -> Iterator[ClaimRow]:
    """Give three rows: how near the true bound DeAR is, what helps, and that the rest does not."""
    plain, tied = cases[0], cases[-1]
    assert plain.seconds
    assert plain.wfbp_s
    assert tied.seconds
    assert tied.wfbp_s
    took = {case.change: units.human_seconds(case.seconds or case.bound_s) for case in cases}
    yield percent_row(
        "DeAR is this much above the bound that knows where layers compute",
        where,
        plain.seconds / plain.bound_s - 1,
        f"{took[PLAIN]} over {units.human_seconds(plain.bound_s)}; ideal-dear, "
        f"{units.human_seconds(ideal_dear(layers, costs))}, sends while the head computes, which cannot be. "
        f"The same bound for WFBP is {placed_wfbp(layers, costs) / plain.bound_s - 1:.1%} above that",
    )
    yield percent_row(
        "DeAR gains by computing the gradient of the output's tied weights last",
        where,
        plain.seconds / tied.seconds - 1,
        f"{took[PLAIN]} to {took[TIED]}: gradients of the encoder are there earlier, and those of the "
        f"embeddings are sent last anyway; WFBP gains {plain.wfbp_s / tied.wfbp_s - 1:.1%} by the same",
    )
    others = {case.change: case.seconds or case.bound_s for case in cases[1:-1]}
    best = min(others, key=lambda change: others[change])
    yield percent_row(
        "the best of the other ways to fill the time of the head gains",
        f"{where}; {best}",
        plain.seconds / others[best] - 1,
        "; ".join(
            f"{case.change} {'' if case.seconds else 'at least '}{took[case.change]}" for case in cases[1:-1]
        ),
    )


def cut_first(layers: Sequence[Layer], parts: int) -> tuple[Layer, ...]:
    """Cut the first layer into parts that travel, and are waited for, on their own."""
    whole = layers[0]
    ends = [whole.size_bytes * number // parts for number in range(parts + 1)]
    cut = (
        replace(
            whole,
            size_bytes=end - begin,
            tensors=(end - begin,),
            forward_s=whole.forward_s / parts,
            backward_s=whole.backward_s / parts,
        )
        for begin, end in pairwise(ends)
    )
    return (*cut, *layers[1:])


def _case(change: str, layers: Sequence[Layer], costs: Simulated) -> IdleCase:
    return IdleCase(
        change,
        _best(QuickFusions(layers, costs, prefetch=None)),
        _best(QuickFusions(layers, costs, "wfbp")),
        placed_dear(layers, costs),
    )


def _best(fusions: QuickFusions) -> float:
    return fusions.seconds(fusions.best(MOST_TUNED))


def _fine_seconds(layers: Sequence[Layer], costs: Simulated, count: int) -> float:
    """Best time with so many layers at the end each in a group of its own, the others fused."""
    first = len(layers) - count
    alone = tuple((number,) for number in range(len(layers) - 1, first - 1, -1))
    limits = distinct_thresholds(layers[:first], MOST_TUNED)
    return min(dear(layers, (*alone, *fuse(layers[:first], limit)), costs).seconds for limit in limits)


def _sent_twice(layers: Sequence[Layer], costs: Simulated) -> float:
    """Bound what sending the output's part of the tied gradient as soon as it is there can do.

    What the lookup adds to it follows at the end of the backward pass, so the table is reduced twice. It is
    taken that the first part could be sent before the output has computed at all.
    """
    output = _output(layers)
    size = layers[output].size_bytes + layers[0].size_bytes
    early = replace(layers[output], size_bytes=size, tensors=(), backward_s=0.0, tied_gradient_s=0.0)
    twice = (*layers[:output], early, *layers[output + 1 :])
    more_s = costs.all_gather(total_bytes(twice)) - costs.all_gather(total_bytes(layers))
    return placed_dear(twice, costs) - more_s  # it is gathered once


def _rows_first(layers: Sequence[Layer], costs: Simulated) -> float:
    """Bound what fetching the rows of the batch can do, so that the table is gathered for the output only.

    Each rank needs other rows: an all-to-all. It is taken that the output could compute on what has come of
    the table, so that all of its forward work is hidden.
    """
    output = _output(layers)
    hidden = (*layers[:output], replace(layers[output], forward_s=0.0), *layers[output + 1 :])
    return placed_dear(hidden, costs) + costs.all_to_all(ROW_BYTES)


def _output(layers: Sequence[Layer]) -> int:
    return max(range(len(layers)), key=lambda number: layers[number].tied_gradient_s)
