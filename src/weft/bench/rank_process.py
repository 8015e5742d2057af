"""The process of one rank of a measured job: joins the job, then does what the controller orders.

Run as ``python -m weft.bench.rank_process``, by the controller or by a launcher such as mpirun. Its
environment says where the controller listens and has the secret of the job.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.bench.control_messages import MAX_MESSAGE_BYTES, ControlConnection, serve
from weft.bench.peers import find_entry
from weft.bench.peers.peer import JobInvitation, Peer
from weft.bench.rank_tasks import RankTasks
from weft.errors import WeftError
from weft.runtime.bootstrap.dialer import Dialer
from weft.runtime.bootstrap.handshake import Hello
from weft.runtime.launcher.watchdog import end_with_parent

if TYPE_CHECKING:
    from weft.bench.control_messages import Message

SOCKET: Final = "WEFT_BENCH_SOCKET"
SECRET: Final = "WEFT_BENCH_SECRET"  # noqa: S105 - the name of a variable
PEER: Final = "WEFT_BENCH_PEER"
SCOPE: Final = "bench"


def main() -> int:
    """Serve until told to leave; 1 if something failed, which the controller is told."""
    end_with_parent()
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)  # so that the controller can end it with all it starts
    peer = find_entry(os.environ[PEER])
    controller = _connect_controller()
    return serve(controller, lambda: _take_orders(controller, peer), _describe)


def _describe(error: Exception) -> Message:
    known = isinstance(error, WeftError)
    return {"error": str(error) if known else f"{type(error).__name__}: {error}"}


def _connect_controller() -> ControlConnection:
    dialer = Dialer(
        (socket.AF_UNIX, os.environ[SOCKET]),
        bytes.fromhex(os.environ[SECRET]),
        Hello.make(0, 0, SCOPE),  # some runtimes number their ranks only when they have joined
        b"",
        MAX_MESSAGE_BYTES,
    )
    frames, _ = dialer.wait_until_admitted(time.monotonic() + limits.MAX_UNPROVEN_SECONDS)
    return ControlConnection(frames)


def _take_orders(controller: ControlConnection, peer: Peer) -> None:
    rank = peer.rank()
    controller.send({"announcement": peer.announce() if rank == 0 else ""})
    invitation = controller.receive()
    joined = peer.join(JobInvitation(rank=rank, **invitation))
    tasks = RankTasks(joined)
    controller.send({"rank": joined.rank, "versions": joined.versions()})
    while (order := controller.receive())["do"] != "leave":
        controller.send(tasks.do(order))
    joined.close()


if __name__ == "__main__":
    sys.exit(main())
