"""What several jobs of tests/runtime/test_queued_operations.py share."""

import sys

import weft

transport, *algorithm = sys.argv[1:]
comm = weft.init(transport=transport, timeout=20, algorithm=algorithm[0] if algorithm else None)
R, N = comm.rank, comm.size
