"""A rank that is killed ends the probe.

Run by tests/probing/test_lab.py.
"""

import os
import signal
import threading

import weft
from weft.probing import ProbeEffort, probe
from weft.runtime import find_place, join

signal.signal(signal.SIGTERM, signal.SIG_IGN)
with join(find_place(), timeout=30) as control_plane:
    if control_plane.rank == 2:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        probe(control_plane, ProbeEffort())
    except weft.PeerLost as error:
        print("lost", error.rank)
