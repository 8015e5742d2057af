"""Signals that come while a record is written neither nest nor block.

Run by tests/runtime/test_flight_recorder.py.
"""

import os
import signal
import threading
import time

import weft

comm = weft.init(timeout=30)


def flood():
    end = time.monotonic() + 3
    while time.monotonic() < end:
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.0003)


thread = threading.Thread(target=flood)
thread.start()
while thread.is_alive():
    assert comm.flight() is not None
comm.barrier()
print("done")
