"""Messages between the controller and its workers: one JSON document a line, of bounded length."""

from __future__ import annotations

import socket
from typing import Any, Final

import msgspec

from weft.errors import RuntimeFailure

_LONGEST: Final = 256 << 10
_READ_BYTES: Final = 64 << 10

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone."""


class ControlConnection:
    """One connection.

    Parameters
    ----------
    connection
        Blocking; closed with the channel.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._waiting = b""

    def fileno(self) -> int:
        """For a selector."""
        return self.socket.fileno()

    def send(self, message: Message) -> None:
        """Send one message.

        Raises
        ------
        Closed
            If nobody listens any more.
        """
        try:
            self.socket.sendall(msgspec.json.encode(message) + b"\n")
        except OSError as error:
            raise Closed from error

    def take(self) -> Message | None:
        """The next message if it has come, after reading at most once.

        Raises
        ------
        Closed
            If no more will come.
        """
        if b"\n" not in self._waiting:
            self._read()
        line, end, rest = self._waiting.partition(b"\n")
        if not end:
            return None
        self._waiting = rest
        return msgspec.json.decode(line, type=Message)

    def take_all(self) -> list[Message]:
        """The messages that have come, after reading once.

        Raises
        ------
        Closed
            If no more will come.
        """
        self._read()
        *lines, self._waiting = self._waiting.split(b"\n")
        return [msgspec.json.decode(line, type=Message) for line in lines]

    def _read(self) -> None:
        try:
            data = self.socket.recv(_READ_BYTES)
        except ConnectionError as error:
            raise Closed from error
        if not data:
            raise Closed
        self._waiting += data
        if len(self._waiting) > _LONGEST:
            msg = f"a message of more than {_LONGEST:,} bytes between controller and worker"
            raise RuntimeFailure(msg)

    def receive(self) -> Message:
        """Wait for one message, for as long as the socket's timeout allows."""
        while (message := self.take()) is None:
            pass
        return message

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
