"""A rank that a schedule gives nothing has an empty share.

Run by tests/runtime/test_results.py.
"""

import numpy as np

import weft
from weft.algorithms import registry
from weft.schedule.passes import halves

tree = registry.find("double_binary_tree").build(weft.load_topology("fullmesh:3"), "all_reduce", 0)
comm = weft.init(schedule=halves(tree)[0])
share = comm.reduce_scatter(np.arange(12.0))
sizes = comm.all_gather(np.array([len(share)]))
assert sizes.sum() == 12 and sizes[2] == 0, sizes
first = int(sizes[: comm.rank].sum())
assert (share == comm.size * np.arange(first, first + len(share))).all(), share
