"""A split that is refused keeps no room, and a receiver of another size is told.

Run by tests/runtime/test_split.py.
"""

import numpy as np
import pytest
from support.engine_rank import FOLDER, begin, say

import weft
from weft.planning import plan, save_plan

comm = begin(timeout=20)
R, N = comm.rank, comm.size
path = f"{FOLDER}/plan{R}.weft"
save_plan(plan("ring:2", "1MiB", algorithms="ring"), path)
other = plan("ring:3", "1MiB", algorithms="ring")
unfit = ({"algorithm": "nonsense"}, {"topology": "ring:3"}, {"plan": other}, {"plan": "nowhere.weft"})
for _ in range(20):  # more than there is room for at a time
    for wrong in unfit:
        with pytest.raises(weft.WeftError):
            comm.split(0, **wrong)
    with pytest.raises(weft.InputError, match="timeout"):
        comm.duplicate(timeout=-1)
part = comm.split(0, plan=path)
assert part.plan is not None and (part.all_reduce(np.ones(9)) == N).all()
assert (comm.all_reduce(np.ones(9)) == N).all()
comm.close()
say("whole")
comm = begin(timeout=20)
comm.barrier()
try:
    if R == 0:
        comm.send(np.ones(5, np.float32), 1)
    else:
        comm.recv(np.ones(6, np.float32), 0)
except weft.DesyncError as error:
    assert error.rank == 1 - R
    say("told")
