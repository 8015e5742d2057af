"""DeAR: reduce-scatters behind the backward pass, all-gathers behind the next forward pass (Zhang, 2023).

The step is a barrier: no all-gather begins before the last reduce-scatter is done. In the authors' code the
step launches the all-gather of the first group only, and the forward pass launches each next one when it
takes up the one before; `prefetch` says how many are under way ahead.

The network idles while the end of a model computes forward and backward, since nothing of the layers before
it can be sent then. `tied_last` makes that time shorter where an output shares its weights with the first
layer, by computing their gradient last. That is not in the authors' code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import InputError
from weft.training.fusion import fuse
from weft.training.layers import with_tied_last
from weft.training.policies.backbone import MEBIBYTE, Backbone, of_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer],
    *,
    iterations: int = 4,
    threshold_bytes: int = 25 * MEBIBYTE,
    prefetch: int | None = 1,
    tied_last: bool = False,
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2.
    threshold_bytes
        As for `weft.training.fuse`; by default that of the authors' code.
    prefetch
        How many groups ahead of the forward pass all-gathers begin; None begins all of them at the step.
    tied_last
        Whether gradients of weights that are tied to the first layer are computed last.
    """
    if prefetch is not None and prefetch < 1:
        raise InputError(f"prefetch of {prefetch} groups: give at least 1, or None for all")
    if tied_last:
        layers = with_tied_last(layers)
    backbone = Backbone(layers, iterations)
    buckets = of_groups(layers, fuse(layers, threshold_bytes))
    step: int | None = None
    for _ in range(iterations):
        backbone.graph.begin()
        if step is None:
            backbone.all_forward()
        else:
            _forward(backbone, buckets, step, prefetch)
        step = backbone.step(backbone.all_backward("reduce_scatter", buckets))
    assert step is not None
    # No forward pass will hide these.
    backbone.graph.finish(backbone.gather_all(buckets, (step,)) or [step])
    return backbone.graph


def _forward(backbone: Backbone, buckets: Sequence[Bucket], step: int, prefetch: int | None) -> None:
    """Compute forward; a layer waits for the all-gather of its own group."""
    needed = sorted(range(len(buckets)), key=lambda number: buckets[number].last)
    ahead = len(needed) if prefetch is None else prefetch
    gathers: dict[int, int] = {}

    def gather(place: int, after: tuple[int, ...]) -> None:
        if place < len(needed):
            number = needed[place]
            size = buckets[number].size_bytes
            gathers[place] = backbone.graph.collective("all_gather", size, after, group=number)

    place_of = {buckets[number].last: place for place, number in enumerate(needed)}
    for place in range(ahead):
        gather(place, (step,))
    for index in range(len(backbone.layers)):
        if index in place_of:
            gathered = gathers[place_of[index]]
            gather(place_of[index] + ahead, (gathered, *backbone.computed))
            backbone.forward(index, (gathered,))
        else:
            backbone.forward(index, (step,) if index == 0 else ())
