"""Errors name the call and say that a rank has left.

The call is named as the user made it, and a rank that left in order as one that did.

Run by tests/runtime/test_misuse.py.
"""

import logging
import sys

import weft

logging.getLogger("weft").setLevel(logging.ERROR)
comm = weft.init(timeout=20)
comm.barrier()
if comm.rank == 1:
    comm.close()
    sys.stdin.readline()
    sys.exit()
try:
    comm.barrier() if sys.argv[1] == "barrier" else comm.split(0)
except weft.PeerLost as error:
    print(error, flush=True)
sys.stdin.readline()
