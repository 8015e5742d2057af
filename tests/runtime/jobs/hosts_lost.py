"""When a cable is cut each side names the other.

Run by tests/runtime/test_hosts.py.
"""

import logging
import sys
import time

import numpy as np

import weft

logging.getLogger("weft").setLevel(logging.ERROR)  # slow ranks are named there as well

comm = weft.init(algorithm=sys.argv[1], timeout=100)
array = np.ones(300_000, np.float32)
comm.all_reduce(array)
print("ready", flush=True)
began = time.monotonic()
try:
    while time.monotonic() < began + 90:
        comm.all_reduce(array)
except weft.PeerLost as error:
    print("lost", error.rank, error.pid, flush=True)
    sys.exit(7)
