"""NCCL's cost model: figures worked out by hand from its formulas, and what it chooses."""

from __future__ import annotations

import itertools

import pytest

from weft.errors import InputError
from weft.planning.nccl_costs import PROTOCOLS, NcclCluster

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
