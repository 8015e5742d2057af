"""A flood of connections from peers that do not know a job's secret, on loopback only.

The flood is a process of its own. It finds its targets in a folder: every file there is named after a port. A
rank announces its listeners with `announce_listeners`, so that the flood also reaches the listeners for data,
which are open for an instant only. When a port leaves the folder, the flood closes all its connections. Its
rate, its open connections and its time are bounded.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
_TICK_S = 0.005
_LOOK_S = 0.02
_MOST_OPEN = 2000
_SPEAKER_S = 0.1
"""A connection that has spoken is kept open for so long."""


@dataclass(frozen=True)
class Flood:
    """What a flood does.

    Parameters
    ----------
    silent, speaking
        Connections a second, shared by all targets: those that say nothing, and those that send garbage,
        half a hello or a hello that was overheard, in turn.
    seconds
        Bound of the time.
    hello
        What was overheard.
    enough
        Connections of each kind, after which the flood says that it has made them (`await_flood`).
    """

    silent: int
    speaking: int
    seconds: float
    hello: bytes = b""
    enough: int = 0


@contextmanager
def flooding(flood: Flood, targets: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a flood as long as the block runs."""
    words = [str(targets), str(flood.silent), str(flood.speaking), str(flood.seconds), flood.hello.hex()]
    words.append(str(flood.enough))
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def await_flood(process: subprocess.Popen[str]) -> None:
    """Wait until a flood has made enough connections, at whatever rate the machine lets it."""
    assert process.stdout is not None
    assert process.stdout.readline() == "enough\n"


def end_flood(process: subprocess.Popen[str]) -> dict[str, Any]:
    """End a flood; how many connections it has made."""
    out, _ = process.communicate("", timeout=30)
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def announce_listeners(folder: Path) -> None:
    """From now on, name each port that this process listens at in a folder."""
    listen = socket.socket.listen

    def announce(self: socket.socket, *backlog: int) -> None:
        listen(self, *backlog)
        if self.family == socket.AF_INET:
            (folder / str(self.getsockname()[1])).touch()

    socket.socket.listen = announce  # type: ignore[method-assign]


def _speeches(hello: bytes) -> Iterator[bytes]:
    garbage = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4
    return cycle([garbage, hello[:-1] or b"WEFT", os.urandom(300), hello or b"WEFT\0"])


class _Connections:
    def __init__(self) -> None:
        self.open: deque[tuple[float, socket.socket]] = deque()
        self.made = self.dropped = self.failed = 0

    def add(self, port: int, words: bytes | None) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        self.open.append((time.monotonic() + (_SPEAKER_S if words is not None else 1e9), connection))
        # On loopback the handshake of TCP is over when this returns, unless the connection is refused, or the
        # kernel drops the request because the listener's queue is full, as it is where nobody serves it.
        if connection.connect_ex((LOOPBACK, port)) not in (0, errno.EINPROGRESS):
            self.failed += 1
            return
        try:
            connection.getpeername()
        except OSError:
            self.dropped += 1
            return
        try:
            if words is not None:
                connection.send(words)
        except OSError:
            self.failed += 1
        else:
            self.made += 1

    def tidy(self, now: float) -> None:
        """Close what has been open for long enough, and what is too many."""
        while self.open and (len(self.open) > _MOST_OPEN or self.open[0][0] <= now):
            self.open.popleft()[1].close()


def main() -> None:
    """Flood until standard input ends, or the time does."""
    folder, silent, speaking, seconds, hello, enough = sys.argv[1:]
    speeches = _speeches(bytes.fromhex(hello))
    kinds = ((float(silent), _Connections()), (float(speaking), _Connections()))
    owed = [0.0, 0.0]
    ports: list[int] = []
    is_enough = int(enough) == 0
    turn = count()
    os.set_blocking(0, False)
    print("ready", flush=True)
    began = before = looked = time.monotonic()
    while before < began + float(seconds):
        with suppress(BlockingIOError):
            if os.read(0, 1) == b"":
                break
        if not ports or before - looked > _LOOK_S:
            found, looked = [int(path.name) for path in Path(folder).iterdir()], before
            if not set(ports) <= set(found):
                for _, connections in kinds:
                    connections.tidy(float("inf"))
            ports = found
        time.sleep(_TICK_S)
        now = time.monotonic()
        for number, (rate, connections) in enumerate(kinds):
            # What a descheduled flood has missed is not made up for beyond a tenth of a second.
            owed[number] += rate * min(now - before, 0.1)
            while ports and owed[number] >= 1:
                owed[number] -= 1
                connections.add(ports[next(turn) % len(ports)], next(speeches) if number else None)
            owed[number] %= 1
            connections.tidy(now)
        if not is_enough and min(connections.made for _, connections in kinds) >= int(enough):
            is_enough = True
            print("enough", flush=True)
        before = now
    names = ("silent", "speaking")
    made = {name: kind[1].made for name, kind in zip(names, kinds, strict=True)}
    dropped = sum(kind[1].dropped for kind in kinds)
    failed = sum(kind[1].failed for kind in kinds)
    took = round(time.monotonic() - began, 3)
    print(json.dumps({**made, "dropped": dropped, "failed": failed, "seconds": took}))


if __name__ == "__main__":
    main()
