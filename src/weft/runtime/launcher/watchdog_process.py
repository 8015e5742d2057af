"""The watchdog process: it outlives ``weft run`` long enough to end what a killed ``weft run`` left behind.

It is told on standard input which process groups there are, one ``+PID`` or ``-PID`` a line, and which
directories are theirs, ``/PATH``. When the input ends, the launcher is gone, however it died: every group
still on the list is killed, and the directories are removed. Run as a file, without Weft, so that it starts
in milliseconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Keep the list; end what is on it at the end."""
    # Meant for the ranks, whose parent is this one's too.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    groups: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        if not line.endswith("\n"):
            break  # a launcher that died while it wrote
        if line.startswith("/"):
            folders.append(line[:-1])
        else:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
