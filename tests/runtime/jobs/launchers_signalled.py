"""A rank that stays until the test has looked at the processes of the job, all of which get a signal."""

import sys
import time
from pathlib import Path

import weft

comm = weft.init(timeout=60)
comm.barrier()
Path(sys.argv[1], f"ready{comm.rank}").touch()
deadline = time.monotonic() + 60
while not Path(sys.argv[1], "looked").exists() and time.monotonic() < deadline:
    time.sleep(0.05)
comm.barrier()
