"""One rank of one contestant: joins its job, then does what the controller says until that hangs up.

Run as ``python -m weft.bench.rank_process``, by the controller or by a launcher such as mpirun. Its
environment says where the controller listens and how to prove that it was asked to come.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from contextlib import suppress
from typing import Final

from weft.bench.control_messages import Closed, ControlConnection
from weft.bench.peers import find_entry
from weft.bench.peers.peer import JobInvitation, Peer
from weft.bench.rank_tasks import RankTasks
from weft.errors import WeftError
from weft.runtime.launcher.watchdog import end_with_parent

SOCKET: Final = "WEFT_BENCH_SOCKET"
SECRET: Final = "WEFT_BENCH_SECRET"  # noqa: S105 - the name of a variable
CONTESTANT: Final = "WEFT_BENCH_CONTESTANT"


def main() -> int:
    """Serve until told to leave; 1 if something failed, which the controller is told."""
    end_with_parent()
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)  # so that the controller can end it with all it starts
    entry = find_entry(os.environ[CONTESTANT])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[SOCKET])
    channel = ControlConnection(connection)
    try:
        _serve(channel, entry)
    except Closed:
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the controller must hear of it
        traceback.print_exc()
        known = isinstance(error, WeftError)
        with suppress(Closed):
            channel.send({"error": str(error) if known else f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _serve(channel: ControlConnection, entry: Peer) -> None:
    rank = entry.rank()
    announcement = entry.announce() if rank == 0 else ""
    channel.send({"secret": os.environ[SECRET], "announcement": announcement})
    invited = channel.receive()
    contestant = entry.join(JobInvitation(rank=rank, **invited))
    player = RankTasks(contestant)
    channel.send({"rank": contestant.rank, "versions": contestant.versions()})
    while (order := channel.receive())["do"] != "leave":
        channel.send(player.do(order))
    contestant.close()


if __name__ == "__main__":
    sys.exit(main())
