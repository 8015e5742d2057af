"""One rank of a job on several hosts in which rank 2 does something else; prints how its call ended.

Words: ``desync`` or ``late``. In a ring each rank talks to its two neighbours alone, so that most
ranks have nothing to do with rank 2.
"""

from __future__ import annotations

import json
import logging
import sys
import time

import numpy as np

import weft

ODD = 2
DEADLINE_S = 4.0


def main() -> None:
    """Call, and say how that ended."""
    logging.getLogger("weft").setLevel(logging.ERROR)
    comm = weft.init(algorithm="ring", timeout=60)
    array = np.ones(100_000, np.float32)
    comm.all_reduce(array)
    try:
        if comm.rank != ODD:
            comm.all_reduce(array, timeout=DEADLINE_S if sys.argv[1] == "late" else None)
        elif sys.argv[1] == "desync":
            comm.all_reduce(array[:50_000])
        else:
            time.sleep(DEADLINE_S + 3)
            comm.all_reduce(array)
    except weft.RuntimeFailure as error:
        named = list(error.missing) if isinstance(error, weft.TimedOut) else [getattr(error, "rank", None)]
        print(json.dumps([type(error).__name__, named, str(error)]), flush=True)
    sys.stdin.readline()  # nobody is taken for lost because it has ended


if __name__ == "__main__":
    main()
