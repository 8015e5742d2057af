"""The session of a benchmark's controller, and its jobs: their processes, orders and answers, their end.

The process of a rank connects to the controller by the handshake of `weft.runtime.bootstrap`. One that dies
closes its connection, which is how the controller hears of it. A process that a launcher such as mpirun
started is no child of the controller, so each is known by its connection instead.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, Self

from weft.bench import rank_process
from weft.bench.control_messages import MAX_MESSAGE_BYTES, ControlConnection, last_output
from weft.bench.peers.peer import RANK, JobPlace
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.handshake import Gone
from weft.runtime.bootstrap.listener import Listener, open_socket
from weft.runtime.extension import require_runtime
from weft.runtime.launcher.launch import Seat
from weft.runtime.launcher.watchdog import Watchdog, before_exec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.bench.control_messages import Message
    from weft.bench.peers.peer import Peer, Start
    from weft.runtime.bootstrap.handshake import FramedConnection

GRACE_S: Final = 4.0
"""From asking a job to end to killing it."""

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory is made there, safely
_RANK_PROGRAM: Final = (sys.executable, "-P", "-m", rank_process.__name__)


class BenchSession:
    """A directory, a listening socket, a watchdog and the jobs of one controller; none is left at the end.

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
        require_runtime()
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


class PeerJob:
    """The job of one peer.

    Parameters
    ----------
    session
        The controller's.
    peer, ranks
        What is measured, and on how many ranks.
    name
        Of the job, where a peer is measured more than once.
    seats
        Where each rank is started; by default all here.
    """

    def __init__(
        self,
        session: BenchSession,
        peer: Peer,
        ranks: int,
        *,
        name: str | None = None,
        seats: Sequence[Seat] | None = None,
    ) -> None:
        self.name = name or peer.name
        self.versions: dict[str, str] = {}
        self._session, self._peer, self._size, self._seats = session, peer, ranks, seats
        self._secret = secrets.token_bytes(32)
        self._resources = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ranks: list[RankConnection] = []

    def start(self) -> None:
        """Start the processes."""
        log = tempfile.TemporaryFile(dir=self._session.folder)  # noqa: SIM115 - closed with the rest
        self._log: IO[bytes] = self._resources.enter_context(log)
        start = self._peer.start(JobPlace(self._size, self._session.folder, self._resources, self._seats))
        prepare = before_exec()
        for index in range(start.processes):
            own = {} if start.command else {RANK: str(index), "WEFT_RANK": str(index)}
            seat = Seat() if start.command or self._seats is None else self._seats[index]
            variables = {**self._variables(start), **own, **seat.variables}
            process = self._spawn([*seat.prefix, *start.command, *_RANK_PROGRAM], variables, prepare)
            self._processes.append(process)
            self._session.watchdog.add(process.pid)

    def _spawn(
        self, command: list[str], variables: dict[str, str], prepare: Callable[[], None]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=variables,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError(f"{self.name}: {command[0]} cannot be started: {error}") from error

    def _variables(self, start: Start) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "WEFT_SECRET_FILE"}
        return {
            **environment,
            **start.variables,
            rank_process.SOCKET: self._session.address,
            rank_process.SECRET: self._secret.hex(),
            rank_process.PEER: self._peer.name,
        }

    def join(self, settings: dict[str, Any]) -> None:
        """Wait for the processes of all ranks, tell them how to join, and learn which rank each one is."""
        self._accept_all()
        announcements = [answer["announcement"] for answer in self._gather("starting")]
        invitation = {
            "ranks": self._size,
            "folder": self._session.folder,
            "name": self.name,
            "announcement": next(filter(None, announcements), ""),
            "settings": settings,
            "timeout": self._session.timeout,
        }
        self._tell_all(invitation)
        answers = self._gather("joining")
        for rank, answer in zip(self._ranks, answers, strict=True):
            rank.number = answer["rank"]
        self._ranks.sort(key=lambda rank: rank.number)
        self.versions = answers[0]["versions"]

    def do(self, order: Message) -> list[Message]:
        """Give one order to all ranks, and return their answers by rank.

        Raises
        ------
        RuntimeFailure
            If one fails, dies or does not answer in time.
        """
        self._tell_all(order)
        return self._gather(order["do"])

    def leave(self) -> None:
        """Ask all ranks to leave, and wait a little until they have."""
        self._tell_all({"do": "leave"})
        self._await_end()

    def end(self) -> None:
        """Whatever happened: end, reap and close; nothing is left to do for a second call."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)  # a launcher then tidies up
        self._await_end()
        for rank in self._ranks:
            rank.end()
            self._session.watchdog.remove(rank.pid)
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._session.watchdog.remove(process.pid)
        self._ranks.clear()
        self._processes.clear()
        self._resources.close()

    def _tell_all(self, message: Message) -> None:
        for rank in self._ranks:
            with suppress(Gone):  # waiting for its answer tells why
                rank.connection.send(message)

    def _await_end(self) -> None:
        deadline = time.monotonic() + GRACE_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def _accept_all(self) -> None:
        """Wait until the processes of all ranks have connected."""
        deadline = time.monotonic() + self._session.timeout
        with ExitStack() as resources:
            selector = resources.enter_context(selectors.DefaultSelector())
            listening = self._session.listening.dup()
            listener = resources.enter_context(Listener([listening], self._secret, MAX_MESSAGE_BYTES))
            selector.register(listener, selectors.EVENT_READ)
            for process in self._processes:
                handle = os.pidfd_open(process.pid)
                resources.callback(os.close, handle)
                selector.register(handle, selectors.EVENT_READ)
            while len(self._ranks) < self._size:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._give_up("starting")
                if any(key.fileobj is not listener for key, _ in selector.select(listener.wait_s(left))):
                    self._fail("a process of the job ended before all ranks had come")
                for applicant in listener.serve():
                    rank = RankConnection(applicant.admit())
                    self._ranks.append(rank)
                    self._session.watchdog.add(rank.pid)

    def _gather(self, doing: str) -> list[Message]:
        """One answer of each member, in the order of the members."""
        answers: dict[int, Message] = {}
        deadline = time.monotonic() + self._session.timeout
        with selectors.DefaultSelector() as selector:
            for index, rank in enumerate(self._ranks):
                selector.register(rank.connection, selectors.EVENT_READ, index)
            while len(answers) < len(self._ranks):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    self._give_up(doing)
                for key, _ in ready:
                    answer = self._take(self._ranks[key.data], doing)
                    if answer is not None:
                        answers[key.data] = answer
                        selector.unregister(key.fileobj)
        return [answers[index] for index in range(len(self._ranks))]

    def _take(self, rank: RankConnection, doing: str) -> Message | None:
        try:
            answer = rank.connection.take()
        except Gone:
            self._fail(f"{rank.name} ended during {doing}")
        if answer is not None and "error" in answer:
            raise RuntimeFailure(f"{self.name}: {rank.name}: {answer['error']}")
        return answer

    def _fail(self, problem: str) -> NoReturn:
        output = last_output(self._log)
        raise RuntimeFailure(f"{self.name}: {problem}" + (f"; it said: {output}" if output else ""))

    def _give_up(self, doing: str) -> NoReturn:
        hint = last_output(self._log) or "--timeout gives it more"
        raise TimedOut(f"{self.name}: {doing}", self._session.timeout, hint=hint)


class RankConnection:
    """The connection to the process of one rank; `number` is known when it has joined its job."""

    def __init__(self, frames: FramedConnection) -> None:
        self.connection = ControlConnection(frames)
        credentials = frames.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid = int.from_bytes(credentials[:4], sys.byteorder)
        self.number = -1
        self._handle = os.pidfd_open(self.pid)

    @property
    def name(self) -> str:
        """The name of the job in messages."""
        return f"process {self.pid}" if self.number < 0 else f"rank {self.number} (process {self.pid})"

    def end(self) -> None:
        """Kill this very process, if it is still there, and close the connection."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        self.connection.close()
