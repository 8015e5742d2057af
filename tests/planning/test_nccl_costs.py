"""NCCL's cost model: figures worked out by hand from its formulas, and what it chooses."""

from __future__ import annotations

import itertools
import math

import pytest

from weft.errors import InputError
from weft.planning.nccl_costs import PROTOCOLS, NcclCluster
from weft.planning.nccl_search import ChannelSearch

KIB, GIB = 1 << 10, 1 << 30


def busbw(cluster: NcclCluster, size: int, algorithm: str) -> float:
    n = cluster.ranks
    return size / cluster.microseconds(size, algorithm, "Simple") / 1000 * 2 * (n - 1) / n


def test_latency_of_a_ring_counts_steps_inside_boxes_and_across() -> None:
    # 30 steps, 2 of them across: 6.6 + 28 * max(0.6, 1.0) + 2 * 2.7, and 64 bytes at 39 GB/s * 16/30.
    two = NcclCluster(boxes=2, generation="hopper")
    assert two.microseconds(64, "ring", "LL") == pytest.approx(40.0 + 64 / (39_000 * 16 / 30))


def test_latency_of_a_tree_grows_with_the_logarithm_of_the_boxes() -> None:
    times = [NcclCluster(boxes=boxes).microseconds(0, "tree", "LL") for boxes in (4, 8, 16, 32)]
    assert times[0] == pytest.approx(6.8 + 2 * (7 * 0.6 + 2 * 5.0))
    assert [later - sooner for sooner, later in itertools.pairwise(times)] == pytest.approx([10] * 3)


def test_a_ring_of_one_box_reaches_what_its_channels_carry() -> None:
    assert busbw(NcclCluster(boxes=1, generation="hopper"), 64 * GIB, "ring") == pytest.approx(360, rel=0.01)
    assert busbw(NcclCluster(boxes=1, generation="ampere"), 64 * GIB, "ring") == pytest.approx(240, rel=0.01)


def test_trees_of_two_boxes_get_less_at_sizes_that_nccl_corrects() -> None:
    two = NcclCluster(boxes=2)
    # 8 channels of 41.4 GB/s at most, 0.92 * 45 here, times 0.85; half of it is algbw; half again at 1 MiB.
    speed = 8 * 0.92 * 45 * 0.85 / 2
    latency = 8.4 + 2 * (7 * 4.0 + 14.0)
    assert two.microseconds(1 << 30, "tree", "Simple") == pytest.approx(latency + (1 << 30) / (1000 * speed))
    assert two.microseconds(1 << 20, "tree", "Simple") == pytest.approx(latency + (1 << 20) / (500 * speed))


def test_small_messages_are_sent_with_flags_and_large_ones_without() -> None:
    four = NcclCluster(boxes=4)
    assert four.choose(KIB).protocol == "LL"
    assert four.choose(8 * GIB) == ("nvls_tree", "Simple", pytest.approx(46339, rel=0.001))
    assert NcclCluster(boxes=4, generation="ampere", gigabits=200).choose(8 * GIB).algorithm == "ring"


def test_nvls_is_for_one_box_of_hopper_with_simple() -> None:
    assert NcclCluster(boxes=1).has("nvls", "Simple")
    assert not NcclCluster(boxes=1).has("nvls", "LL")
    assert not NcclCluster(boxes=2).has("nvls", "Simple")
    with pytest.raises(InputError, match="no nvls_tree with Simple on 2 boxes"):
        NcclCluster(boxes=2, generation="ampere").microseconds(KIB, "nvls_tree", "Simple")
    without = NcclCluster(boxes=16, gpus=4, interfaces=2, gigabits=200, nvswitch=False)
    assert without.choose(8 * GIB).algorithm == "ring"


def test_the_latency_of_a_protocol_is_what_remains_of_no_bytes() -> None:
    two = NcclCluster(boxes=2, generation="hopper")
    assert two.latency_microseconds(64, "ring", "LL") == pytest.approx(40.0)
    for name, protocol in itertools.product(("ring", "tree"), PROTOCOLS):
        assert two.latency_microseconds(0, name, protocol) == two.microseconds(0, name, protocol)
    # Simple between boxes costs 1.4 times as much once every rank has 64 bytes for each channel.
    small, large = (two.latency_microseconds(size, "ring", "Simple") for size in (KIB, GIB))
    assert large == pytest.approx(1.4 * small)


@pytest.mark.parametrize("wrong", [{"generation": "turing"}, {"cpu": "power"}, {"gigabits": 0}, {"gpus": 0}])
def test_what_the_model_does_not_know_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        NcclCluster(boxes=2, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("generation", "boxes", "interfaces", "gigabits", "rings", "trees"),
    [
        # The logs of one box say 24 channels: NCCL lays each twice.
        ("ampere", 1, 8, 400, (12, 20, 20), (12, 20, 20)),
        ("hopper", 1, 8, 400, (12, 30, 30), (12, 30, 30)),
        # Those of two boxes of H100 say 16.
        ("hopper", 2, 8, 400, (8, 45, 45), (8, 48, 48)),
        # Few and fast channels are doubled; trees use NVLink at up to twice the speed of the network.
        ("hopper", 5, 4, 400, (8, 24, 24), (8, 48, 24)),
        ("ampere", 2, 8, 200, (8, 24, 24), (8, 30, 24)),
        ("ampere", 2, 2, 200, (2, 24, 24), (2, 48, 24)),
        ("ampere", 2, 8, 400, (16, 15, 15), (16, 15, 15)),
        ("ampere", 2, 8, 0.001, (8, 0.12, 0.12), (8, 0.24, 0.12)),
    ],
)
def test_the_search_finds_channels_as_nccl_logs_them(
    generation: str,
    boxes: int,
    interfaces: int,
    gigabits: float,
    rings: tuple[int, float, float],
    trees: tuple[int, float, float],
) -> None:
    found = ChannelSearch(boxes, 8, generation, interfaces, gigabits)
    assert (found.rings, found.trees) == (rings, trees)


def test_a_ring_is_as_fast_inside_boxes_as_its_interfaces() -> None:
    two = NcclCluster(boxes=2, generation="ampere", interfaces=8, gigabits=200, cpu="amd")
    assert busbw(two, 64 * GIB, "ring") == pytest.approx(8 * 24, rel=0.01)


def test_choices_are_the_best_protocol_of_each_algorithm_fastest_first() -> None:
    two = NcclCluster(boxes=2)
    found = two.choices(KIB)
    assert [one.algorithm for one in found] == ["tree", "ring", "nvls_tree"]
    assert found[0] == two.choose(KIB)
    for one in found:
        others = [
            two.microseconds(KIB, one.algorithm, name) for name in PROTOCOLS if two.has(one.algorithm, name)
        ]
        assert one.microseconds == min(others)


def test_nvls_trees_of_blackwell_get_less_at_sizes_that_nccl_corrects() -> None:
    two = NcclCluster(boxes=2, generation="blackwell")
    free = 25 + 2 * 20.9
    large, medium = (
        two.microseconds(GIB, "nvls_tree", "Simple") - free,
        two.microseconds(256 << 10, "nvls_tree", "Simple") - free,
    )
    assert medium * 4096 == pytest.approx(2 * large)


def test_what_channels_copy_at_most_is_as_the_tables_say() -> None:
    # Two boxes of 8 Hopper GPUs with 8 interfaces have 8 channels. LL128 copies 36.7 GB/s in each, as busbw:
    # 16 ranks reduce 16/30 of it. LL is given for all channels together: 39 GB/s across two boxes of Intel's.
    two = NcclCluster(boxes=2, generation="hopper", cpu="intel")
    assert two.copy_limit("ring", "LL128") == pytest.approx(8 * 36.7 * 16 / 30)
    assert two.copy_limit("ring", "LL") == pytest.approx(39 * 16 / 30)
    assert two.copy_limit("ring", "Simple") == math.inf
    # A tree sends every byte up and down, so half of it is algbw: 36.7 GB/s with LL128, 41.4 without.
    assert two.copy_limit("tree", "LL128") == pytest.approx(8 * 36.7 / 2)
    assert two.copy_limit("tree", "Simple") == pytest.approx(8 * 41.4 / 2)


def test_what_channels_copy_at_most_in_one_box_of_ampere() -> None:
    # 12 channels of 20 GB/s with LL128, of which 8 ranks get 8/14 in a ring and half in a tree; LL has 87.7.
    one = NcclCluster(boxes=1, generation="ampere", cpu="amd")
    assert one.copy_limit("ring", "LL128") == pytest.approx(12 * 20 * 8 / 14)
    assert one.copy_limit("tree", "LL128") == pytest.approx(12 * 20 / 2)
    assert one.copy_limit("tree", "LL") == pytest.approx(87.7 / 2)
