"""The process behind a `Nursery`: it has imported everything, and forks a rank for each line that comes."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.faults import cycles, frames, rank

_POLL_S = 0.01
_CLONE_NEWNET = 0x40000000


def serve() -> dict[str, Any] | None:
    """Fork a rank for each line that comes; in the rank, return what it is to do, and None at the end."""
    ranks: set[int] = set()
    while True:
        ready, _, _ = select.select([0], [], [], _POLL_S if ranks else None)
        if ready:
            line = _read_line()
            if not line:
                break
            order: dict[str, Any] = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return order
            ranks.add(pid)
            _say(started=pid, order=order["order"])
        for pid in tuple(ranks):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ranks.discard(pid)
                _say(ended=pid, code=os.waitstatus_to_exitcode(status))
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


def _read_line() -> bytes:
    """One line, unbuffered: nothing of the next is taken along into a fork."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def _say(**words: Any) -> None:
    with suppress(BrokenPipeError):
        os.write(1, (json.dumps(words) + "\n").encode())


def settle(order: dict[str, Any]) -> None:
    """Make this fork the process that was asked for."""
    os.chdir(order["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(f"rank-{order['rank']}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ.update(order.get("variables", {}))
    if network := order.get("network"):
        with Path("/run/netns", network).open("rb") as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    for name, limit in order.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (limit, limit))


def main() -> int:
    """Serve; in a fork, be a rank."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    order = serve()
    if order is None:
        return 0
    settle(order)
    program = {"frames": frames, "cycles": cycles}.get(order.get("program", ""), rank)
    return program.main(Path(order["folder"]), order["rank"])


if __name__ == "__main__":
    sys.exit(main())
