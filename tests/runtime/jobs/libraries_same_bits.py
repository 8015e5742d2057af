"""A library's own all-reduce has the bits of the schedule that stands for it.

Run by tests/runtime/test_libraries.py.
"""

import numpy as np
from support.engine_rank import ENGINE, begin, say
from support.memory_channel import interpret

from weft.algorithms.registry import find
from weft.topology import load_topology

SIZES = {"torch": (40_000, 9_000_000), "mpi": (2400, 6000, 40_008, 120_000, 1_200_000)}
LINE = find({"torch": "gloo_ring", "mpi": "open_mpi_choice"}[ENGINE])

comm = begin()
network = load_topology(f"switch:{comm.size}")
for size in SIZES[ENGINE]:
    # Sums of these depend on the order in which they are made.
    every = [
        np.random.default_rng(rank).standard_normal(size // 4).astype(np.float32) for rank in range(comm.size)
    ]
    mine = every[comm.rank].copy()
    if ENGINE == "torch":
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.from_numpy(mine))
    else:
        from mpi4py import MPI

        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, mine)
    schedule = LINE.build(network, "all_reduce", expected_bytes=size)
    interpret(schedule, every, every, "sum")
    assert np.array_equal(every[comm.rank], mine), (size, schedule.notes)
say("same bits")
comm.close()
