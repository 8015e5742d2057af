"""The rank processes of a soak test: started, given orders, listened to, and ended."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import msgspec

from weft.bench.control_messages import ControlConnection, last_output
from weft.errors import RuntimeFailure
from weft.runtime.bootstrap.handshake import Gone
from weft.runtime.launcher.watchdog import Watchdog
from weft.soak import worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.bench.control_messages import Message
    from weft.soak.settings import Settings
    from weft.soak.tally import FailureKind

WORKER: Final = (sys.executable, "-P", "-m", worker.__name__)

_START_S: Final = 60.0
"""For a process to start and to say so."""

_SLACK_S: Final = 10.0
"""How much longer than the deadlines of its operations a rank may say nothing."""

_GATHER_S: Final = 2.0
"""For other ranks to say what they saw of a failure."""

_GRACE_S: Final = 5.0
_TICK_S: Final = 0.2


@dataclass
class RankProcess:
    """One process.

    Parameters
    ----------
    rank, process, channel
        Which, and how to reach it.
    step
        The last step that it said it is at.
    heard
        When it last said something.
    dies_at
        When it killed itself.
    """

    rank: int
    process: subprocess.Popen[bytes]
    channel: ControlConnection
    step: int | None = None
    heard: float = field(default_factory=time.monotonic)
    dies_at: float | None = None

    def end(self) -> None:
        """Kill the process with what it started, reap it, and hang up."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.channel.close()


class Trouble(Exception):
    """Ranks that failed, died or fell silent.

    Parameters
    ----------
    kind
        Of the failure that is the cause, as far as can be told.
    text
        What happened.
    said
        By rank: what it said about it.
    """

    def __init__(self, kind: FailureKind, text: str, said: dict[int, str]) -> None:
        super().__init__(text)
        self.kind, self.text, self.said = kind, text, said


class RankProcesses:
    """All rank processes of a soak test; whatever happens, none of them is left when it is over.

    Parameters
    ----------
    settings
        Of the test.
    command
        Program of a rank.
    tick
        Called a few times a second.

    Attributes
    ----------
    folder
        Where ranks leave their flight records.
    """

    def __init__(self, settings: Settings, command: Sequence[str], tick: Callable[[], None]) -> None:
        self._settings, self._command, self._tick = settings, command, tick
        self.ranks: list[RankProcess] = []
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        self._watchdog = self._resources.enter_context(Watchdog())
        self._log: IO[bytes] = self._resources.enter_context(tempfile.TemporaryFile())
        self.folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="weft-soak-")))
        self._watchdog.add_folder(str(self.folder))
        self._resources.callback(self._end_all)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def start(self) -> None:
        """Start all ranks.

        Raises
        ------
        RuntimeFailure
            If one does not start.
        """
        for rank in range(self._settings.ranks):
            self.ranks.append(self._spawn(rank))
        for process in self.ranks:
            self._greet(process)

    def replace(self, rank: int) -> None:
        """Start a rank again that has been killed; what the others wrote down about it is removed."""
        for record in self.folder.iterdir():
            record.unlink()
        old = self.ranks[rank]
        old.end()
        self._watchdog.remove(old.process.pid)
        self.ranks[rank] = self._spawn(rank)
        self._greet(self.ranks[rank])

    def order(self, orders: Sequence[Message], victim: int | None = None) -> list[Message | None]:
        """Give each rank its order, and return the answers by rank.

        Parameters
        ----------
        orders
            By rank.
        victim
            A rank that is to be killed while it carries out the order; its answer is None.

        Raises
        ------
        Trouble
            If a rank fails, dies otherwise, or says nothing for too long.
        """
        answers: dict[int, Message | None] = {}
        for process, order in zip(self.ranks, orders, strict=True):
            process.heard, process.step = time.monotonic(), None
            with suppress(Gone):  # seen when the answer is waited for
                process.channel.send(order)
        with selectors.DefaultSelector() as selector:
            for process in self.ranks:
                selector.register(process.channel, selectors.EVENT_READ, process)
            while len(answers) < len(self.ranks):
                for key, _ in selector.select(_TICK_S):
                    process = key.data
                    if not self._hear(process, answers, victim):
                        selector.unregister(process.channel)
                self._tick()
                self._check_silence(answers)
        return [answers[rank] for rank in range(len(self.ranks))]

    def await_end(self, rank: int, expected: int) -> None:
        """Wait until a rank has ended, with this exit code.

        Raises
        ------
        Trouble
            If it does not end, or ends otherwise.
        """
        try:
            code = self.ranks[rank].process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            raise Trouble("hang", f"rank {rank} does not end", {}) from None
        if code != expected:
            raise Trouble(
                "crash", f"rank {rank} ended with {_name_code(code)}", {rank: last_output(self._log)}
            )

    def _spawn(self, rank: int) -> RankProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env={**self._environment(), worker.DESCRIPTOR: str(theirs.fileno())},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise RuntimeFailure(f"rank {rank} cannot be started: {error.strerror}") from error
        self._watchdog.add(process.pid)
        return RankProcess(rank, process, ControlConnection.inherited(ours))

    def _environment(self) -> dict[str, str]:
        """Without what would change how ranks meet or what they plan; flight records go to the folder."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        return {**plain, "WEFT_FLIGHT_DIR": str(self.folder)}

    def _greet(self, process: RankProcess) -> None:
        """Wait until a rank is there, and tell it what the test is."""
        try:
            process.channel.receive(_START_S)
            process.channel.send(msgspec.to_builtins(self._settings))
        except (Gone, TimeoutError) as error:
            msg = f"rank {process.rank} did not start; it said: {last_output(self._log) or 'nothing'}"
            raise RuntimeFailure(msg) from error

    def _hear(self, process: RankProcess, answers: dict[int, Message | None], victim: int | None) -> bool:
        """Take what a rank says; whether more is to come."""
        try:
            messages = process.channel.take_all()
        except Gone:
            if process.rank != victim or process.dies_at is None:
                self._raise_trouble({process.rank: ("crash", self._describe_end(process))})
            answers[process.rank] = None
            return False
        process.heard = time.monotonic()
        for message in messages:
            if "failure" in message:
                self._raise_trouble({process.rank: (message["failure"], message["text"])})
            if "answer" in message:
                answers[process.rank] = message["answer"]
                return False
            process.step = message.get("at", process.step)
            process.dies_at = message.get("dies_at", process.dies_at)
        return True

    def _check_silence(self, answers: dict[int, Message | None]) -> None:
        patience = 2 * self._settings.timeout + _SLACK_S
        late = [one for one in self.ranks if one.rank not in answers]
        silent = [one for one in late if time.monotonic() - one.heard > patience]
        if silent:
            text = f"said nothing for {patience:g} s, longer than the deadlines of its operations"
            self._raise_trouble({one.rank: ("hang", text) for one in silent})

    def _raise_trouble(self, found: dict[int, tuple[FailureKind, str]]) -> None:
        """Give the other ranks a moment to say what they know, and raise what seems to be the cause."""
        deadline = time.monotonic() + _GATHER_S
        with selectors.DefaultSelector() as selector:
            for process in self.ranks:
                if process.rank not in found:
                    selector.register(process.channel, selectors.EVENT_READ, process)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    process = key.data
                    try:
                        messages = process.channel.take_all()
                    except Gone:
                        selector.unregister(process.channel)
                        if process.dies_at is None and process.process.poll() not in (None, 0, 1):
                            found[process.rank] = ("crash", self._describe_end(process))
                        continue
                    for message in messages:
                        process.step = message.get("at", process.step)
                        if "failure" in message:
                            found.setdefault(process.rank, (message["failure"], message["text"]))
        order: list[FailureKind] = ["wrong", "crash", "hang", "error"]
        rank = min(found, key=lambda one: (order.index(found[one][0]), one))
        kind, text = found[rank]
        raise Trouble(kind, f"rank {rank}: {text}", {one: said for one, (_, said) in found.items()})

    def _describe_end(self, process: RankProcess) -> str:
        with suppress(subprocess.TimeoutExpired):
            process.process.wait(_GRACE_S)
        code = process.process.returncode
        end = "closed its connection" if code is None else f"ended with {_name_code(code)}"
        output = last_output(self._log)
        return f"{end}; it said: {output}" if output else end

    def _end_all(self) -> None:
        for process in self.ranks:
            process.end()
            self._watchdog.remove(process.process.pid)


def _name_code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
