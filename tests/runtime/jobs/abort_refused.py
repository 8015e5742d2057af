"""An engine that cannot cancel says so and goes on.

Run by tests/runtime/test_abort.py.
"""

import numpy as np
from support.engine_rank import begin

import weft

comm = begin()
try:
    comm.abort()
except weft.RuntimeFailure as error:
    assert "only Weft's own engine" in str(error), error
else:
    raise AssertionError
assert comm.all_reduce(np.ones(3))[0] == comm.size
comm.close()
