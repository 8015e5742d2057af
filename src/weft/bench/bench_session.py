"""The session of a benchmark's controller: a directory, a listening socket, a watchdog and the jobs.

None of them is left at the end.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from weft.bench.peer_job import PeerJob
from weft.runtime.bootstrap.listener import open_socket
from weft.runtime.launcher.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.bench.peers.peer import Peer
    from weft.runtime.launcher.launch import Seat

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory is made there, safely


class BenchSession:
    """The jobs that one controller has started.

    Parameters
    ----------
    timeout
        Seconds for a job to start, and for each order.

    Attributes
    ----------
    folder
        Where files may be left for the jobs; only this user can enter it, and it is removed at the end.
    address, listening
        Where the processes of the ranks connect.
    watchdog
        Kills what is left, should the controller be killed.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            # In memory where possible: some runtimes keep there what their ranks share.
            parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
            self.folder = tempfile.mkdtemp(prefix="weft-bench-", dir=parent)
            resources.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.watchdog = resources.enter_context(Watchdog())
            self.watchdog.add_folder(self.folder)
            self.address = f"{self.folder}/controller"
            self.listening = resources.enter_context(open_socket(socket.AF_UNIX, self.address))
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def start(
        self,
        peer: Peer,
        ranks: int,
        settings: dict[str, Any],
        *,
        name: str | None = None,
        seats: Sequence[Seat] | None = None,
    ) -> PeerJob:
        """Start the job of a peer and wait until all its ranks have joined.

        Raises
        ------
        InputError
            If the peer is not installed.
        RuntimeFailure
            If the job does not start.
        """
        job = PeerJob(self, peer, ranks, name=name, seats=seats)
        self._resources.callback(job.end)
        job.start()
        job.join(settings)
        return job
