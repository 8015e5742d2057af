"""One contestant's job as the controller sees it: start, orders and answers, end.

A worker that dies closes its connection, which is how the controller hears of it. A process that a launcher
such as mpirun started is no child of the controller, so each worker is known by its connection instead.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

from weft.bench import rank_process
from weft.bench.control_messages import Closed, ControlConnection
from weft.bench.peers.peer import RANK, JobPlace
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.launcher.launch import Seat
from weft.runtime.launcher.watchdog import before_exec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.bench.control_messages import Message
    from weft.bench.peers.peer import Peer, Start
    from weft.runtime.launcher.watchdog import Watchdog

GRACE_S: Final = 4.0
"""From asking a job to end to killing it."""

_LAST_WORDS: Final = 400
_WORKER: Final = (sys.executable, "-P", "-m", rank_process.__name__)


@dataclass(frozen=True)
class SessionFacts:
    """What the jobs of one controller share.

    Parameters
    ----------
    folder
        Only this user can enter it.
    address, listener
        Where workers connect.
    keeper
        Kills what is left, should the controller be killed.
    timeout
        Seconds for a job to start, and for each order.
    """

    folder: str
    address: str
    listener: socket.socket
    keeper: Watchdog
    timeout: float


class PeerJob:
    """One contestant's job.

    Parameters
    ----------
    ground, entry, ranks
        Where, who, how many.
    name
        Where a contestant takes part more than once.
    seats
        Where each rank is started; by default all here.
    """

    def __init__(
        self,
        ground: SessionFacts,
        entry: Peer,
        ranks: int,
        *,
        name: str | None = None,
        seats: Sequence[Seat] | None = None,
    ) -> None:
        self.name = name or entry.name
        self._seats = seats
        self.versions: dict[str, str] = {}
        self._ground, self._entry, self._size = ground, entry, ranks
        self._secret = secrets.token_hex(32)
        self._resources = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._members: list[WorkerConnection] = []

    def start(self) -> None:
        """Start the processes."""
        log = tempfile.TemporaryFile(dir=self._ground.folder)  # noqa: SIM115 - closed with the rest
        self._log: IO[bytes] = self._resources.enter_context(log)
        start = self._entry.start(JobPlace(self._size, self._ground.folder, self._resources, self._seats))
        prepare = before_exec()
        for index in range(start.processes):
            own = {} if start.command else {RANK: str(index), "WEFT_RANK": str(index)}
            seat = Seat() if start.command or self._seats is None else self._seats[index]
            variables = {**self._variables(start), **own, **seat.variables}
            process = self._spawn([*seat.prefix, *start.command, *_WORKER], variables, prepare)
            self._processes.append(process)
            self._ground.keeper.add(process.pid)

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
            msg = f"{self.name}: {command[0]} cannot be started: {error}"
            raise InputError(msg) from error

    def _variables(self, start: Start) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "WEFT_SECRET_FILE"}
        return {
            **environment,
            **start.variables,
            rank_process.SOCKET: self._ground.address,
            rank_process.SECRET: self._secret,
            rank_process.CONTESTANT: self._entry.name,
        }

    def join(self, settings: dict[str, Any]) -> None:
        """Meet the workers, tell them what they need to join, and learn who is which rank."""
        announcement = self._meet()
        invitation = {
            "ranks": self._size,
            "folder": self._ground.folder,
            "name": self.name,
            "announcement": announcement,
            "settings": settings,
            "timeout": self._ground.timeout,
        }
        self._tell_all(invitation)
        answers = self._gather("joining")
        for member, answer in zip(self._members, answers, strict=True):
            member.rank = answer["rank"]
        self._members.sort(key=lambda member: member.rank)
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
        """Whatever happened: end, reap and close."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)  # a launcher then tidies up
        self._await_end()
        for member in self._members:
            member.end()
            self._ground.keeper.remove(member.pid)
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._ground.keeper.remove(process.pid)
        self._resources.close()

    def _tell_all(self, message: Message) -> None:
        for member in self._members:
            with suppress(Closed):  # whoever waits for its answer hears why
                member.channel.send(message)

    def _await_end(self) -> None:
        deadline = time.monotonic() + GRACE_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def _meet(self) -> str:
        """Wait for all workers to connect; returns what rank 0 announced."""
        announcement = ""
        deadline = time.monotonic() + self._ground.timeout
        with selectors.DefaultSelector() as selector, ExitStack() as pending:
            selector.register(self._ground.listener, selectors.EVENT_READ)
            for process in self._processes:
                handle = os.pidfd_open(process.pid)
                pending.callback(os.close, handle)
                selector.register(handle, selectors.EVENT_READ)
            while len(self._members) < self._size:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    self._give_up("starting", self._ground.timeout)
                for key, _ in ready:
                    if key.fileobj is self._ground.listener:
                        connection, _address = self._ground.listener.accept()
                        selector.register(ControlConnection(connection), selectors.EVENT_READ)
                    elif isinstance(key.fileobj, ControlConnection):
                        selector.unregister(key.fileobj)
                        announcement = self._admit(key.fileobj) or announcement
                    else:
                        self._fail("a process of the job ended before all ranks had come")
        return announcement

    def _admit(self, channel: ControlConnection) -> str:
        """Take in a worker that knows the secret; returns its announcement."""
        channel.socket.settimeout(self._ground.timeout)
        try:
            hello = channel.receive()
        except (Closed, TimeoutError):
            channel.close()
            return ""
        if not hmac.compare_digest(str(hello.get("secret", "")), self._secret):
            channel.close()
            return ""
        member = WorkerConnection(channel)
        self._members.append(member)
        self._ground.keeper.add(member.pid)
        return str(hello["announcement"])

    def _gather(self, doing: str) -> list[Message]:
        """One answer of each member, in the order of the members."""
        answers: dict[int, Message] = {}
        deadline = time.monotonic() + self._ground.timeout
        with selectors.DefaultSelector() as selector:
            for index, member in enumerate(self._members):
                selector.register(member.channel, selectors.EVENT_READ, index)
            while len(answers) < len(self._members):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    self._give_up(doing, self._ground.timeout)
                for key, _ in ready:
                    answer = self._take(self._members[key.data], doing)
                    if answer is not None:
                        answers[key.data] = answer
                        selector.unregister(key.fileobj)
        return [answers[index] for index in range(len(self._members))]

    def _take(self, member: WorkerConnection, doing: str) -> Message | None:
        try:
            answer = member.channel.take()
        except Closed:
            self._fail(f"{member.name} ended during {doing}")
        if answer is not None and "error" in answer:
            msg = f"{self.name}: {member.name}: {answer['error']}"
            raise RuntimeFailure(msg)
        return answer

    def _fail(self, problem: str) -> NoReturn:
        words = self._last_words()
        msg = f"{self.name}: {problem}" + (f"; it said: {words}" if words else "")
        raise RuntimeFailure(msg)

    def _give_up(self, doing: str, seconds: float) -> NoReturn:
        raise TimedOut(f"{self.name}: {doing}", seconds, hint=self._last_words() or "--timeout gives it more")

    def _last_words(self) -> str:
        """End of what the job has printed."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LAST_WORDS))
        return " ".join(self._log.read().decode("utf-8", "replace").split())


class WorkerConnection:
    """One worker that has come; ``rank`` is known when it has joined its job."""

    def __init__(self, channel: ControlConnection) -> None:
        self.channel = channel
        credentials = channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid = int.from_bytes(credentials[:4], sys.byteorder)
        self.rank = -1
        self._handle = os.pidfd_open(self.pid)

    @property
    def name(self) -> str:
        """For people."""
        return f"process {self.pid}" if self.rank < 0 else f"rank {self.rank} (process {self.pid})"

    def end(self) -> None:
        """Kill this very process, if it is still there, and hang up."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        self.channel.close()
