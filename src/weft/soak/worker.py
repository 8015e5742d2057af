"""The process of one rank of a soak test: carries out the episodes that the controller orders.

Run as ``python -m weft.soak.worker`` by the controller, with one end of a socket that it has inherited.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import numpy as np

from weft.bench.control_messages import ControlConnection, serve
from weft.errors import PeerLost, RuntimeFailure, TimedOut
from weft.runtime import init
from weft.runtime.launcher.watchdog import end_with_parent
from weft.soak.actions import Action
from weft.soak.health import take_sample
from weft.soak.random_operations import Operation, Settle, Split, make_episode
from weft.soak.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.bench.control_messages import Message
    from weft.runtime import Communicator
    from weft.soak.random_operations import Episode, Kill, SoakGroup, Step

DESCRIPTOR: Final = "WEFT_SOAK_SOCKET"
_PATIENCE_S: Final = 3600.0
"""How long a rank waits for an order; a controller that dies is heard at once."""


class WrongResult(Exception):
    """An operation whose result is not what it should be."""


class SoakRank:
    """What one rank does.

    Parameters
    ----------
    settings
        Of the whole test.
    tell
        Sends a message to the controller.
    """

    def __init__(self, settings: Settings, tell: Callable[[Message], None]) -> None:
        self._settings, self._tell = settings, tell
        self._comm: Communicator | None = None
        self._algorithm: str | None = None

    def do(self, order: Message) -> Message:
        """Carry out one order; the answer is what there is to tell."""
        if order["do"] == "join":
            return self._join(order["variables"], order["algorithm"])
        if order["do"] == "episode":
            return self._run(make_episode(self._settings, order["number"], self._algorithm), order["pids"])
        return self._leave()

    def _join(self, variables: dict[str, str], algorithm: str | None) -> Message:
        os.environ.update(variables)
        self._algorithm = algorithm
        settings = self._settings
        self._comm = init(algorithm=algorithm, transport=settings.transport, timeout=settings.timeout)
        self._comm.barrier()
        return {"sample": msgspec.to_builtins(take_sample(os.getpid(), time.monotonic()))}

    def _leave(self) -> Message:
        if self._comm is not None:
            self._comm.close()
            self._comm = None
        return {}

    def _run(self, episode: Episode, pids: list[int]) -> Message:
        assert self._comm is not None
        run = _Run(episode, self._comm, self._tell)
        lost = run.carry_out(pids)
        if episode.ending != "stay":
            self._leave()
        answer: Message = {"operations": dict(run.operations), "bytes": run.checked_bytes}
        return answer if lost is None else {**answer, "lost_at": lost}


class _Run:
    """One episode on one rank."""

    def __init__(self, episode: Episode, everybody: Communicator, tell: Callable[[Message], None]) -> None:
        self._episode, self._tell = episode, tell
        self._rank = everybody.rank
        self._communicators = {0: everybody}
        self._group = episode.everybody  # whose operation is under way
        self._pending: list[Action] = []
        self._kill: Kill | None = episode.kill
        self.operations: Counter[str] = Counter()
        self.checked_bytes = 0

    def carry_out(self, pids: list[int]) -> float | None:
        """Do all steps; if a rank is killed, say when that was noticed.

        Parameters
        ----------
        pids
            Processes of all ranks.
        """
        try:
            self._take_steps()
            if self._kill is None:
                return None
            self._await_loss()
        except RuntimeFailure as failure:
            if self._kill is None or self._kill.rank == self._rank:
                raise
            return self._judge_loss(failure, self._kill, pids)

    def _take_steps(self) -> None:
        for number, step in enumerate(self._episode.steps):
            self._tell({"at": number})
            if self._kill is not None and self._kill.rank == self._rank and self._kill.step == number:
                self._die(self._kill.delay_ms)
            try:
                self._take(step)
            except RuntimeFailure:
                if self._kill is None or self._kill.rank in self._group.ranks:
                    raise
                self._give_up(self._group)

    def _give_up(self, part: SoakGroup) -> None:
        """Go on without a part that another rank has left because of a loss.

        Steps are still taken in the order of all other ranks, which may not have noticed anything yet; so the
        loss is noticed in an operation that this rank shares with the one that was killed.
        """
        self._communicators.pop(part.number).abort()
        self._pending = [action for action in self._pending if action.operation.group != part]

    def _take(self, step: Step) -> None:
        if isinstance(step, Operation):
            if step.group.number in self._communicators:
                self._operate(step)
        elif isinstance(step, Split):
            self._split(step)
        elif isinstance(step, Settle):
            self._settle()
        elif (part := self._communicators.pop(step.group.number, None)) is not None:
            part.close()

    def _operate(self, operation: Operation) -> None:
        communicator = self._communicators[operation.group.number]
        self._group = operation.group
        for _ in range(operation.times):
            action = Action(operation, communicator)
            action.start()
            if operation.asynchronous:
                self._pending.append(action)
            else:
                self._check(action)

    def _settle(self) -> None:
        while self._pending:
            self._check(self._pending.pop(0))

    def _check(self, action: Action) -> None:
        operation = action.operation
        self._group = operation.group
        try:
            wrong = action.finish()
        except Exception as error:
            if operation.asynchronous:  # it fails at another step than its own
                error.add_note(f"it was {operation}")
            raise
        if wrong:
            raise WrongResult(f"{wrong} elements are wrong after {operation}")
        self.checked_bytes += operation.elements * np.dtype(operation.dtype).itemsize
        self._count(operation.kind, operation.group)

    def _split(self, split: Split) -> None:
        mine = next((group for group in split.groups if self._rank in group.ranks), None)
        everybody, self._group = self._communicators[0], self._episode.everybody
        if mine is None:
            everybody.split(None)
            return
        key = mine.ranks.index(self._rank)
        part = everybody.split(mine.number, key, algorithm=mine.algorithm)
        assert part is not None
        if (part.rank, part.size) != (key, len(mine.ranks)):
            raise WrongResult(f"rank {self._rank} is {part.rank} of {part.size} after {split}")
        self._communicators[mine.number] = part
        self._count("split", mine)

    def _count(self, kind: str, group: SoakGroup) -> None:
        """Count an operation on one rank of its group, which will be there to tell."""
        victim = None if self._kill is None else self._kill.rank
        if self._rank == next(rank for rank in group.ranks if rank != victim):
            self.operations[kind] += 1

    def _die(self, delay_ms: float) -> None:
        def die() -> None:
            self._tell({"dies_at": time.monotonic()})
            os.kill(os.getpid(), signal.SIGKILL)

        if delay_ms == 0:
            die()
        threading.Timer(delay_ms / 1000, die).start()

    def _await_loss(self) -> NoReturn:
        """Go on until the loss of the killed rank is noticed, which is an error, or until being killed."""
        self._group = self._episode.everybody
        while True:
            self._communicators[0].barrier()

    def _judge_loss(self, failure: RuntimeFailure, kill: Kill, pids: list[int]) -> float:
        """Time at which the loss of the killed rank was noticed; any other error is raised."""
        noticed = time.monotonic()
        cause: BaseException | None = failure
        while cause is not None and not isinstance(cause, PeerLost):
            cause = cause.__cause__  # of an error that only says that the communicator has failed before
        if cause is None:
            raise failure
        if (cause.rank, cause.pid) != (self._group.ranks.index(kill.rank), pids[kill.rank]):
            msg = f"rank {kill.rank} (pid {pids[kill.rank]}) was killed, but this was said: {failure}"
            raise WrongResult(msg) from failure
        return noticed


def describe(error: Exception) -> Message:
    """Kind of a failure, and what is to be said about it."""
    text = "; ".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, WrongResult):
        return {"failure": "wrong", "text": text}
    if isinstance(error, TimedOut):
        return {"failure": "hang", "text": text}
    return {"failure": "error", "text": f"{type(error).__name__}: {text}"}


def main() -> int:
    """Serve until told to leave; 1 if something failed, which the controller is told."""
    end_with_parent()
    channel = ControlConnection.inherited(socket.socket(fileno=int(os.environ[DESCRIPTOR])))
    os.set_inheritable(channel.fileno(), False)
    return serve(channel, lambda: _take_orders(channel), describe)


def _take_orders(channel: ControlConnection) -> None:
    lock = threading.Lock()  # a rank that is about to die says so from a thread of its own

    def tell(message: Message) -> None:
        with lock:
            channel.send(message)

    channel.send({"ready": True})
    settings = msgspec.convert(channel.receive(_PATIENCE_S), Settings)
    rank = SoakRank(settings, tell)
    while True:
        order: dict[str, Any] = channel.receive(_PATIENCE_S)
        channel.send({"answer": rank.do(order)})
        if order["do"] == "leave":
            return


if __name__ == "__main__":
    sys.exit(main())
