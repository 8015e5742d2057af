"""One rank of a torch group; rank 0 prints the addresses that it listens at while it waits for the other."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

import weft.torch  # noqa: F401 - makes the backend known
from weft.runtime.engines import engine_choice

LISTENING = "0A"


def listening() -> set[str]:
    """IPv4 addresses at which this process listens, other than torch's own store."""
    inodes = set()
    for path in Path("/proc/self/fd").iterdir():
        if path.is_socket():
            inodes.add(str(path.stat().st_ino))
    found = set()
    for line in Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        if words[3] == LISTENING and words[9] in inodes and int(port, 16) != int(os.environ["MASTER_PORT"]):
            found.add(socket.inet_ntoa(struct.pack("=I", int(address, 16))))
    return found


def main() -> None:
    """Meet, and say where."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            seen.update(listening())

    watcher = threading.Thread(target=look)
    watcher.start()
    if os.environ["RANK"] != "0":
        join = engine_choice.join

        def join_late(*words: Any, **named: Any) -> Any:
            time.sleep(1.5)  # so that the other one is seen to listen
            return join(*words, **named)

        engine_choice.join = join_late  # type: ignore[attr-defined]
    dist.init_process_group("weft")
    dist.all_reduce(torch.ones(10))
    over.set()
    watcher.join()
    if os.environ["RANK"] == "0":
        print("listened at", *sorted(seen), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
