"""One rank of a job in which rank 1 may open only so many more files, as each line on standard input says.

Words: transport.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from itertools import count, islice
from pathlib import Path

import weft

init = weft.init  # loaded before files run out


def open_files() -> set[int]:
    """Descriptors of this process."""
    found = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    return {number for number in found if Path("/proc/self/fd", str(number)).exists()}


def main() -> None:
    """Start once for each line, and say how that ended and what was left open."""
    starved = os.environ["WEFT_RANK"] == "1"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for line in sys.stdin:
        os.environ["WEFT_JOB"] = line.strip()
        used = open_files()
        if starved:
            free = (number for number in count() if number not in used)
            resource.setrlimit(resource.RLIMIT_NOFILE, (next(islice(free, int(line), None)), before[1]))
        kind, text = "", ""
        try:
            init(transport=sys.argv[1], timeout=30, connect_timeout=30).close()
        except Exception as error:  # noqa: BLE001 - which one it is, is what the test is about
            kind, text = type(error).__name__, str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        print(json.dumps({"error": kind, "text": text, "left": len(open_files() - used)}), flush=True)


if __name__ == "__main__":
    main()
