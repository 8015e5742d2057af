"""A lab whose owner is killed while a process runs on one of its hosts."""

import os
import signal
import subprocess

from weft.lab import build
from weft.topology import load_topology

with build(load_topology("switch:3@bw=50Mbit/s")) as network:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen([*network.seats()[0].prefix, "sleep", "1000"], **quiet)
    print(*network.names, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
