"""Halving-doubling and recursive doubling, for any number of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts

from weft.algorithms import halving_doubling, recursive_doubling
from weft.errors import InputError
from weft.schedule import Op, Schedule
from weft.schedule.passes import halves, reverse
from weft.topology import Topology, load_topology

RANKS = [*range(2, 18), 24, 32]
ORDERS = ["nearest", "farthest"]


def shares(schedule: Schedule, end: np.ndarray) -> np.ndarray:
    """Share of the buffer that each rank sends or receives."""
    return np.bincount(end, schedule.weights[schedule.chunk], schedule.ranks) / schedule.denominator


def messages_per_rank_and_step(schedule: Schedule) -> int:
    starts = schedule.message_starts
    place = schedule.step[starts].astype(np.int64) * schedule.ranks + schedule.src[starts]
    return int(np.unique(place, return_counts=True)[1].max())


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_collective_is_right(ranks: int, order: str) -> None:
    topology = load_topology(f"switch:{ranks}")
    assert accepts(halving_doubling.all_reduce(topology, order=order))
    assert accepts(halving_doubling.reduce_scatter(topology, order=order))
    assert accepts(halving_doubling.all_gather(topology, order=order))


@pytest.mark.parametrize("ranks", RANKS)
def test_recursive_doubling_is_right(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    assert accepts(recursive_doubling.all_reduce(topology))
    assert accepts(recursive_doubling.all_gather(topology))


@examples(40)
@given(clusters(), st.sampled_from(ORDERS))
def test_any_cluster_is_served(topology: Topology, order: str) -> None:
    for module in (halving_doubling, recursive_doubling):
        assert accepts(module.all_reduce(topology))
        assert accepts(module.all_gather(topology))
    assert accepts(halving_doubling.all_reduce(topology, order=order))
    assert accepts(halving_doubling.reduce_scatter(topology, order=order))


@pytest.mark.parametrize("ranks", [*RANKS, 100, 127, 192])
@pytest.mark.parametrize("order", ORDERS)
def test_steps_and_volume_are_optimal_for_every_number_of_ranks(ranks: int, order: str) -> None:
    topology = load_topology(f"switch:{ranks}")
    steps = (ranks - 1).bit_length()
    for schedule, count in (
        (halving_doubling.all_reduce(topology, order=order), 2),
        (halving_doubling.reduce_scatter(topology, order=order), 1),
        (halving_doubling.all_gather(topology, order=order), 1),
    ):
        assert schedule.steps == count * steps
        assert np.allclose(shares(schedule, schedule.src), count * (ranks - 1) / ranks)
        assert np.allclose(shares(schedule, schedule.dst), count * (ranks - 1) / ranks)


@pytest.mark.parametrize("ranks", [*RANKS, 100, 128])
def test_each_step_is_one_message_per_rank_or_two(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    most = 1 if ranks & (ranks - 1) == 0 else 2
    for order in ORDERS:
        assert messages_per_rank_and_step(halving_doubling.all_reduce(topology, order=order)) <= most
    assert messages_per_rank_and_step(halving_doubling.reduce_scatter(topology)) <= most
    assert messages_per_rank_and_step(halving_doubling.all_gather(topology)) <= most
    assert messages_per_rank_and_step(recursive_doubling.all_gather(topology)) <= most


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", ORDERS)
def test_all_reduce_has_halves(ranks: int, order: str) -> None:
    scatter, gather = halves(halving_doubling.all_reduce(load_topology(f"switch:{ranks}"), order=order))
    assert accepts(scatter)
    assert accepts(gather)
    assert scatter.steps == gather.steps == (ranks - 1).bit_length()


@pytest.mark.parametrize("ranks", [3, 4, 6, 13, 16])
@pytest.mark.parametrize("order", ORDERS)
def test_reduce_scatter_is_all_gather_reversed(ranks: int, order: str) -> None:
    topology = load_topology(f"mesh:{ranks}@bw=1GB/s,back=2GB/s")
    backwards = reverse(halving_doubling.all_gather(topology.transpose(), order=order))
    assert backwards.digest == halving_doubling.reduce_scatter(topology, order=order).digest


def test_nearest_first_exchanges_half_at_distance_one_as_eflops_does() -> None:
    ranks = 16
    schedule = halving_doubling.all_reduce(load_topology(f"switch:{ranks}"))
    for step in range(4):
        rows = schedule.step == step
        assert np.array_equal(schedule.dst[rows], schedule.src[rows] ^ (1 << step))
        assert rows.sum() == ranks * ranks >> (step + 1)
        back = schedule.step == 7 - step
        assert np.array_equal(schedule.dst[back], schedule.src[back] ^ (1 << step))


def test_farthest_first_exchanges_half_across_the_middle() -> None:
    schedule = halving_doubling.all_reduce(load_topology("switch:8"), order="farthest")
    first = schedule.step == 0
    assert np.array_equal(schedule.dst[first], schedule.src[first] ^ 4)
    assert first.sum() == 8 * 4


def test_hypercube_links_carry_less_in_every_dimension() -> None:
    schedule = halving_doubling.all_reduce(load_topology("hypercube:4"))
    links = [schedule.route_of(row) for row in range(schedule.transfers)]
    assert {len(route) for route in links} == {1}
    load = np.bincount([route[0] for route in links], minlength=schedule.topology.links)
    distance = np.abs(schedule.topology.link_src - schedule.topology.link_dst)
    for bit in range(4):
        assert set(load[distance == 1 << bit].tolist()) == {2 * 16 >> (bit + 1)}


@pytest.mark.parametrize(("ranks", "steps"), [(2, 1), (8, 3), (6, 4), (17, 6), (24, 6), (32, 5)])
def test_recursive_doubling_steps(ranks: int, steps: int) -> None:
    schedule = recursive_doubling.all_reduce(load_topology(f"switch:{ranks}"))
    power = 1 << (ranks.bit_length() - 1)
    assert schedule.steps == steps
    assert schedule.chunks == 1
    assert schedule.transfers == power * (power.bit_length() - 1) + 2 * (ranks - power)


def test_surplus_ranks_of_recursive_doubling_only_talk_to_their_neighbour() -> None:
    schedule = recursive_doubling.all_reduce(load_topology("switch:11"))
    for rank in (0, 2, 4):
        rows = (schedule.src == rank) | (schedule.dst == rank)
        assert set(schedule.src[rows].tolist()) == {rank, rank + 1}
        assert schedule.op[rows].tolist() == [Op.REDUCE, Op.COPY]


def test_low_distances_stay_inside_hosts() -> None:
    mixed = replace(load_topology("switch:8"), hosts=((0, 2, 4, 6), (1, 3, 5, 7)))
    for schedule in (halving_doubling.all_reduce(mixed), recursive_doubling.all_reduce(mixed)):
        early = schedule.step < 2
        assert np.array_equal(schedule.src[early] % 2, schedule.dst[early] % 2)
        assert accepts(schedule)
    assert accepts(halving_doubling.reduce_scatter(mixed))
    assert messages_per_rank_and_step(halving_doubling.all_reduce(mixed)) == 1


@pytest.mark.parametrize("spec", ["torus:3x3+fail=0-1", "mesh:4x4+fail=5-6,6-7", "torus:4x4+fail=rank:3"])
def test_failed_parts_are_routed_round(spec: str) -> None:
    topology = load_topology(spec)
    assert accepts(halving_doubling.all_reduce(topology))
    assert accepts(recursive_doubling.all_reduce(topology))


def test_the_same_input_gives_the_same_schedule() -> None:
    first, second = (halving_doubling.all_reduce(load_topology("torus:3x4")) for _ in range(2))
    assert first.digest == second.digest


def test_bad_parameters_are_refused() -> None:
    for make in (halving_doubling.all_reduce, halving_doubling.reduce_scatter, halving_doubling.all_gather):
        with pytest.raises(InputError, match="order='middle' is unknown, expected nearest or farthest"):
            make(load_topology("ring:4"), order="middle")


def test_a_schedule_beyond_the_limit_is_refused_before_it_is_made() -> None:
    with pytest.raises(InputError, match="halving_doubling: transfers"):
        halving_doubling.all_reduce(load_topology("ring:16384"))
