"""One rank of a job that is flooded; `benchmarks/runtime/flood.py` and a test run it.

Words: a folder in which to announce listeners, or "-"; seconds for which the last rank keeps the others
waiting for its connections. It starts when a line comes on standard input, and then times as many all-reduces
as each further line says.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from support.floods import announce_listeners

import weft
from weft.runtime.transport import connect

ELEMENTS = 1 << 18


def say(**what: Any) -> None:
    """Tell the controller."""
    print(json.dumps(what), flush=True)


def main() -> None:
    """Start, then run as often as told."""
    folder, hold_s = sys.argv[1], float(sys.argv[2])
    announce_listeners(Path(folder))
    if os.environ["WEFT_RANK"] == str(int(os.environ["WEFT_SIZE"]) - 1):
        connect_peers = connect.connect_peers

        def connect_late(*words: Any, **named: Any) -> Any:
            time.sleep(hold_s)
            return connect_peers(*words, **named)

        connect.connect_peers = connect_late
    say(ready=True)
    sys.stdin.readline()
    began = time.monotonic()
    try:
        comm = weft.init(transport="tcp", algorithm="ring", timeout=30, connect_timeout=20)
    except weft.WeftError as error:
        say(error=f"{type(error).__name__}: {error}")
        return
    array = np.zeros(ELEMENTS, np.float32)
    comm.all_reduce(array)
    files = len(list(Path("/proc/self/fd").iterdir()))
    say(began=began, ended=time.monotonic(), files=files)
    for line in sys.stdin:
        began = time.monotonic()
        for _ in range(int(line)):
            comm.all_reduce(array)
        say(seconds=time.monotonic() - began)
    comm.close()


if __name__ == "__main__":
    main()
