"""The published training loop: the order of gradients, the exchange of embeddings, and lookups ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.errors import InputError
from weft.training import AlphaBeta, Layer, Linear
from weft.training.layers import LayerExchange
from weft.training.policies import find
from weft.training.single_channel import run, trace
from weft.training.task_graph import Graph, TaskKind

BYTES = Linear(AlphaBeta(0.0, 1.0), AlphaBeta(0.0, 1.0), AlphaBeta(0.0, 1.0), all_to_all=AlphaBeta(0.0, 1.0))
TWO = (
    Layer("a", 4, 1.0, 3.0, weight_gradient_s=1.0),
    Layer("b", 2, 1.0, 3.0, weight_gradient_s=1.0),
)
DLRM = (
    Layer("embeddings", 0, 2.0, 2.0, exchange=LayerExchange(4, 2)),
    Layer("bottom", 1, 1.0, 2.0, weight_gradient_s=1.0),
    Layer("top", 1, 1.0, 2.0, weight_gradient_s=1.0),
)


def loop(layers: tuple[Layer, ...], **options: float) -> Graph:
    return find("gradient-first").build(layers, **options)


def test_a_layer_sends_its_gradient_before_it_computes_that_of_its_input() -> None:
    graph = loop(TWO, iterations=2)
    done = trace(graph, BYTES)
    backward = [
        (number, task)
        for number, task in enumerate(graph.tasks)
        if task.phase == "backward" and task.iteration == 0
    ]
    assert [(task.layer, task.seconds) for _, task in backward] == [(1, 1.0), (1, 2.0), (0, 1.0), (0, 2.0)]
    sent = next(number for number, task in enumerate(graph.tasks) if task.layer == 1 and task.collective)
    assert graph.tasks[sent].after == (backward[0][0],)
    assert done.began_s[sent] == done.ended_s[backward[0][0]] == done.began_s[backward[1][0]]


def test_sending_hides_behind_the_gradient_of_the_input() -> None:
    # Together 2 + 6 seconds are computed. The 4 bytes of a leave a second after its backward work began, and
    # 2 of their 4 seconds are hidden; forward of a waits for the rest.
    assert run(loop(TWO), BYTES).seconds == pytest.approx(8 + 2)
    late = tuple(replace(layer, weight_gradient_s=None) for layer in TWO)
    assert run(loop(late), BYTES).seconds == pytest.approx(8 + 4)


def test_forward_of_a_layer_waits_for_its_own_gradients_only() -> None:
    graph = loop(TWO, iterations=2)
    for layer in (0, 1):
        forward = next(
            task
            for task in graph.tasks
            if task.phase == "forward" and task.layer == layer and task.iteration == 1
        )
        waited = {graph.tasks[number].layer for number in forward.after if graph.tasks[number].collective}
        assert waited == {layer}


def test_exchanges_go_before_gradients_and_those_of_the_first_layers_first() -> None:
    graph = loop(DLRM, iterations=2)
    priorities = {
        (task.collective, task.layer): task.priority
        for task in graph.tasks
        if task.kind is TaskKind.COLLECTIVE
    }
    assert priorities["all_to_all", 0] < priorities["all_reduce", 1] < priorities["all_reduce", 2]


def test_the_exchange_goes_back_after_the_input_gradient_of_the_layer_that_needed_it() -> None:
    graph = loop(DLRM, iterations=2)
    forth, back = [task for task in graph.tasks if task.collective == "all_to_all" and task.iteration == 0]
    assert [graph.tasks[number].phase for number in forth.after] == ["forward"]
    (before,) = (graph.tasks[number] for number in back.after)
    assert (before.layer, before.phase, before.seconds) == (2, "backward", 1.0)


def test_lookups_ahead_take_the_embeddings_off_the_way() -> None:
    # In turn: lookup 2, exchange 4 beside 1 of the bottom, top 1, backward 2, exchange back 4 beside 2 of the
    # bottom, and the update 2.
    assert run(loop(DLRM), BYTES).seconds == pytest.approx(2 + 4 + 1 + 2 + 4 + 2)
    # Ahead, from the end of forward of the top on: its backward and the lookup take 2, then two exchanges
    # of 4 go before the gradient of the bottom, 1, and forward of bottom and top, 1 each, waits for that.
    assert run(loop(DLRM, lookup_ahead=True), BYTES).seconds == pytest.approx(2 + 4 + 4 + 1 + 1 + 1)
    small = (replace(DLRM[0], exchange=LayerExchange(1, 2)), *DLRM[1:])
    assert run(loop(small, lookup_ahead=True), BYTES).seconds == pytest.approx(2 + 1 + 1 + 1 + 1 + 1)


def test_a_lookup_ahead_waits_for_the_update_before_it_and_not_for_the_last() -> None:
    graph = loop(DLRM, iterations=4, lookup_ahead=True)
    lookups = [task for task in graph.tasks if task.phase == "lookup"]
    updates = [number for number, task in enumerate(graph.tasks) if task.phase == "update"]
    # The first two find no update; each later one waits for the update of two iterations before.
    waited = [[number for number in task.after if number in updates] for task in lookups]
    assert waited == [[], [], [updates[0]], [updates[1]], [updates[2]]]
    assert not any(task.kind is TaskKind.COMPUTE and task.layer == 0 for task in graph.tasks)


def test_lookups_with_part_of_the_memory_take_longer() -> None:
    slow = run(loop(DLRM, lookup_ahead=True, lookup_slowdown=10.0), BYTES).seconds
    assert slow > run(loop(DLRM, lookup_ahead=True), BYTES).seconds
    with pytest.raises(InputError, match="give at least 1"):
        loop(DLRM, lookup_ahead=True, lookup_slowdown=0.5)


def test_without_exchanges_lookups_ahead_change_nothing() -> None:
    assert run(loop(TWO, lookup_ahead=True), BYTES).seconds == run(loop(TWO), BYTES).seconds
