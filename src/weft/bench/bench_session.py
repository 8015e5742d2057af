"""Where contestants perform: a directory, a socket, a guard and the jobs, none of them left at the end."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from weft.bench.peer_job import PeerJob, SessionFacts
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
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            # In memory where possible: some contestants keep there what their ranks share.
            parent = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
            folder = tempfile.mkdtemp(prefix="weft-bench-", dir=parent)
            resources.callback(shutil.rmtree, folder, ignore_errors=True)
            keeper = resources.enter_context(Watchdog())
            keeper.add_folder(folder)
            listener = resources.enter_context(socket.socket(socket.AF_UNIX))
            address = f"{folder}/controller"
            listener.bind(address)
            listener.listen(socket.SOMAXCONN)
            self._ground = SessionFacts(folder, address, listener, keeper, self._timeout)
            self._resources = resources.pop_all()
        return self

    @property
    def folder(self) -> str:
        """Where files may be left for the jobs; gone with the stage."""
        return self._ground.folder

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def start(
        self,
        entry: Peer,
        ranks: int,
        settings: dict[str, Any],
        *,
        name: str | None = None,
        seats: Sequence[Seat] | None = None,
    ) -> PeerJob:
        """Start a contestant's job and wait until all its ranks have joined.

        Raises
        ------
        InputError
            If it is not installed.
        RuntimeFailure
            If it does not come up.
        """
        team = PeerJob(self._ground, entry, ranks, name=name, seats=seats)
        self._resources.callback(team.end)
        team.start()
        team.join(settings)
        return team
