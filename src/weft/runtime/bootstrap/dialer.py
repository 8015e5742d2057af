"""The dialer: one attempt to connect to a listener and be admitted by it, and when to try again.

An attempt never blocks, so that a rank can make many at once and watch the rest of the job meanwhile. One
that fails is repeated after a short pause with a random part: the listener may have dropped it because it was
busy with peers that do not know the secret (`weft.runtime.bootstrap.listener`), and ranks that were dropped
together should not come back together.
"""

from __future__ import annotations

import os
import random
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.handshake import FramedConnection, FrameKind, Gone, Hello, ProtocolError
from weft.runtime.bootstrap.members import LossVerdict, decode
from weft.runtime.resources import close_on_error

if TYPE_CHECKING:
    from weft.runtime.bootstrap.name_resolution import Where

_SHORTEST_PAUSE_S: Final = 0.004
"""Ranks start together, so that one which finds nobody listening yet has little to wait for."""

_LONGEST_PAUSE_S: Final = 0.5
_ANSWERED_PAUSE_S: Final = 0.1
"""Longest pause after an attempt that was answered, if only by a refusal: the other one is for silence."""

_FIRST_CONNECT_S: Final = 0.5
"""The kernel repeats a connection request that was dropped after a second; a new attempt is sooner."""

_HANGS_UP: Final = "the listener there hangs up: the secret may differ, or it is something else"


class Refused(Exception):
    """The listener has proven itself, and does not admit this process: why."""


class RetryPauses:
    """When to try again, and how long a connection request may take."""

    def __init__(self) -> None:
        self._pause_s = _SHORTEST_PAUSE_S
        self.connect_s = _FIRST_CONNECT_S

    def after(self, attempt: Dialer | None) -> float:
        """Seconds until the next attempt, half of them by chance.

        Parameters
        ----------
        attempt
            The one that has failed; None if the network did not even let it begin.
        """
        longest = _LONGEST_PAUSE_S
        if attempt is not None and not attempt.connected and time.monotonic() >= attempt.deadline:
            self.connect_s = min(2 * self.connect_s, limits.MAX_UNPROVEN_SECONDS)
        elif attempt is not None:
            longest = _ANSWERED_PAUSE_S
        pause = min(self._pause_s, longest)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - nobody gains by guessing it


class Dialer:
    """One attempt to connect and be admitted; it never blocks.

    Parameters
    ----------
    where
        Family and address of the listener.
    secret
        What both know.
    hello, record
        The claim of this process, and the record of its member.
    longest
        Payload that a frame from the listener may have at most.
    connect_s
        Seconds for the connection request; the whole attempt has `weft.limits.MAX_UNPROVEN_SECONDS`.
    source
        Address to call from.

    Raises
    ------
    OSError
        If the connection cannot be made.
    """

    def __init__(
        self,
        where: Where,
        secret: bytes,
        hello: Hello,
        record: bytes,
        longest: int,
        *,
        connect_s: float = limits.MAX_UNPROVEN_SECONDS,
        source: Any = None,
    ) -> None:
        self._secret, self._hello, self._record, self._longest = secret, hello, record, longest
        began = time.monotonic()
        self._connect_by, self._done_by = began + connect_s, began + limits.MAX_UNPROVEN_SECONDS
        self.connected = False
        self._heard = b""
        self._channel: FramedConnection | None = None
        self.connection = socket.socket(where[0], socket.SOCK_STREAM)
        try:
            self.connection.setblocking(False)
            if source is not None:
                self.connection.bind(source)
            self.connection.connect(where[1])
        except BlockingIOError:
            return
        except BaseException:
            self.connection.close()
            raise

    def fileno(self) -> int:
        """Let selectors wait for it."""
        return self.connection.fileno()

    @property
    def events(self) -> int:
        """What to wait for now."""
        return selectors.EVENT_READ if self.connected else selectors.EVENT_WRITE

    @property
    def deadline(self) -> float:
        """When to give this attempt up."""
        return self._done_by if self.connected else self._connect_by

    def close(self) -> None:
        """Give up the attempt and close its connection."""
        self.connection.close()

    def wait(self, seconds: float) -> None:
        """Wait until `advance` may have something to do, but not longer than so many seconds."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, self.events)
            selector.select(max(0.0, seconds))

    def wait_until_admitted(self, deadline: float) -> tuple[FramedConnection, bytes]:
        """Complete the handshake; raises as `advance` does, and if there is no answer by the deadline."""
        with close_on_error(self):
            while (admitted := self.advance()) is None:
                left = min(deadline, self.deadline) - time.monotonic()
                if left <= 0:
                    raise ProtocolError("the listener does not answer")
                self.wait(left)
        return admitted

    def advance(self) -> tuple[FramedConnection, bytes] | None:
        """Do what can be done now; once this process is admitted, return the connection and the payload.

        Raises
        ------
        Refused, RuntimeFailure
            If the listener refuses this process for good, or has given up itself: its verdict.
        ProtocolError, Gone, OSError
            If this attempt has failed.
        """
        if not self.connected and not self._connect():
            return None
        if self._channel is None and not self._answer():
            return None
        assert self._channel is not None
        frame = self._channel.receive()
        if frame is None:
            return None
        kind, payload = frame
        if kind is FrameKind.REFUSED:
            raise Refused(payload.decode("utf-8", "replace"))
        if kind is FrameKind.FAILED:
            raise decode(payload, LossVerdict, "the listener").error()
        if kind is not FrameKind.ADMITTED:
            raise ProtocolError(f"the listener answers with {kind.name.lower()}")
        return self._channel, payload

    def _connect(self) -> bool:
        """Say hello once the connection is there."""
        problem = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, os.strerror(problem))
        try:
            there = self.connection.getpeername()
        except OSError:
            return False
        if self.connection.getsockname() == there:
            raise ProtocolError("nobody listens there")  # the kernel connected the socket with itself
        self.connected = True
        handshake.send_at_once(self.connection)
        self._send(self._hello.sign(self._secret))
        return True

    def _answer(self) -> bool:
        """Check the challenge and answer it, once all of it has come."""
        try:
            more = self.connection.recv(handshake.CHALLENGE_BYTES - len(self._heard))
        except BlockingIOError:
            return False
        except ConnectionError as error:
            raise ProtocolError(_HANGS_UP) from error
        if not more:
            raise ProtocolError(_HANGS_UP)
        self._heard += more
        if len(self._heard) < handshake.CHALLENGE_BYTES:
            return False
        transcript = handshake.read_challenge(self._secret, self._hello, self._heard)
        self._send(transcript.answer(self._record))
        to_listener, from_listener = transcript.keys()
        self._channel = FramedConnection(self.connection, to_listener, from_listener, self._longest)
        return True

    def _send(self, message: bytes) -> None:
        # So few bytes always fit into the buffer of a new connection.
        if self.connection.send(message) != len(message):
            raise Gone("the connection takes no bytes")
