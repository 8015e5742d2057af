"""One rank of a job whose rank 2 dies while `split` connects; prints whom it has lost, and after how long.

Words: none. The victim ends itself where it would connect; so the others wait for its connections.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import weft
from weft.runtime.transport import connect

VICTIM = 2


def main() -> None:
    """Split, and say how that ended."""
    logging.getLogger("weft").setLevel(logging.ERROR)  # who is slow on a busy machine is not asked here
    comm = weft.init(transport="tcp", timeout=60)
    comm.barrier()
    if comm.rank == VICTIM:

        def die(*words: Any, **named: Any) -> Any:
            time.sleep(0.3)  # the others are connecting by then
            os.kill(os.getpid(), signal.SIGKILL)

        connect.connect_peers = die
    began = time.monotonic()
    try:
        comm.split(0)
    except weft.PeerLost as error:
        print(error.rank, (error.pid or 0) > 0, time.monotonic() - began < 20, flush=True)


if __name__ == "__main__":
    main()
