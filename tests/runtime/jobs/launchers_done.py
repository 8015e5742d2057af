"""A rank that sums, opens a second communicator, and says how it found its place."""

import numpy as np

import weft
from weft.runtime import find_place

place = find_place()
with weft.init(timeout=60) as comm:
    array = comm.all_reduce(np.full(100_000, comm.rank, np.float32))
    assert (array == sum(range(comm.size))).all()
    assert comm.size == 4
with weft.init(timeout=60) as again:
    again.barrier()
print(f"done {place.rank} {place.launcher} {type(place.secret_exchange).__name__}\n", end="", flush=True)
