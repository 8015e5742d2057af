"""Policies: what they may not beat, closed forms, and cases worked out by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from training.models import costing, costs, lines, models, uniform

import weft.training
from weft.errors import InputError, LimitError
from weft.training import AlphaBeta, IterationTimeline, Layer, Linear
from weft.training.layers import LayerExchange
from weft.training.policies import LINES, POLICIES, ddp, find, horovod, mg_wfbp
from weft.training.single_channel import run, trace
from weft.training.task_graph import Graph, TaskKind

MIB = 1 << 20
WITHOUT_BARRIER = ("bytescheduler", "gradient-first")
BARRIERS = [name for name in POLICIES if name not in WITHOUT_BARRIER]
SHARES = [0.5, 1, 2, 3, 4, 6, 8, 16]
BYTES = Linear.in_halves(AlphaBeta(0.0, 0.5), AlphaBeta(0.0, 0.5))
"""An all-reduce takes a second for each byte, either half of it half a second."""


def timed(name: str, layers: tuple[Layer, ...], prices: Linear, **options: Any) -> IterationTimeline:
    return run(find(name).build(layers, costs=prices, **options), prices)


@st.composite
def with_tensors(draw: st.DrawFn) -> tuple[Layer, ...]:
    """Any model, of whose layers some have several tensors."""
    return tuple(
        dataclasses.replace(layer, tensors=(layer.size_bytes // 3, layer.size_bytes - layer.size_bytes // 3))
        if layer.size_bytes > 2 and draw(st.booleans())
        else layer
        for layer in draw(models)
    )


@st.composite
def with_exchanges(draw: st.DrawFn) -> tuple[Layer, ...]:
    """Any model, of whose layers some exchange something with a later one."""
    layers = draw(models)
    last = len(layers) - 1
    return tuple(
        dataclasses.replace(
            layer,
            size_bytes=0,
            exchange=LayerExchange(draw(st.integers(1, 9999)), draw(st.integers(index + 1, last))),
        )
        if index < last and draw(st.booleans())
        else layer
        for index, layer in enumerate(layers)
    )


variants = st.one_of(
    st.tuples(st.sampled_from(["wfbp", "mg-wfbp"]), st.just({})),
    st.tuples(
        st.sampled_from(["serial", "wfbp", "dear"]),
        st.fixed_dictionaries({"threshold_bytes": st.integers(1, 99_999)}),
    ),
    st.tuples(st.just("ddp"), st.fixed_dictionaries({"bucket_bytes": st.integers(1, 99_999)})),
    st.tuples(
        st.just("horovod"),
        st.fixed_dictionaries(
            {
                "threshold_bytes": st.integers(1, 99_999),
                "cycle_s": st.floats(0.01, 5.0),
                "host_share": st.floats(0.0, 1.0),
            }
        ),
    ),
    st.tuples(
        st.just("zero"),
        st.fixed_dictionaries({"threshold_bytes": st.integers(1, 99_999), "stage": st.sampled_from([2, 3])}),
    ),
    st.tuples(
        st.just("dear"),
        st.fixed_dictionaries(
            {"threshold_bytes": st.integers(1, 99_999), "prefetch": st.sampled_from([None, 1, 2, 5])}
        ),
    ),
)


@given(with_tensors(), costs, variants)
def test_no_policy_beats_the_line_of_its_kind(
    layers: tuple[Layer, ...], prices: Linear, variant: tuple[str, dict[str, Any]]
) -> None:
    name, options = variant
    line = LINES[find(name).line].seconds(layers, prices)
    assert timed(name, layers, prices, **options).seconds >= line * (1 - 1e-9) - 1e-9


@given(with_tensors(), costs, variants)
def test_no_policy_beats_the_line_that_knows_where_layers_compute(
    layers: tuple[Layer, ...], prices: Linear, variant: tuple[str, dict[str, Any]]
) -> None:
    name, options = variant
    line = find(name).line
    placed = LINES[line.replace("ideal", "placed")].seconds(layers, prices)
    assert placed >= LINES[line].seconds(layers, prices) * (1 - 1e-9) - 1e-9, "it is the closer one"
    assert timed(name, layers, prices, **options).seconds >= placed * (1 - 1e-9) - 1e-9


def test_the_placed_lines_are_reached_without_latency_and_without_fusion() -> None:
    # 4 s of head, during which nothing can be sent, between 20 s of layers with 15 bytes.
    layers = (*(Layer(str(number), 3, 1.0, 3.0) for number in range(5)), Layer("head", 0, 2.0, 2.0))
    fine = tuple(
        dataclasses.replace(
            layer, size_bytes=1, forward_s=layer.forward_s / 3, backward_s=layer.backward_s / 3
        )
        for layer in layers[:5]
        for _ in range(3)
    )
    for prices in (BYTES, Linear.in_halves(AlphaBeta(0.0, 2.0), AlphaBeta(0.0, 2.0))):
        model = (*fine, layers[5])
        for name in ("wfbp", "dear"):
            options = {"threshold_bytes": 1} | ({"prefetch": None} if name == "dear" else {})
            line = LINES[f"placed-{name}"].seconds(model, prices)
            assert timed(name, model, prices, **options).seconds == pytest.approx(line)


def test_dear_sends_earlier_where_the_gradient_of_tied_weights_is_computed_last() -> None:
    layers = (
        Layer("words", 2, 0.0, 0.0),
        Layer("block", 8, 1.0, 2.0),
        Layer("output", 0, 3.0, 6.0, tied_gradient_s=3.0),
    )
    plain = timed("dear", layers, BYTES, threshold_bytes=1, prefetch=None)
    early = timed("dear", layers, BYTES, threshold_bytes=1, prefetch=None, tied_last=True)
    assert plain.seconds - early.seconds == pytest.approx(3.0)
    begins = {span.number: span.start_s for span in early.spans if span.kind == "reduce_scatter"}
    ends = {span.number: span.end_s for span in early.spans if span.kind == "backward"}
    assert begins[0] == pytest.approx(ends[1]), "the block is sent as soon as it is computed"
    assert begins[1] >= ends[0] - 1e-9, "the words wait for the gradient of the output's weights"
    with pytest.raises(InputError, match="nothing to compute last"):
        find("dear").build(layers[:2], tied_last=True)


@given(with_tensors(), costs, st.integers(500, 20_000), st.sampled_from(WITHOUT_BARRIER))
def test_without_a_barrier_iterations_on_average_take_the_channel_and_the_computing_in_full(
    layers: tuple[Layer, ...], prices: Linear, partition: int, name: str
) -> None:
    graph = find(name).build(layers, iterations=12, partition_bytes=partition)
    done = trace(graph, prices)
    line = LINES["ideal-overlap"].seconds(layers, prices)
    # Up to one iteration's collectives may be under way at either end.
    assert sum(done.iteration_s) + line >= len(done.iteration_s) * line * (1 - 1e-9) - 1e-9
    computing = sum(layer.forward_s + layer.backward_s for layer in layers)
    assert min(done.iteration_s) >= computing * (1 - 1e-9) - 1e-9


@given(with_exchanges(), lines, costs, st.sampled_from(BARRIERS))
def test_no_policy_beats_its_line_with_exchanges_either(
    layers: tuple[Layer, ...], line: AlphaBeta, prices: Linear, name: str
) -> None:
    both = dataclasses.replace(prices, all_to_all=line)
    bound = LINES[find(name).line].seconds(layers, prices)
    assert timed(name, layers, both).seconds >= bound * (1 - 1e-9) - 1e-9


@pytest.mark.parametrize("share", SHARES)
def test_uniform_layers_without_latency_come_to_the_closed_forms(share: float) -> None:
    layers = uniform(300, 1.0, 2.0)
    prices = costing(layers, share)
    close = {"rel": 0.01}
    assert timed("wfbp", layers, prices).seconds == pytest.approx(1 + max(2, share), **close)
    assert timed("ddp", layers, prices, bucket_bytes=1, first_bucket_bytes=1).seconds == pytest.approx(
        1 + max(2, share), **close
    )
    assert timed("serial", layers, prices).seconds == pytest.approx(3 + share)
    expected = max(1, share / 2) + max(2, share / 2)
    for prefetch in (1, None):
        found = timed("dear", layers, prices, threshold_bytes=1, prefetch=prefetch).seconds
        assert found == pytest.approx(expected, **close)
    stage2 = timed("zero", layers, prices, threshold_bytes=1).seconds
    assert stage2 == pytest.approx(share / 2 + 1 + max(2, share / 2), **close)
    stage3 = timed("zero", layers, prices, threshold_bytes=1, stage=3).seconds
    assert stage3 == pytest.approx(max(1, share / 2) + max(2, share), **close)
    whole = timed("bytescheduler", layers, prices, iterations=12).seconds
    assert whole == pytest.approx(max(3, share), rel=0.02)


def test_the_ideal_gain_peaks_at_a_quarter() -> None:
    layers = uniform(10, 1.0, 2.0)

    def gain(share: float) -> float:
        prices = costing(layers, share)
        return LINES["ideal-wfbp"].seconds(layers, prices) / LINES["ideal-dear"].seconds(layers, prices)

    gains = {step / 20: gain(step / 20) for step in range(1, 400)}
    assert max(gains.values()) == pytest.approx(1.25)
    assert max(gains, key=lambda share: gains[share]) == pytest.approx(4.0)


def test_a_whole_all_reduce_as_reduce_scatter_makes_dear_lose() -> None:
    layers = uniform(300, 1.0, 2.0)
    fair = costing(layers, 4.0)
    dear = timed("dear", layers, Linear(fair.all_reduce, fair.all_gather, fair.all_reduce), threshold_bytes=1)
    assert dear.seconds / timed("wfbp", layers, fair).seconds == pytest.approx(6 / 5, rel=0.01)


def sizes(graph: Graph, collective: str, iteration: int = 1) -> list[int]:
    return [
        task.size_bytes
        for task in graph.tasks
        if task.collective == collective and task.iteration == iteration
    ]


def test_wfbp_sends_every_tensor_alone_and_serial_everything_at_once() -> None:
    layers = (Layer("a", 7, 1.0, 1.0, tensors=(5, 2)), Layer("b", 4, 1.0, 1.0))
    assert sizes(find("wfbp").build(layers), "all_reduce") == [4, 2, 5]
    assert sizes(find("serial").build(layers), "all_reduce") == [11]


def test_ddp_closes_a_bucket_when_it_has_its_size_and_the_first_early() -> None:
    tensors = (10 * MIB, 16 * MIB, 2 * MIB, 3 * MIB)
    layers = (Layer("a", sum(tensors), 1.0, 1.0, tensors=tensors), Layer("b", MIB // 2, 1.0, 1.0))
    assert [bucket.size_bytes / MIB for bucket in ddp.buckets(layers, 25 * MIB, MIB)] == [3.5, 28]
    assert sizes(find("ddp").build(layers), "all_reduce") == [round(3.5 * MIB), 28 * MIB]
    waits = [task.after for task in find("ddp").build(layers).tasks if task.collective]
    assert all(len(after) == 1 for after in waits)


def test_horovod_sends_at_the_ticks_of_its_cycle() -> None:
    layers = (Layer("a", 1, 0.0, 0.5), Layer("b", 1, 0.0, 1.3), Layer("c", 1, 0.0, 0.3))
    fused = list(horovod.fusions(layers, 100, 1.0))
    assert [bucket.layers for bucket, _ in fused] == [(2,), (1,), (0,)]
    assert [round(delay, 9) for _, delay in fused] == [0.7, 0.4, 0.9]
    fused = list(horovod.fusions(layers, 100, 5.0))
    assert [(bucket.layers, round(delay, 9)) for bucket, delay in fused] == [((2, 1, 0), 2.9)]
    assert [bucket.layers for bucket, _ in horovod.fusions(layers, 2, 5.0)] == [(2, 1), (0,)]
    # A host that runs ahead fuses more, and what is fused waits for its last gradient only.
    assert [delay for _, delay in horovod.fusions(layers, 100, 1.0, host_share=0.0)] == [0.0]
    ahead = [bucket.layers for bucket, _ in horovod.fusions(layers, 100, 1.0, host_share=0.6)]
    assert ahead == [(2, 1), (0,)]
    done = trace(find("horovod").build(layers, cycle_s=1.0), Linear(*[AlphaBeta(0.1, 0.0)] * 3))
    assert done.iteration_s[-1] == pytest.approx(3.1)


def test_rivals_have_the_defaults_of_the_releases_that_dear_was_held_against() -> None:
    assert find("ddp").options == {"bucket_bytes": 25 * MIB, "first_bucket_bytes": MIB}
    assert find("horovod").options == {"threshold_bytes": 128 * MIB, "cycle_s": 1e-3, "host_share": 1.0}
    assert find("bytescheduler").options["partition_bytes"] == 4 * 1_000_000
    assert find("mg-wfbp").options == {"smallest_bytes": 4 * 8192}
    assert find("wfbp").options == {"threshold_bytes": None}


def test_mg_wfbp_merges_what_is_ready_before_the_channel_is_free() -> None:
    layers = tuple(Layer(str(number), 1000, 1.0, 1.0) for number in range(6))
    slow, quick = Linear.ring(2, 0.01, 1e-2), Linear.ring(2, 0.01, 1e-6)
    # The first group ends at 11; by then all others are ready.
    assert [bucket.layers for bucket in mg_wfbp.merge(layers, slow, 0)] == [(5,), (4, 3, 2, 1, 0)]
    assert len(mg_wfbp.merge(layers, quick, 0)) == 6
    assert len(mg_wfbp.merge(layers, quick, 4 * 8192)) == 1
    assert len(mg_wfbp.merge(layers, Linear.ring(2, 1.0, 1e-6), 0)) == 1


@given(with_tensors(), costs)
def test_mg_wfbp_sends_every_byte_once(layers: tuple[Layer, ...], prices: Linear) -> None:
    sent = mg_wfbp.merge(layers, prices, 0)
    assert sum(bucket.size_bytes for bucket in sent) == sum(layer.size_bytes for layer in layers)
    order = list(dict.fromkeys(index for bucket in sent for index in bucket.layers))
    assert order == [index for index in range(len(layers) - 1, -1, -1) if layers[index].size_bytes]


def test_bytescheduler_sends_the_first_layer_before_those_that_wait_longer() -> None:
    layers = (Layer("a", 2, 1.0, 1.5), Layer("b", 4, 1.0, 1.0), Layer("c", 4, 1.0, 1.0))
    graph = find("bytescheduler").build(layers, partition_bytes=2)
    done = trace(graph, BYTES)
    first = [
        (task.layer, done.began_s[number])
        for number, task in enumerate(graph.tasks)
        if task.kind is TaskKind.COLLECTIVE and task.iteration == 0
    ]
    # Gradients are there at 4, 5 and 6.5, and parts take 2 s: at 6 b goes before the rest of c, at 8 a does.
    assert sorted(first, key=lambda pair: pair[1]) == [(2, 4.0), (1, 6.0), (0, 8.0), (1, 10.0), (2, 12.0)]


def test_dear_begins_each_next_all_gather_when_the_one_before_is_taken_up() -> None:
    layers = tuple(Layer(str(number), 2, 3.0, 1.0) for number in range(3))

    def gathers(prefetch: int | None) -> list[float]:
        graph = find("dear").build(layers, threshold_bytes=1, prefetch=prefetch, iterations=2)
        done = trace(graph, BYTES)
        step = next(done.ended_s[number] for number, task in enumerate(graph.tasks) if task.name == "step")
        return [
            done.began_s[number] - step
            for number, task in enumerate(graph.tasks)
            if task.collective == "all_gather" and task.iteration == 1
        ][:3]

    assert gathers(None) == [0.0, 1.0, 2.0]
    assert gathers(1) == [0.0, 1.0, 4.0]
    assert gathers(2) == [0.0, 1.0, 2.0]


def test_zero_gathers_parameters_once_or_twice() -> None:
    layers = uniform(4, 1.0, 2.0, size_bytes=10)
    two, three = (find("zero").build(layers, stage=stage, threshold_bytes=20) for stage in (2, 3))
    assert sizes(two, "all_gather") == [20, 20]
    assert sizes(three, "all_gather") == [20] * 4
    assert sizes(two, "reduce_scatter") == sizes(three, "reduce_scatter") == [20, 20]


def dlrm(size_bytes: int) -> tuple[Layer, ...]:
    return (
        Layer("embeddings", 0, 1.0, 1.0, exchange=LayerExchange(size_bytes, 2)),
        Layer("bottom", 0, 3.0, 3.0),
        Layer("top", 0, 1.0, 1.0),
    )


@pytest.mark.parametrize("name", list(POLICIES))
def test_an_exchange_hides_behind_the_layers_between(name: str) -> None:
    prices = dataclasses.replace(BYTES, all_to_all=AlphaBeta(0.0, 1.0))
    # Three seconds of the bottom layers hide two of the exchange, and all but two of five, in either pass.
    hidden, shown = (10.0, 14.0) if name != "serial" else (14.0, 20.0)
    assert timed(name, dlrm(2), prices).seconds == pytest.approx(hidden)
    assert timed(name, dlrm(5), prices).seconds == pytest.approx(shown)


def test_every_module_is_registered_with_what_its_line_says() -> None:
    modules = {path.stem for path in Path(weft.training.__file__).parent.glob("policies/*.py")}
    assert modules - {"__init__", "backbone"} == {name.replace("-", "_") for name in POLICIES}
    assert [policy.name for policy in POLICIES.values()] == list(POLICIES)
    assert {policy.line for policy in POLICIES.values()} <= set(LINES)
    assert [name for name, policy in POLICIES.items() if policy.needs_costs] == ["mg-wfbp"]
    assert find("zero").options == {"stage": 2, "threshold_bytes": 25 * MIB}


@pytest.mark.parametrize("name", list(POLICIES))
def test_one_layer_without_parameters_only_computes(name: str) -> None:
    assert timed(name, (Layer("a", 0, 1.0, 2.0),), BYTES).seconds == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("deer", {}, "no policy 'deer'; did you mean dear.* Known: serial, wfbp, ddp"),
        ("dear", {"prefetch": 0}, "at least 1, or None for all"),
        ("dear", {"cycle_s": 0}, "no option 'cycle_s'; its options: threshold_bytes, prefetch"),
        ("dear", {"threshold_bytes": 0}, "give at least 1"),
        ("dear", {"iterations": 1}, "a steady state needs 2"),
        ("zero", {"stage": 1}, "expected 2, which spreads gradients"),
        ("ddp", {"bucket_bytes": 0}, "give at least 1"),
        ("horovod", {"cycle_s": -1.0}, "a cycle of -1.0 s"),
        ("horovod", {"host_share": 2.0}, "a share from 0 to 1"),
        ("bytescheduler", {"partition_bytes": 0}, "parts of 0 bytes"),
        ("mg-wfbp", {"smallest_bytes": -1}, "merging below -1 bytes"),
    ],
)
def test_what_a_policy_cannot_do_is_refused(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        find(name).build(uniform(3, 1.0, 2.0), costs=BYTES, **options)


def test_a_policy_that_decides_by_costs_asks_for_them() -> None:
    with pytest.raises(InputError, match="mg-wfbp decides by what collectives cost; give costs"):
        find("mg-wfbp").build(uniform(3, 1.0, 2.0))


def test_parts_without_number_are_refused() -> None:
    with pytest.raises(LimitError, match="tasks of a graph"):
        find("bytescheduler").build((Layer("a", 1 << 40, 1.0, 2.0),), partition_bytes=1)


@examples(20)
@given(with_tensors(), st.sampled_from(list(POLICIES)), costs)
def test_every_gradient_is_sent_once_an_iteration(
    layers: tuple[Layer, ...], name: str, prices: Linear
) -> None:
    graph = find(name).build(layers, costs=prices)
    total = sum(layer.size_bytes for layer in layers)
    scattered = sum(sizes(graph, "reduce_scatter")) + sum(sizes(graph, "all_reduce"))
    assert scattered == total
    if name in ("dear", "zero"):
        assert sum(sizes(graph, "all_gather", iteration=2)) == total


@pytest.mark.parametrize(("name", "stage"), [("fsdp", 3), ("FSDP", 3), ("zero3", 3), ("zero-2", 2)])
def test_the_names_of_other_systems_lead_to_a_stage_of_zero(name: str, stage: int) -> None:
    with pytest.raises(InputError, match=f"--policy zero --option stage={stage}"):
        find(name)
