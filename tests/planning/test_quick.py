"""Schedules chosen quickly: the fastest of a few, with times that do not jump."""

from __future__ import annotations

import pytest

from weft.algorithms import registry
from weft.errors import InputError
from weft.planning.quick import CANDIDATES, QuickChooser
from weft.simulation import simulate
from weft.topology import load_topology


def test_it_takes_the_fastest_at_the_size_that_it_tries() -> None:
    topology = load_topology("torus:4x4")
    schedule, segment = QuickChooser(topology)("all_reduce", 32 << 20)
    chosen = simulate(schedule, 32 << 20, segment_bytes=segment).seconds
    for name in CANDIDATES:
        line = registry.find(name)
        if name != "hdrm":
            other = simulate(line.build(topology, "all_reduce"), 32 << 20, max_work=None).seconds
            assert chosen <= other * 1.001, name


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
