"""ACE's reproduction: the arithmetic, the bandwidth driven, and the rows made of them."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from weft.errors import InputError
from weft.papers import ace, reproduce
from weft.papers.ace.bandwidth import drive, exchange_seconds
from weft.papers.ace.byte_counts import SHAPES, arithmetic
from weft.papers.ace.computing import (
    COUNTED,
    DLRM_VARIANTS,
    VARIANTS,
    WAYS,
    Computing,
    at_published_speed,
    published_flops_per_s,
)
from weft.papers.ace.gain_map import SHARES, Ground, memory_bound
from weft.papers.ace.iterations import BASELINES, NAMES, contended, point, rates
from weft.papers.claims import Reproduction
from weft.training.endpoints import ENDPOINTS, EndpointEngine
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.workloads import WORKLOADS, load_workload

MIB = 1 << 20

# By shape: sent per byte; GB/s of payload, of the network, of kernels' and an engine's reads; us of 64 MiB;
# caps in % for an engine and for kernels that read 128 GB/s.
TABLE = {
    "4x2x2": (2.0, 200.0, 400.0, 600, 200, 335.5, 64, 21),
    "4x4x2": (2.125, 133.3, 283.3, 425, 133, 503.3, 96, 30),
    "4x4x4": (2.25, 133.3, 300.0, 450, 133, 503.3, 96, 28),
    "4x8x4": (2.3125, 114.3, 264.3, 396, 114, 587.2, 100, 32),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_arithmetic_is_that_of_the_paper(shape: str) -> None:
    sent, payload, network, kernels, engine, ideal_us, engine_cap, kernel_cap = TABLE[shape]
    found = arithmetic(shape)
    assert found.sent == sent
    assert round(found.payload_gbs, 1) == payload
    assert round(found.driven_gbs, 1) == network
    assert round(found.kernel_read_gbs) == kernels
    assert round(found.engine_read_gbs) == engine
    assert round(found.ideal_us, 1) == ideal_us
    assert round(100 * found.cap(128, engine=True)) == engine_cap
    assert round(100 * found.cap(128, engine=False)) == kernel_cap


@pytest.mark.parametrize("shape", SHAPES)
def test_reads_of_finite_rings_follow_the_closed_form(shape: str) -> None:
    inside, *outside = (int(size) for size in shape.split("x"))
    rings = [(2 * (inside - 1) / inside, inside), *((2 * (k - 1) / k / inside, k) for k in outside)]
    reads = sum(sent * (3 * k - 2) / (2 * k - 2) for sent, k in rings)
    assert arithmetic(shape).ring_reads == pytest.approx(reads / arithmetic(shape).sent)


@pytest.mark.parametrize("name", ["ideal", "comm-opt", "comp-opt", "ace"])
def test_an_all_reduce_alone_drives_what_the_arithmetic_says(name: str) -> None:
    endpoint, counted = ENDPOINTS[name], arithmetic("4x2x2")
    reading = endpoint.read_bandwidth
    share = 1.0 if reading is None else counted.cap(reading / 1e9, engine=endpoint.engine is not None)
    found = drive("4x2x2", endpoint, 8 * MIB)
    assert found.payload_gbs == pytest.approx(share * counted.payload_gbs, rel=0.02)
    assert found.seconds * found.payload_gbs * 1e9 > 8 * MIB  # filling the pipeline takes time besides


def test_rates_do_not_depend_on_how_much_is_sent() -> None:
    small, large = (drive("4x2x2", ENDPOINTS["comm-opt"], size * MIB).payload_gbs for size in (8, 32))
    assert small == pytest.approx(large, rel=0.01)


def test_few_state_machines_are_a_limit_and_many_are_not() -> None:
    few, some, many = (
        drive("4x2x2", replace(ENDPOINTS["ace"], engine=EndpointEngine(fsms=fsms)), 4 * MIB).payload_gbs
        for fsms in (2, 4, 32)
    )
    assert few < 0.6 * some < 0.6 * many
    assert many == pytest.approx(128, rel=0.02)


def test_a_rate_needs_chunks() -> None:
    with pytest.raises(InputError, match="too few chunks"):
        drive("4x2x2", ENDPOINTS["ace"], 100_000)
    with pytest.raises(InputError, match="too few chunks"):
        drive("4x2x2", ENDPOINTS["free"], 100 * MIB)


def test_an_all_to_all_takes_what_its_busiest_link_needs() -> None:
    size = 16 * MIB
    alone = exchange_seconds("4x2x2", ENDPOINTS["ideal"], size)
    # Half of all goes to the other half of an axis, by the network's own route, which is one of two cables.
    least = size / 2 / 25e9
    assert least < alone < 1.02 * least
    assert exchange_seconds("4x2x2", ENDPOINTS["ideal"], 0) == 0


PUBLISHED, ROOFLINE, PEAK = WAYS


def forward(computing: Computing, name: str) -> float:
    return forward_seconds(computing.layers("resnet50", name)[0])


def test_an_endpoint_leaves_less_to_compute_with() -> None:
    for way in (PUBLISHED, ROOFLINE):
        times = {name: forward(way, name) for name in NAMES}
        assert times["ideal"] == times["no-overlap"] < times["ace"] < times["comp-opt"] < times["comm-opt"]
    peak = {name: forward(PEAK, name) for name in NAMES}
    assert peak["ace"] == pytest.approx(peak["ideal"])
    assert peak["comm-opt"] == pytest.approx(peak["ideal"] * 80 / 74)


@pytest.mark.parametrize("way", [PUBLISHED, PEAK], ids=lambda way: way.name)
def test_times_alone_and_the_whole_platform_agree(way: Computing) -> None:
    names = ("no-overlap", "ace")
    whole, _ = contended(way, "resnet50", "4x2x2", names)
    alone = point(way, "resnet50", "4x2x2", rates("4x2x2", 4 * MIB))
    for name in names:
        assert alone.seconds[name] == pytest.approx(whole[name], rel=0.02)
    assert alone.best_baseline in BASELINES
    assert alone.speedup == min(alone.seconds[name] for name in BASELINES) / alone.seconds["ace"]


def test_the_row_that_counts_is_the_one_that_was_fixed() -> None:
    assert Computing("published", "published") == COUNTED
    assert COUNTED.yardstick == "roofline"
    assert COUNTED.grouping == "normalised"
    assert COUNTED.per_layer
    assert not COUNTED.while_sending
    assert COUNTED not in VARIANTS


def test_each_variant_changes_one_thing() -> None:
    for variant in (*VARIANTS, *DLRM_VARIANTS):
        changed = [
            field.name
            for field in fields(COUNTED)
            if field.name != "name" and getattr(variant, field.name) != getattr(COUNTED, field.name)
        ]
        assert len(changed) == 1, variant.name


def test_variants_change_bytes_and_times_as_they_say() -> None:
    by_name = {variant.name: variant for variant in VARIANTS}
    whole, _ = COUNTED.layers("resnet50", "ideal")
    half, _ = by_name["half the bytes (fp16)"].layers("resnet50", "ideal")
    assert total_bytes(half) == total_bytes(whole) / 2
    often, _ = by_name["32 pictures one after the other"].layers("resnet50", "ideal")
    assert forward_seconds(often) == pytest.approx(32 * forward_seconds(whole))
    taken, slowdowns = by_name["taken only while sending"].layers("resnet50", "comm-opt")
    assert taken == whole
    assert slowdowns is not None
    assert min(slowdowns.values()) > 1
    one_factor, _ = by_name["one factor for the whole model"].layers("resnet50", "comm-opt")
    factors = [slow.forward_s / layer.forward_s for slow, layer in zip(one_factor, whole, strict=True)]
    assert factors == pytest.approx([factors[0]] * len(factors))
    processors, _ = by_name["only processors taken, no memory"].layers("resnet50", "comm-opt")
    assert forward_seconds(processors) == pytest.approx(forward_seconds(whole) * 80 / 74)


def test_gnmt_computes_at_the_speed_of_the_published_resnet() -> None:
    layers = at_published_speed("gnmt", 32).published
    flops = sum(
        operator.forward(128, 2).flops + operator.backward(128, 2).flops
        for operator in load_workload("gnmt").operators
    )
    seconds = forward_seconds(layers) + backward_seconds(layers)
    assert flops / seconds == pytest.approx(published_flops_per_s(32), rel=0.01)
    assert published_flops_per_s(32) == pytest.approx(32 * published_flops_per_s(1))
    assert total_bytes(layers) == 4 * load_workload("gnmt").parameters


def test_the_share_bound_by_memory_is_what_a_roofline_says() -> None:
    assert memory_bound(PEAK, "resnet50") == pytest.approx(0.0, abs=1e-9)
    for model in ("resnet50", "gnmt", "dlrm"):
        assert 0 < memory_bound(ROOFLINE, model) < 1


def test_the_ground_of_the_map_follows_what_is_taken() -> None:
    alike = dict.fromkeys(NAMES, 100.0)
    ground = Ground(alike)
    few, many = SHARES
    # Next to nothing is sent: no overlap is best, and ACE loses what memory it takes.
    assert ground.gain(few, 100.0) == pytest.approx((1 + few) * 772 / 900, rel=0.01)
    assert ground.gain(few, 0.0) == pytest.approx(1.0, rel=0.01)
    # Sending takes far longer than computing: whoever overlaps ends when it is sent.
    assert ground.gain(many, 0.0) == pytest.approx(1.0, rel=0.02)
    # Kernels that take as little as ACE are as fast, unless they then send too slowly: comm-opt computes on
    # half the memory, no overlap sends for 0.7 seconds after one of computing.
    assert ground.gain(0.7, 100.0) == pytest.approx(1.0)
    slow = Ground(alike | {"comp-opt": 28.0})
    assert slow.gain(0.7, 100.0) == pytest.approx(1.7 * 772 / 900, rel=0.02)


@pytest.fixture(scope="module")
def reduced() -> tuple[Reproduction, list[tuple[int, int]]]:
    """All of it, on the smallest platform."""
    told: list[tuple[int, int]] = []
    effort = ace.Effort(
        shapes=("4x2x2",), size_bytes=16 * MIB, study="4x2x2", study_bytes=2 * MIB, thin=2, checked=()
    )
    return reproduce("ace", lambda _text, done, steps: told.append((done, steps)), effort), told


def test_progress_counts_up_to_all_steps(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    told = reduced[1]
    assert [done for done, _ in told] == list(range(len(told)))
    assert {steps for _, steps in told} == {len(told)}


def test_every_claim_has_a_row_and_a_reason(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    found = reduced[0]
    papers = [row.paper for row in found.rows]
    assert {3.5, 1.44, 2.67, 1.41, 1.51, 1.12, 1.17, 1.13, 1.19, 450.0, 128.0, 6.0, 16.0, 4.0} <= set(papers)
    assert all(row.why and row.setup and row.ours > 0 for row in found.rows)
    assert json.loads(json.dumps(found.to_dict()))["paper"] == "ace"


def test_the_reduced_platform_needs_what_was_counted(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    knees = reduced[0].data["least_memory_gbs"]
    counted = arithmetic("4x2x2")
    assert knees["kernels"] == pytest.approx(0.98 * counted.kernel_read_gbs, rel=0.05)
    assert knees["engine"] == pytest.approx(0.98 * counted.engine_read_gbs, rel=0.05)


def test_every_model_is_on_the_map_and_the_papers_numbers_are_drawn(
    reduced: tuple[Reproduction, list[tuple[int, int]]],
) -> None:
    found = reduced[0]
    assert {one["model"] for one in found.data["map"]} == set(WORKLOADS)
    drawn = found.charts["map"]
    assert all(f"paper: {text}" in drawn for text in ("resnet50 1.41x", "gnmt 1.12x", "dlrm 1.13x"))
    for one in found.data["map"]:
        assert f"{one['model'].removeprefix('multitree-')} {one['gain']:.2f}" in drawn


def test_there_is_a_chart_of_every_study(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    charts = reduced[0].charts
    assert set(charts) >= {
        "memory",
        "processors",
        "sram",
        "fsms",
        "driven",
        "speedup-published",
        "speedup-roofline",
        "speedup-peak",
        "map",
    }
    assert all(picture.startswith("<svg") and "nan" not in picture for picture in charts.values())
