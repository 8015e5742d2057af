"""Messages between the controller and its workers: one JSON document a line, of bounded length."""

from __future__ import annotations

import socket
from typing import Any, Final

import msgspec

from weft.errors import RuntimeFailure

_LONGEST: Final = 64 << 10
_READ_BYTES: Final = 64 << 10

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One connection.

    Parameters
    ----------
    connection
        Blocking; closed with the channel.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._partial = b""

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
        """Read once; the message if that completed one.

        Raises
        ------
        Closed
            If no more will come.
        """
        try:
            data = self.socket.recv(_READ_BYTES)
        except ConnectionError as error:
            raise Closed from error
        if not data:
            raise Closed
        line, end, self._partial = (self._partial + data).partition(b"\n")
        if not end:
            if len(line) > _LONGEST:
                msg = f"a message of more than {_LONGEST:,} bytes between controller and worker"
                raise RuntimeFailure(msg)
            self._partial = line
            return None
        return msgspec.json.decode(line, type=Message)

    def receive(self) -> Message:
        """Wait for one message, for as long as the socket's timeout allows."""
        while (message := self.take()) is None:
            pass
        return message

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
