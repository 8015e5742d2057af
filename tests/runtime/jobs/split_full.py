"""There is room for so many communicators.

Run by tests/runtime/test_split.py.
"""

from support.engine_rank import begin, say

import weft

comm = begin(timeout=20)
R = comm.rank
kept = []
try:
    while len(kept) < 40:
        kept.append(comm.split(0))
except weft.LimitError as error:
    assert "close some" in str(error)
kept.pop().close()
comm.split(0).barrier()
say(len(kept))
