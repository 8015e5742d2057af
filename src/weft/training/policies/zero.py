"""ZeRO: parameters, gradients and the optimizer's state are spread over the ranks (Rajbhandari et al., 2020).

Stage 2 spreads gradients: reduce-scatters behind the backward pass, and after the step every rank needs all
of the parameters, so they are gathered before the forward pass. Stage 3 spreads parameters too: each group
is gathered before its forward work and again before its backward work, with the next group's on its way
meanwhile, as fully sharded training does. The step waits for all reduce-scatters in both.

Real jobs have other group sizes: DeepSpeed by default 500 million elements, FSDP what the user wraps. The
default here is that of the other policies, so that they can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import InputError
from weft.training.fusion import fuse
from weft.training.policies.backbone import MEBIBYTE, Backbone, of_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer], *, iterations: int = 4, stage: int = 2, threshold_bytes: int = 25 * MEBIBYTE
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass; parameters are taken to have as many bytes as gradients.
    iterations
        How many, at least 2.
    stage
        2 or 3.
    threshold_bytes
        As for `weft.training.fuse`.
    """
    if stage not in (2, 3):
        msg = f"stage {stage}: expected 2, which spreads gradients, or 3, which spreads parameters too"
        raise InputError(msg)
    backbone = Backbone(layers, iterations)
    buckets = of_groups(layers, fuse(layers, threshold_bytes))
    one_iteration = _spread_gradients if stage == 2 else _spread_parameters
    step: tuple[int, ...] = ()
    for _ in range(iterations):
        backbone.graph.begin()
        step = one_iteration(backbone, buckets, step)
    backbone.graph.finish(step)
    return backbone.graph


def _spread_gradients(
    backbone: Backbone, buckets: Sequence[Bucket], step: tuple[int, ...]
) -> tuple[int, ...]:
    """Gather all parameters, compute, and scatter; returns the step that follows."""
    backbone.all_forward((*step, *backbone.gather_all(buckets, step)))
    return (backbone.step(backbone.all_backward("reduce_scatter", buckets)),)


def _spread_parameters(
    backbone: Backbone, buckets: Sequence[Bucket], step: tuple[int, ...]
) -> tuple[int, ...]:
    """Gather each group before its forward work and again before its backward; returns the step after."""
    graph, count = backbone.graph, len(buckets)
    turns = [*reversed(range(count)), *range(count)]
    gathers: list[int] = []

    def gather(after: tuple[int, ...]) -> None:
        if len(gathers) < len(turns):
            number = turns[len(gathers)]
            gathers.append(graph.collective("all_gather", buckets[number].size_bytes, after, group=number))

    def take_up(turn: int) -> tuple[int, ...]:
        gather((gathers[turn], *backbone.computed))
        return (gathers[turn],)

    gather(step)
    forward_turn = {buckets[number].last: turn for turn, number in enumerate(turns[:count])}
    backward_turn = {max(bucket.layers): count + number for number, bucket in enumerate(buckets)}
    complete = {bucket.last: number for number, bucket in enumerate(buckets)}
    for index in range(len(backbone.layers)):
        waits = take_up(forward_turn[index]) if index in forward_turn else ()
        backbone.forward(index, (*waits, *step) if index == 0 else waits)
    sent = []
    for index in range(len(backbone.layers) - 1, -1, -1):
        task = backbone.backward(index, take_up(backward_turn[index]) if index in backward_turn else ())
        if index in complete:
            number = complete[index]
            size = buckets[number].size_bytes
            sent.append(graph.collective("reduce_scatter", size, (task,), group=number))
    return (backbone.step(sent),)
