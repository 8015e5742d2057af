"""One rank of `start_up.py`: import, join, first all-reduce, and then one line of JSON about it.

    python start_up_job.py WAY       # of WAYS, with the environment that a launcher makes

Nothing else is imported before the clock is read, so that what a way imports is its own. Times are of the
monotonic clock, which the processes of a machine share.
"""

import json
import os
import resource
import sys
import time
from typing import Any

WAYS = ("weft", "gloo", "weft in torch")


def start_weft() -> tuple[Any, float, float]:
    """Weft alone, with an array of numpy."""
    import numpy as np

    import weft

    imported = time.monotonic()
    comm = weft.init(timeout=300)
    joined = time.monotonic()
    array = np.ones(256, np.float32)
    comm.all_reduce(array)
    if array[0] != comm.size:
        sys.exit(f"the first all-reduce gave {array[0]} on {comm.size} ranks")
    return comm.close, imported, joined


def start_torch(backend: str) -> tuple[Any, float, float]:
    """A process group of torch."""
    from datetime import timedelta

    import torch
    from torch import distributed as dist

    imported = time.monotonic()
    torch.set_num_threads(1)
    if backend == "weft":
        import weft.torch  # noqa: F401 - makes the backend known, and counts as joining
    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    joined = time.monotonic()
    tensor = torch.ones(256)
    dist.all_reduce(tensor)
    if tensor[0] != dist.get_world_size():
        sys.exit(f"the first all-reduce gave {tensor[0]} on {dist.get_world_size()} ranks")
    return dist.destroy_process_group, imported, joined


def main() -> None:
    """Start, tell how long it took, and leave."""
    began = time.monotonic()
    way = sys.argv[1]
    if way not in WAYS:
        sys.exit(f"{way}: is none of {', '.join(WAYS)}")
    if way == "weft":
        leave, imported, joined = start_weft()
    else:
        leave, imported, joined = start_torch("weft" if way == "weft in torch" else "gloo")
    ended = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"began": began, "imported": imported, "joined": joined, "ended": ended}
    told |= {"cpu_s": used.ru_utime + used.ru_stime, "rank": int(os.environ["RANK"])}
    print(json.dumps(told), flush=True)
    leave()


if __name__ == "__main__":
    main()
