"""Rotations: moved trees are trees, copies load links evenly that are alike; none where groups differ."""

from __future__ import annotations

import numpy as np
import pytest

from weft.bounds.rotations import find_orbits, find_rotations
from weft.bounds.tree_columns import find_centres, grow_trees
from weft.topology import load_topology


@pytest.mark.parametrize(
    ("spec", "orders"),
    [
        ("dgx-h100:2", [8, 2]),
        ("dgx-h100:64", [8, 32, 2]),
        ("dgx-h100:3@fabric=flat", [8, 3]),
        ("fattree:4,4,4", [4, 4]),
        ("fattree:4,4,4+fail=s0-s4", []),
        ("dgx-h100:17", [8, 17]),
        ("hosts:4,4,2", []),
        ("torus:4x4", []),
    ],
)
def test_orders(spec: str, orders: list[int]) -> None:
    assert [rotation.order for rotation in find_rotations(load_topology(spec))] == orders


@pytest.mark.parametrize("spec", ["dgx-h100:2", "dgx-h100:3@fabric=flat", "fattree:4,4,4"])
def test_copies_are_trees_and_load_alike_links_evenly(spec: str) -> None:
    topology = load_topology(spec)
    rotations = find_rotations(topology)
    trees, _ = grow_trees(topology, find_centres(topology, 2), (True, True), 3, 0)
    for rotation in rotations:
        trees = rotation.copy_trees(trees)
    assert len(trees) == 3 * np.prod([rotation.order for rotation in rotations])
    offsets, links = trees.route_offsets, trees.route_links
    for tree in range(len(trees)):
        for rank in range(topology.ranks):
            if rank == trees.root[tree]:
                assert trees.down[tree, rank] == trees.up[tree, rank] == -1
                continue
            at, steps = rank, 0
            while at != trees.root[tree]:
                route = trees.down[tree, at]
                way = links[offsets[route] : offsets[route + 1]]
                assert topology.link_dst[way[-1]] == at
                assert (topology.link_dst[way[:-1]] == topology.link_src[way[1:]]).all()
                at, steps = int(topology.link_src[way[0]]), steps + 1
                assert steps <= topology.ranks
    load = trees.count_links(topology.links).sum(axis=0)
    alike = find_orbits(rotations, topology.links)
    for orbit in range(int(alike.max()) + 1):
        assert len(set(load[alike == orbit].tolist())) == 1
