"""Closing a connection so that the answer is read, although the request has not been read to its end.

A kernel that closes a socket with unread data, or that receives more for it later, sends a reset, and the
other side may then forget an answer that has arrived, or fail while it still sends. So the connection is
closed in two steps (RFC 9112, section 9.6): first nothing more is sent, and what arrives is dropped until the
other side closes too. How long that takes and how much arrives is bounded.

A client that does not read would keep its connection for ever, because asyncio closes a transport only when
everything has been sent. So sending is bounded too: while bytes wait to be sent, so many have to leave in
every period, or the connection is ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


_LEAST_SENT_BYTES: Final = 64 << 10


class LingeringTransport(asyncio.Transport):
    """A transport of a socket that closes in two steps if there is more to read.

    Parameters
    ----------
    transport
        The transport of the socket.
    expects_more
        Whether the other side may still be sending, asked when the connection is to be closed.
    linger_s, most_bytes
        After this time, or when more than this has been dropped, the other side is no longer waited for.
        Where the other side has to read on, it has to take 64 KiB, or all that waits, in each such time.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        expects_more: Callable[[], bool],
        *,
        linger_s: float,
        most_bytes: int,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._expects_more = expects_more
        self._linger_s = linger_s
        self._left_bytes = most_bytes
        self._deadline: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self.is_lingering = False

    def close(self) -> None:
        """Close, in two steps if the other side may still be sending; a second call does not wait."""
        if self.is_lingering or self._transport.is_closing() or not self._expects_more():
            self._transport.close()
            self.watch_sending()
        else:
            self.linger()

    def linger(self) -> None:
        """Say that nothing more is sent, and drop what arrives."""
        self.is_lingering = True
        self._deadline = asyncio.get_running_loop().call_later(self._linger_s, self.abort)
        with suppress(OSError):  # The other side has reset the connection, and the loop will see it.
            self._transport.write_eof()
        self._transport.resume_reading()

    def watch_sending(self) -> None:
        """End the connection if what waits to be sent does not leave in time."""
        if self._sending is None:
            self._await_sending()

    def _await_sending(self) -> None:
        waiting = self._transport.get_write_buffer_size()
        self._sending = asyncio.get_running_loop().call_later(self._linger_s, self._check_sending, waiting)

    def _check_sending(self, before: int) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting and before - waiting < _LEAST_SENT_BYTES:
            self.abort()
        else:
            self._await_sending()

    def trust_sending(self) -> None:
        """Watch no longer, because little waits to be sent, unless the connection is to end with it."""
        if self._sending is not None and not self._transport.is_closing():
            self._sending.cancel()
            self._sending = None

    def drop(self, data: bytes) -> None:
        """Take what has arrived since the connection began to close."""
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            self.abort()

    def forget(self) -> None:
        """Wait no longer: the connection is lost."""
        for timer in (self._deadline, self._sending):
            if timer is not None:
                timer.cancel()
        self._deadline = self._sending = None

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self.is_lingering or self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, unless the connection is closing."""
        if not self.is_lingering:
            self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Ask the socket's transport."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read no more for now, unless the connection is closing."""
        if not self.is_lingering:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()
