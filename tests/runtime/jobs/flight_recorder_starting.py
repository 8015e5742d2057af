"""A rank that waits for others to join writes its record on a signal.

Run by tests/runtime/test_flight_recorder.py.
"""

import os
import time
from pathlib import Path

import weft

print("here", flush=True)
if os.environ["WEFT_RANK"] == "1":
    while not any(Path(os.environ["WEFT_FLIGHT_DIR"]).glob("flight-*")):
        time.sleep(0.05)
weft.init(timeout=30).barrier()
print("done")
