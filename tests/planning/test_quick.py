"""Schedules chosen quickly: the fastest of a few, with times that do not jump."""

from __future__ import annotations

import pytest

from weft.algorithms import registry
from weft.bounds import lower_bound
from weft.errors import InputError
from weft.planning import plan
from weft.planning.quick import NEAR, SLOW, QuickChooser
from weft.simulation import simulate
from weft.topology import load_topology


def test_it_takes_the_fastest_at_the_size_that_it_tries() -> None:
    topology = load_topology("torus:4x4")
    schedule, segment = QuickChooser(topology)("all_reduce", 32 << 20)
    chosen = simulate(schedule, 32 << 20, segment_bytes=segment).seconds
    for line in registry.for_collective("all_reduce"):
        built = line.try_build(topology, "all_reduce")
        if not isinstance(built, registry.Refusal):
            # What searches longest is not tried where it gains a percent at most, at a size nearby.
            allowed = 1.01 * NEAR if line.name == SLOW else 1.001
            assert chosen <= simulate(built, 32 << 20, max_work=None).seconds * allowed, line.name


UNEVEN = "hosts:8,4,2@uplink=25GB/s/12GB/s/6GB/s"


def test_it_chooses_as_well_as_a_plan_on_uneven_hosts() -> None:
    topology = load_topology(UNEVEN)
    schedule, segment = QuickChooser(topology)("all_reduce", 32 << 20)
    chosen = simulate(schedule, 32 << 20, segment_bytes=segment, max_work=None).seconds
    planned = plan(topology, 32 << 20)
    assert chosen <= 1.02 * planned.seconds


def test_halves_are_those_of_an_all_reduce_where_equal_shards_are_slower() -> None:
    choose = QuickChooser(load_topology(UNEVEN))
    (scatter, first), (gather, last) = (choose(name, 32 << 20) for name in ("reduce_scatter", "all_gather"))
    assert scatter.target.tolist() == gather.source.tolist()  # both agree on who owns what
    whole = lower_bound(choose.topology, "all_reduce", 32 << 20).seconds
    halves = [
        simulate(half, 32 << 20, segment_bytes=cut).seconds
        for half, cut in ((scatter, first), (gather, last))
    ]
    equal = sum(
        lower_bound(choose.topology, name, 32 << 20).seconds for name in ("reduce_scatter", "all_gather")
    )
    assert whole <= sum(halves) < equal


@pytest.mark.parametrize("spec", ["switch:64", "hosts:32,16,16@uplink=25GB/s/12GB/s/6GB/s"])
def test_what_takes_long_to_build_is_left_out_on_many_ranks(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = QuickChooser(load_topology(spec))
    monkeypatch.delitem(registry.ALGORITHMS, "forest")  # nobody asks for it
    assert choose("all_reduce", 32 << 20)[0].algorithm != "forest"


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_a_little_more_takes_a_little_longer(collective: str) -> None:
    choose = QuickChooser(load_topology("switch:6@bw=1.25GB/s,lat=25us"))
    before = 0.0
    for size in range(5_000_001, 9_000_000, 400_003):
        schedule, segment = choose(collective, size)
        seconds = simulate(schedule, size, segment_bytes=segment).seconds
        assert before < seconds < (before * 1.2 if before else 1.0)
        before = seconds


def test_choices_are_kept() -> None:
    choose = QuickChooser(load_topology("ring:4"), ["ring"])
    assert choose("all_reduce", 1 << 20)[0] is choose("all_reduce", 1 << 20)[0]
    assert choose("all_to_all", 1 << 20)[0].algorithm == "direct"


def test_where_nothing_applies_the_reasons_are_told() -> None:
    with pytest.raises(InputError, match=r"no all_reduce on ring:4 by hdrm: .*BiGraph"):
        QuickChooser(load_topology("ring:4"), ["hdrm"])("all_reduce", 1000)
