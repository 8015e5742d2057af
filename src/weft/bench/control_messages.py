"""Messages between a controller and its rank processes: JSON documents in frames of bounded length."""

from __future__ import annotations

import os
import selectors
import time
import traceback
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from weft.runtime.bootstrap.handshake import FramedConnection, FrameKind, Gone

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

MAX_MESSAGE_BYTES: Final = 256 << 10
_NO_KEY: Final = b""
_OUTPUT_SHOWN: Final = 600

Message = dict[str, Any]


class ControlConnection:
    """The connection between a controller and one rank process; `Gone` is raised when the other side is gone.

    Parameters
    ----------
    frames
        Closed with this connection.
    """

    def __init__(self, frames: FramedConnection) -> None:
        self.frames = frames

    @staticmethod
    def inherited(connection: socket.socket) -> ControlConnection:
        """Over a socket that both processes have from one parent, so that nothing has to be proven."""
        return ControlConnection(FramedConnection(connection, _NO_KEY, _NO_KEY, MAX_MESSAGE_BYTES))

    def fileno(self) -> int:
        """Let selectors wait for it."""
        return self.frames.fileno()

    def send(self, message: Message) -> None:
        """Send one message, and return when the network has taken it."""
        self.frames.queue(FrameKind.MESSAGE, msgspec.json.encode(message))
        self.frames.flush()
        while self.frames.sending:
            self._wait(selectors.EVENT_WRITE)
            self.frames.flush()

    def take(self) -> Message | None:
        """The next message, if it has come."""
        frame = self.frames.receive()
        return None if frame is None else msgspec.json.decode(frame[1], type=Message)

    def take_all(self) -> list[Message]:
        """The messages that have come."""
        found: list[Message] = []
        try:
            while (message := self.take()) is not None:
                found.append(message)
        except Gone:
            if not found:
                raise
        return found

    def receive(self, timeout: float | None = None) -> Message:
        """Wait for one message.

        Raises
        ------
        TimeoutError
            If none has come after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self.take()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no message has come")
            self._wait(selectors.EVENT_READ, left)
        return message

    def _wait(self, events: int, timeout: float | None = None) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self, events)
            selector.select(timeout)

    def close(self) -> None:
        """Close the connection."""
        self.frames.close()


def serve(
    channel: ControlConnection, work: Callable[[], None], describe: Callable[[Exception], Message]
) -> int:
    """Do the work of a rank process; the exit code is 1 if it failed, which the controller is told."""
    try:
        work()
    except Gone:
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the controller must hear of it
        traceback.print_exc()
        with suppress(Gone):
            channel.send(describe(error))
        return 1
    return 0


def last_output(log: IO[bytes]) -> str:
    """The end of what processes have printed into a file, on one line."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _OUTPUT_SHOWN))
    return " ".join(log.read().decode("utf-8", "replace").split())
