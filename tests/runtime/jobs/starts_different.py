"""Ranks of different transports are told at once.

Run by tests/runtime/test_starts.py.
"""

import os
import sys
import time

import weft

rank = int(os.environ["WEFT_RANK"])
began = time.monotonic()
try:
    weft.init(transport=sys.argv[1] if rank == 1 else sys.argv[2], timeout=60, connect_timeout=30)
except weft.InputError as error:
    print(time.monotonic() - began, error)
