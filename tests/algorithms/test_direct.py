"""Direct exchange: every rank to every other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts

from weft.algorithms import direct
from weft.errors import InputError, ScheduleError
from weft.schedule import Schedule
from weft.schedule.passes import halves
from weft.topology import Topology, load_topology

RANKS = [*range(2, 18), 24, 32]
UNROOTED = [direct.all_reduce, direct.reduce_scatter, direct.all_gather, direct.all_to_all]
ROOTED = [direct.broadcast, direct.reduce]


def link_loads(schedule: Schedule) -> np.ndarray:
    """Chunks over each link."""
    load = np.zeros(schedule.topology.links)
    for row in range(schedule.transfers):
        load[list(schedule.route_of(row))] += 1
    return load


@pytest.mark.parametrize("ranks", RANKS)
def test_every_collective_is_right(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    assert all(accepts(make(topology)) for make in UNROOTED)
    for root in {0, 1, ranks // 2, ranks - 1}:
        assert all(accepts(make(topology, root=root)) for make in ROOTED)


@examples(30)
@given(clusters(max_ranks=16), st.data())
def test_any_cluster_is_served(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, topology.ranks - 1))
    assert all(accepts(make(topology)) for make in UNROOTED)
    assert all(accepts(make(topology, root=root)) for make in ROOTED)


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
def test_steps(ranks: int) -> None:
    topology = load_topology(f"fullmesh:{ranks}")
    assert direct.all_reduce(topology).steps == 2 * (ranks - 1)
    assert direct.reduce_scatter(topology).steps == direct.all_gather(topology).steps == ranks - 1
    assert direct.all_to_all(topology).steps == ranks - 1
    assert direct.broadcast(topology).steps == direct.reduce(topology).steps == 2 * ranks - 3


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
def test_full_mesh_links_carry_equal_loads(ranks: int) -> None:
    topology = load_topology(f"fullmesh:{ranks}")
    assert set(link_loads(direct.all_reduce(topology)).tolist()) == {2}
    assert set(link_loads(direct.reduce_scatter(topology)).tolist()) == {1}
    assert set(link_loads(direct.all_gather(topology)).tolist()) == {1}
    assert set(link_loads(direct.all_to_all(topology)).tolist()) == {1}
    assert link_loads(direct.broadcast(topology, root=1)).max() == 1
    assert link_loads(direct.reduce(topology, root=1)).max() == 1


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
def test_nobody_sends_or_receives_twice_in_a_step(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    for schedule in [make(topology) for make in (*UNROOTED, *ROOTED)]:
        for end in (schedule.src, schedule.dst):
            place = schedule.step.astype(np.int64) * ranks + end
            assert len(np.unique(place)) == len(place)


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
def test_the_root_moves_the_buffer_once(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    down, up = direct.broadcast(topology, root=1), direct.reduce(topology, root=1)
    assert (down.src == 1).sum() == down.chunks == ranks - 1
    assert (up.dst == 1).sum() == up.chunks == ranks - 1
    assert np.bincount(down.src).max() <= ranks - 1
    assert (down.dst != 1).all()
    assert (up.src != 1).all()


def test_all_reduce_has_halves() -> None:
    scatter, gather = halves(direct.all_reduce(load_topology("fullmesh:5")))
    assert accepts(scatter)
    assert accepts(gather)


def test_the_same_input_gives_the_same_schedule() -> None:
    first, second = (direct.all_to_all(load_topology("mesh:3x3+fail=0-1")) for _ in range(2))
    assert first.digest == second.digest


def test_a_root_that_is_no_rank_is_refused() -> None:
    for make in ROOTED:
        with pytest.raises(ScheduleError, match="root 9 is not a rank"):
            make(load_topology("ring:4"), root=9)


def test_a_schedule_beyond_the_limit_is_refused_before_it_is_made() -> None:
    for make in UNROOTED:
        with pytest.raises(InputError, match="accepts"):
            make(load_topology("ring:16384"))
