"""The one accept loop of the runtime: it lets members of a job in, whatever else connects.

Every process that reaches the address of a listener can connect to it. This loop separates members of the
job, which know a secret, from unauthenticated peers, which do not. It must let every member through while
unauthenticated peers open connections as fast as they can, and these must cost the process a bounded number
of descriptors, bytes and seconds. That holds for the following reasons.

**A member speaks first.** Its hello, sent as soon as it is connected, carries a proof under the secret
(`weft.runtime.bootstrap.handshake`). The kernel is asked to hand over a connection only when its first bytes
have come (``TCP_DEFER_ACCEPT``), so that a member's hello is there when its connection is accepted. Where the
kernel does not defer, because it answers a flood of connection requests with cookies, the connection waits in
the kernel's queue before it is accepted: the longer the queue, the more certain it is that the hello has come
meanwhile.

**One message tells if a peer knows the secret.** Each connection is read as soon as it is accepted. Bytes
that are no hello end it at once, for the price of a comparison; a hello with a wrong proof, for the price of
one HMAC. A hello that was overheard and is sent again is recognised by its nonce, and ends the same way.

**Only silent connections are ever pushed out.** At most `weft.limits.MAX_PENDING_PEERS` connections are
pending. A newcomer takes the place of the connection that has been silent for longest. A peer whose hello was
good keeps its place until its handshake is over. Only a member can have such a place, or a peer with a hello
that was recorded in an earlier job with the same secret, once for each that it has recorded. If all places
are taken by these, further connections wait in the kernel's queue, and places that are not used are free
again after half a second.

**The queue moves.** Connections are accepted in batches, without waiting for any of them, and a connection of
an unauthenticated peer costs some tens of microseconds. It is closed by a reset, which leaves nothing behind
in the kernel on either side. A flood that this loop cannot keep up with needs more than ten thousand
connections a second from processes that have a processor for it; a member whose connection request the kernel
then drops tries again soon (`weft.runtime.bootstrap.dialer`).

**Descriptors run out for unauthenticated peers first.** They get at most a quarter of the descriptors that
are free when the listener opens. If accept fails all the same, the oldest silent connection is closed to make
room; if there is none, accepting pauses for a moment. A shortage that lasts although no place is taken is
this process's own, and `check_starved` says so.

A listening socket that nobody serves can be kept open for the whole of a run (`let_idle`). It costs the
process nothing: the kernel keeps a few connections, and drops requests beyond these. When it is served later,
the loop works through what has piled up first, which takes milliseconds.
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, Self

from weft import limits
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.handshake import FramedConnection, FrameKind, Hello, ProtocolError, Transcript
from weft.runtime.resources import EXHAUSTED, close_on_error

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKLOG: Final = 4096
"""Connections that wait in the kernel while a listener is served."""

IDLE_BACKLOG: Final = 16
"""The same while nobody serves it: what the kernel keeps for these is memory that nobody asked for."""

_BATCH: Final = 256
"""Connections accepted before the caller of `Listener.serve` gets to look at something else."""

_CROWDED_S: Final = 0.5
"""What a peer with a good hello gets for its answer when others wait for its place."""

_PAUSE_S: Final = 0.02
_DEFER_S: Final = 1
_MOST_SEEN: Final = 4096
_SHARE: Final = 4
_STARVED_S: Final = 1.0
_LONGEST_REASON: Final = 600
_USUAL_CLOSE: Final = struct.pack("ii", 0, 0)
_RESET: Final = struct.pack("ii", 1, 0)

_ONE_CONNECTION: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.EINTR,
        errno.EPERM,
        errno.EPROTO,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENONET,
    }
)
"""Errors by which Linux reports, through accept, what happened to one connection (accept(2))."""


def open_socket(family: int, where: Any) -> socket.socket:
    """Socket that listens at exactly the given address, as `Listener` needs it."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    with close_on_error(listening):
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit this; an admitted peer gets the usual close back.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if family != socket.AF_UNIX:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_S)
        listening.bind(where)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    return listening


def let_idle(listening: socket.socket) -> None:
    """Shorten the queue of a socket that is kept open and not served; a `Listener` on it restores it."""
    listening.listen(IDLE_BACKLOG)


@dataclass(frozen=True)
class Applicant:
    """A peer that has proven that it knows the secret; it is now admitted or dismissed."""

    hello: Hello
    record: bytes
    channel: FramedConnection

    def admit(self, payload: bytes = b"") -> FramedConnection:
        """Tell the peer that it is in."""
        self.channel.tell(FrameKind.ADMITTED, payload)
        return self.channel

    def dismiss(self, kind: FrameKind, payload: bytes) -> None:
        """Tell the peer why it is not, and close the connection."""
        self.channel.tell(kind, payload)
        self.channel.close()


class _Peer:
    """A connection that has not proven enough yet."""

    __slots__ = ("_head", "_heard", "_needed", "connection", "since", "transcript")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.since = time.monotonic()
        self.transcript: Transcript | None = None
        self._heard = self._head = b""
        self._needed = handshake.HELLO_BYTES

    def fileno(self) -> int:
        return self.connection.fileno()

    def hear(self, secret: bytes, seen: dict[bytes, None], longest: int) -> Applicant | None:
        """Read what is there, never more than the next message; the applicant once all is proven."""
        while True:
            try:
                data = self.connection.recv(self._needed - len(self._heard), socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return None
            if not data:
                raise ProtocolError("it left before it had proven itself")
            self._heard += data
            if self.transcript is None:
                handshake.check_prefix(self._heard)
            if len(self._heard) < self._needed:
                continue
            heard, self._heard = self._heard, b""
            if self.transcript is None:
                self.transcript = self._challenge(Hello.decode(heard, secret), secret, seen)
                self._needed = handshake.ANSWER_BYTES
            elif not self._head:
                self._head, self._needed = heard, handshake.record_length(heard)
                if not self._needed:
                    return self._finish(b"", longest)
            else:
                return self._finish(heard, longest)

    def _challenge(self, hello: Hello, secret: bytes, seen: dict[bytes, None]) -> Transcript:
        if hello.nonce in seen:
            raise ProtocolError("its hello was used before")
        if len(seen) >= _MOST_SEEN:
            del seen[next(iter(seen))]
        seen[hello.nonce] = None
        transcript = Transcript(secret, hello, token_bytes(handshake.NONCE_BYTES))
        challenge = transcript.challenge()
        # So few bytes always fit into the buffer of a new connection.
        if self.connection.send(challenge, socket.MSG_DONTWAIT) != len(challenge):
            raise ProtocolError("it does not read")
        return transcript

    def _finish(self, record: bytes, longest: int) -> Applicant:
        assert self.transcript is not None
        self.transcript.check_answer(self._head, record)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _USUAL_CLOSE)
        handshake.send_at_once(self.connection)
        from_peer, to_peer = self.transcript.keys()
        channel = FramedConnection(self.connection, to_peer, from_peer, longest)
        return Applicant(self.transcript.hello, record, channel)


class Listener:
    """Accepts connections and finds the members among them; nothing here waits.

    A selector can wait for it (`fileno`): it is readable when `serve` has something to do.

    Parameters
    ----------
    sockets
        From `open_socket`, whether idle or not; closed with the listener.
    secret
        What members know.
    longest
        Payload that a frame from a member may have at most.
    """

    def __init__(self, sockets: Iterable[socket.socket], secret: bytes, longest: int) -> None:
        self.sockets = tuple(sockets)
        self._secret = secret
        self._longest = longest
        self._selector = selectors.EpollSelector()
        self._silent: dict[_Peer, None] = {}  # both in the order of their coming
        self._promising: dict[_Peer, None] = {}
        self._seen: dict[bytes, None] = {}
        self._most = max(1, min(limits.MAX_PENDING_PEERS, _free_descriptors() // _SHARE))
        self._accepting = False
        self._resume_at = 0.0
        self._turned_away = 0
        self._last_reason = ""
        self._exhausted = 0
        self._starved_since: float | None = None
        for one in self.sockets:
            one.listen(BACKLOG)  # it may have been idle
        self._accept_or_not(time.monotonic())

    def fileno(self) -> int:
        """Let selectors wait for it."""
        return self._selector.fileno()

    @property
    def pending(self) -> int:
        """Connections that have not proven enough yet."""
        return len(self._silent) + len(self._promising)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything but the connections of members."""
        for one in (*self.sockets, *(peer.connection for peer in (*self._silent, *self._promising))):
            one.close()
        self._silent.clear()
        self._promising.clear()
        self._selector.close()

    def serve(self) -> list[Applicant]:
        """Do what can be done now; the peers that have just proven themselves."""
        found: list[Applicant] = []
        for key, _ in self._selector.select(0):
            if isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj, found)
            elif key.fileobj in self._silent or key.fileobj in self._promising:
                assert isinstance(key.fileobj, _Peer)
                self._hear(key.fileobj, found)
        now = time.monotonic()
        self._expire(self._silent, now - limits.MAX_UNPROVEN_SECONDS)
        self._expire(self._promising, now - self._patience_s())
        self._accept_or_not(now)
        return found

    def wait_s(self, most: float) -> float:
        """After how many seconds to call `serve` though nothing happens; not more than `most`."""
        alarms = [] if self._accepting or self._is_full() else [self._resume_at]
        alarms += [peer.since + limits.MAX_UNPROVEN_SECONDS for peer in self._silent]
        alarms += [peer.since + self._patience_s() for peer in self._promising]
        return max(0.0, min([most, *(alarm - time.monotonic() for alarm in alarms)]))

    def check_starved(self) -> None:
        """Raise accept's error if it has lasted for a while though no place was taken by others."""
        if self._starved_since is not None and time.monotonic() - self._starved_since > _STARVED_S:
            raise OSError(self._exhausted, os.strerror(self._exhausted))

    def turn_away(self, applicant: Applicant, reason: str) -> None:
        """Refuse a peer that knows the secret but has no place here."""
        self._note(reason)
        applicant.dismiss(FrameKind.REFUSED, reason[:_LONGEST_REASON].encode())

    def describe(self) -> str | None:
        """How many were turned away and why, in words; None if nobody was."""
        count = self._turned_away
        turned = f"{count} connection{'s' * (count > 1)} turned away, the last because {self._last_reason}"
        told = [turned] if count else []
        if self._exhausted:
            problem = os.strerror(self._exhausted)
            told.append(f"connections could not be accepted: {problem}; raise 'ulimit -n'")
        return "; ".join(told) or None

    def _accept(self, source: socket.socket, found: list[Applicant]) -> None:
        for _ in range(_BATCH):
            if self._is_full():
                return
            try:
                connection, _ = source.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _ONE_CONNECTION:
                    continue
                if error.errno not in EXHAUSTED:
                    raise
                self._exhausted = error.errno
                if not self._silent:
                    now = time.monotonic()
                    self._starved_since = self._starved_since or now
                    self._resume_at = now + _PAUSE_S
                    return
                self._drop(next(iter(self._silent)), "descriptors were needed for others")
                continue
            self._starved_since = None
            self._hear(_Peer(connection), found)

    def _hear(self, peer: _Peer, found: list[Applicant]) -> None:
        try:
            applicant = peer.hear(self._secret, self._seen, self._longest)
        except ProtocolError as error:
            self._drop(peer, str(error))
        except OSError as error:
            self._drop(peer, error.strerror or str(error))
        else:
            if applicant is None:
                self._keep(peer)
            else:
                self._forget(peer)
                found.append(applicant)

    def _keep(self, peer: _Peer) -> None:
        """File a peer by what it has said so far; a new one takes the place of the one silent for longest."""
        if peer not in self._silent and peer not in self._promising:
            self._selector.register(peer, selectors.EVENT_READ)
        if peer.transcript is None:
            self._silent[peer] = None
        elif peer not in self._promising:
            self._silent.pop(peer, None)
            self._promising[peer] = None
        if self.pending > self._most:
            self._drop(next(iter(self._silent)), "it said nothing while others came")

    def _forget(self, peer: _Peer) -> None:
        if peer in self._silent or peer in self._promising:
            self._selector.unregister(peer)
            self._silent.pop(peer, None)
            self._promising.pop(peer, None)

    def _drop(self, peer: _Peer, reason: str) -> None:
        self._note(reason)
        self._forget(peer)
        peer.connection.close()

    def _note(self, reason: str) -> None:
        self._turned_away += 1
        self._last_reason = reason

    def _is_full(self) -> bool:
        """Whether every place is taken by a peer with a good hello."""
        return len(self._promising) >= self._most

    def _patience_s(self) -> float:
        return _CROWDED_S if self._is_full() else limits.MAX_UNPROVEN_SECONDS

    def _expire(self, peers: dict[_Peer, None], since: float) -> None:
        for peer in [peer for peer in peers if peer.since <= since]:
            self._drop(peer, "it was too slow")

    def _accept_or_not(self, now: float) -> None:
        """Wait for new connections only while there is a place for one."""
        accept = not self._is_full() and now >= self._resume_at
        if accept == self._accepting:
            return
        for one in self.sockets:
            if accept:
                self._selector.register(one, selectors.EVENT_READ)
            else:
                self._selector.unregister(one)
        self._accepting = accept


def _free_descriptors() -> int:
    """How many more files this process may open, up to as many as are worth counting."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _SHARE * limits.MAX_PENDING_PEERS
    try:
        used = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    except OSError:  # not even one more, for looking
        return 0
    if allowed == resource.RLIM_INFINITY:
        return enough
    # The limit is on numbers. One of those that were found was the folder's own.
    return min(enough, allowed + 1 - sum(number < allowed for number in used))
