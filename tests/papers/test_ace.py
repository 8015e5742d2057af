"""ACE's reproduction: the arithmetic, the bandwidth driven, and the rows made of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from weft.errors import InputError
from weft.papers import ace, reproduce
from weft.papers.ace.bandwidth import drive, exchange_seconds
from weft.papers.ace.byte_counts import SHAPES, arithmetic
from weft.papers.ace.iterations import BASELINES, NAMES, contended, devices, layers_of, point, rates
from weft.papers.claims import Reproduction
from weft.training.endpoints import ENDPOINTS, EndpointEngine

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


def test_an_endpoint_leaves_less_to_compute_with() -> None:
    npu = devices()["roofline"]
    times = {name: sum(one.forward_s for one in layers_of("resnet50", name, npu)) for name in NAMES}
    assert times["ideal"] == times["no-overlap"] < times["ace"] < times["comp-opt"] < times["comm-opt"]
    peak = {
        name: sum(one.forward_s for one in layers_of("resnet50", name, devices()["peak"])) for name in NAMES
    }
    assert peak["ace"] == pytest.approx(peak["ideal"])
    assert peak["comm-opt"] == pytest.approx(peak["ideal"] * 80 / 74)


def test_times_alone_and_the_whole_platform_agree() -> None:
    names = ("no-overlap", "ace")
    whole, _ = contended("peak", "resnet50", "4x2x2", names)
    alone = point("peak", "resnet50", "4x2x2", rates("4x2x2", 4 * MIB))
    for name in names:
        assert alone.seconds[name] == pytest.approx(whole[name], rel=0.002)
    assert alone.best_baseline in BASELINES
    assert alone.speedup == min(alone.seconds[name] for name in BASELINES) / alone.seconds["ace"]


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


def test_there_is_a_chart_of_every_study(reduced: tuple[Reproduction, list[tuple[int, int]]]) -> None:
    charts = reduced[0].charts
    assert set(charts) >= {
        "memory",
        "processors",
        "sram",
        "fsms",
        "driven",
        "speedup-roofline",
        "speedup-peak",
    }
    assert all(picture.startswith("<svg") and "nan" not in picture for picture in charts.values())
