"""A process that outlives ``weft run`` just long enough to end what a killed ``weft run`` left behind.

It is told on standard input which process groups there are, one ``+PID`` or ``-PID`` a line. When the input
ends, the launcher is gone, however it died, and every group still on the list is killed. Run as a file,
without Weft, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Keep the list; kill what is on it at the end."""
    groups: set[int] = set()
    for line in sys.stdin:
        if not line.endswith("\n"):
            break  # a launcher that died while it wrote
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
