"""NCCL's rings and trees: the orders that its logs print, the rails that they cross, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from weft.algorithms import nccl_ring, nccl_tree
from weft.algorithms.common.nccl_channels import NcclChannels
from weft.errors import UnsupportedError
from weft.schedule import Op
from weft.simulation import simulate
from weft.topology import load_topology
from weft.verification import inspect

LOGGED = {
    5: [0, 7, 6, 13, 12, 11, 10, 9, 8, 15, 14, 21, 20, 19, 18, 17, 16, 23, 22, 5],
    6: [0, 7, 14, 13, 12, 11, 10, 9, 8, 15, 22, 21],
    7: [0, 15, 14, 13, 12, 11, 10, 9, 8, 23, 22],
}
"""How each ring goes on from rank 0: the log of NVIDIA/nccl issue 1453, three boxes of 8 H100."""


@pytest.mark.parametrize("channel", sorted(LOGGED))
def test_rings_on_three_boxes_visit_gpus_in_the_order_that_nccl_logs(channel: int) -> None:
    order = NcclChannels(load_topology("dgx-h100:3"), "nccl_ring").order(channel)
    at = order.index(0)
    assert (order[at:] + order[:at])[: len(LOGGED[channel])] == LOGGED[channel]


@pytest.mark.parametrize(
    ("spec", "channels"),
    [
        ("dgx-h100:2", 8),
        ("dgx-h100:2@nics=4", 4),
        ("dgx-h100:3@fabric=leafspine", 8),
        ("leafspine:16x8@oversub=3", 8),
        ("leafspine:2x8@per_leaf=1,oversub=3", 8),
        ("dgx-a100:2", 8),
        ("dgx-h100:2@fabric=flat", 8),
        ("rails:2x8@inside=pcie", 2),
        ("hosts:4,4", 1),
        ("dgx-h100:1", 1),
    ],
)
def test_there_are_as_many_channels_as_network_interfaces(spec: str, channels: int) -> None:
    assert len(NcclChannels(load_topology(spec), "nccl_ring").rails) == channels


def test_a_box_with_a_dead_interface_has_one_channel_less() -> None:
    topology = load_topology("dgx-h100:2+fail=host0.pcie3-host0.nic3")
    assert NcclChannels(topology, "nccl_ring").rails == (0, 1, 2, 4, 5, 6, 7)
    assert inspect(nccl_ring.all_reduce(topology)).problem is None


def names(topology_spec: str, rail: int, *, pxn: bool = True) -> list[str]:
    topology = load_topology(topology_spec)
    links = NcclChannels(topology, "nccl_ring", pxn=pxn).crossing(rail, 0)
    return [topology.node_name(int(topology.link_dst[link])) for link in links]


def test_the_last_gpu_of_a_box_sends_through_the_gpu_next_to_the_interface_of_the_rail() -> None:
    inside = ["host0.nvswitch", "5", "host0.pcie5", "host0.nic5"]
    assert names("dgx-h100:2", 5) == [*inside, "leaf5", "host1.nic5", "host1.pcie5", "13"]


def test_without_pxn_the_last_gpu_sends_by_its_own_interface_and_crosses_rails() -> None:
    crossed = names("dgx-h100:2", 5, pxn=False)
    assert crossed[:2] == ["host0.pcie6", "host0.nic6"]
    assert any(name.startswith("spine") for name in crossed)


def test_on_pcie_the_way_to_the_interface_of_the_rail_enters_no_other_gpu() -> None:
    assert not any(name.isdigit() for name in names("rails:2x8@inside=pcie", 0)[:-1])


@pytest.mark.parametrize("spec", ["dgx-h100:2", "dgx-h100:3@nics=4", "dgx-a100:2", "rails:3x8@inside=pcie"])
def test_all_schedules_are_right(spec: str) -> None:
    topology = load_topology(spec)
    made = [function(topology) for function in (nccl_ring.reduce_scatter, nccl_ring.all_gather)]
    made += [nccl_ring.all_reduce(topology, pxn=pxn) for pxn in (False, True)]
    made += [nccl_tree.all_reduce(topology, chunks=chunks) for chunks in (1, 2)]
    for schedule in made:
        assert inspect(schedule).problem is None


def test_rings_of_a_box_without_latency_reach_what_its_interfaces_carry_together() -> None:
    spec = "dgx-h100:2@lat=0s,nic_lat=0s,pcie_lat=0s"
    found = simulate(nccl_ring.all_reduce(load_topology(spec)), "1GiB")
    assert found.busbw_GBps == pytest.approx(400, rel=0.03)


def test_each_interface_of_two_boxes_sends_half_as_much_by_trees_as_by_rings() -> None:
    topology = load_topology("dgx-h100:2")
    nic = topology.find_node("host0.nic2")
    leaving = (topology.link_src == nic) & (topology.link_dst == topology.find_node("leaf2"))
    sent = [
        float(simulate(schedule, "1GiB").link_busy_ps[leaving].sum())
        for schedule in (nccl_ring.all_reduce(topology), nccl_tree.all_reduce(topology))
    ]
    assert sent[1] / sent[0] == pytest.approx(8 / 15, rel=0.01)


def test_both_trees_of_four_boxes_are_those_of_nccl() -> None:
    schedule = nccl_tree.all_reduce(load_topology("dgx-h100:4"))
    box = np.asarray(schedule.src) // 8, np.asarray(schedule.dst) // 8
    across = (box[0] != box[1]) & (np.asarray(schedule.op) == int(Op.REDUCE))
    for chunk, edges in ((0, {(1, 2), (2, 0), (3, 2)}), (8, {(0, 1), (1, 3), (2, 1)})):
        rows = across & (np.asarray(schedule.chunk) == chunk)
        assert set(zip(box[0][rows].tolist(), box[1][rows].tolist(), strict=True)) == edges


@pytest.mark.parametrize(
    ("spec", "reason"), [("torus:4x4", "has no boxes"), ("mi300x:2", "cables join the GPUs of a box")]
)
def test_where_nccl_has_no_boxes_or_would_search_the_reason_is_said(spec: str, reason: str) -> None:
    for algorithm in (nccl_ring, nccl_tree):
        with pytest.raises(UnsupportedError, match=reason):
            algorithm.all_reduce(load_topology(spec))
