"""Rank 2 dies, rank 1 learns that in a part of the two and leaves; rank 0 is in an operation of all three.

All on one processor, so that rank 0 often sees rank 1 leave before its own watch has run.
"""

import logging
import os
import signal
import time

import weft


def main() -> None:
    logging.getLogger("weft").setLevel(logging.ERROR)  # who is slow on a busy machine is not asked here
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before the watch begins, which inherits it
    comm = weft.init(timeout=30)
    part = comm.split(0 if comm.rank > 0 else None)
    comm.barrier()
    if comm.rank == 2:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            (part or comm).barrier()
    except weft.PeerLost as error:
        comm.close()
        print(error.rank, flush=True)


if __name__ == "__main__":
    main()
