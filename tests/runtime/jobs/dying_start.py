"""One rank of a job whose start one rank does not survive; `support.starts` runs it.

Words: transport, join timeout, connect timeout. The variable ``DIES`` says at which rank, in which phase of
the start and by which signal a rank ends itself: ``2 cards SIGKILL``. Each rank prints when, and what it then
said.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.runtime.bootstrap import (
    client,
    control_plane,
    dialer,
    server,
)
from weft.runtime.transport import address_exchange, connect, tcp_connections
from weft.runtime.transport.rank_transport import Transport

PHASES: dict[str, tuple[tuple[Any, str, int], tuple[Any, str, int]]] = {
    # Where rank 0 ends, and where any other rank does: before which call, counted from 1, of which function.
    "knock": ((server.BootstrapServer, "admit_all", 1), (dialer.Dialer, "_connect", 1)),
    "handshake": ((server.BootstrapServer, "_decide", 2), (dialer.Dialer, "_answer", 1)),
    "admitted": ((server, "send_all", 1), (client, "_enter", 1)),
    "welcomed": ((connect, "_connect", 1), (connect, "_connect", 1)),
    "cards": ((control_plane.ControlPlane, "exchange", 1), (control_plane.ControlPlane, "exchange", 1)),
    "cards told": ((address_exchange, "_check_infos", 1), (address_exchange, "_check_infos", 1)),
    "attach": ((connect, "_attach", 1), (connect, "_attach", 1)),
    "attached": ((connect, "connect_peers", 1), (connect, "connect_peers", 1)),
    "lines": ((tcp_connections._Connecting, "_admit", 1), (tcp_connections._Connecting, "_advance", 2)),
    "last line": ((tcp_connections._Connecting, "_admit", 3), (tcp_connections._Connecting, "_advance", 4)),
    "connected": ((control_plane.ControlPlane, "exchange", 2), (control_plane.ControlPlane, "exchange", 2)),
    "watching": ((Transport, "__post_init__", 1), (Transport, "__post_init__", 1)),
    "barrier": ((control_plane.ControlPlane, "barrier", 1), (control_plane.ControlPlane, "barrier", 1)),
}


def say(**what: Any) -> None:
    """Print, with the time."""
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def end_at(where: tuple[Any, str, int], sign: signal.Signals) -> None:
    """Have this process end itself by a signal before some call of a function."""
    owner, name, number = where
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def end(*words: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            say(dies=True)
            os.kill(os.getpid(), sign)
        return real(*words, **named)

    setattr(owner, name, end)


def main() -> None:
    """Start, and say how that ended."""
    transport, join_s, connect_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    me = int(os.environ["WEFT_RANK"])
    victim, rest = os.environ["DIES"].split(" ", 1)
    phase, sign = rest.rsplit(" ", 1)
    if int(victim) == me:
        end_at(PHASES[phase][me != 0], signal.Signals[sign])
    say(ready=True)
    sys.stdin.readline()
    began = "init"
    try:
        comm = weft.init(streams=2, transport=transport, timeout=join_s, connect_timeout=connect_s)
        began = "all_reduce"
        for _ in range(3):
            comm.all_reduce(np.ones(100_000, np.float32))
    except weft.RuntimeFailure as error:
        named = [error.rank] if isinstance(error, weft.PeerLost) else list(getattr(error, "missing", []))
        pid = getattr(error, "pid", None)
        say(error=type(error).__name__, named=named, pid=pid, text=str(error), during=began)
    else:
        say(error=None, named=[], pid=None, text="", during="the end")


if __name__ == "__main__":
    main()
