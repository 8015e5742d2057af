"""The handshake by which two processes of a job prove themselves to each other, and the frames after it.

One side listens: rank 0 where the job meets, or any rank that waits for connections for data. The other side
calls. Both know a secret of 32 bytes, and everything has a length that is known, or checked, before it is
read::

    caller    hello      magic, version, rank, number, scope, nonce, proof over these
    listener  challenge  nonce, proof over both
    caller    answer     proof over both and over the record that follows it
    listener  frame      ADMITTED, or REFUSED with a reason

All proofs are HMAC-SHA256 under the secret. The proof in the hello does not admit anybody, because it can be
overheard and sent again. It lets the listener tell, after the first message and for the price of one HMAC, a
member of the job from a peer that does not know the secret. The other two proofs cover a label, everything
said so far and both nonces: one that was overheard, cut or aimed at another rank, number or scope fits
nothing. Then each direction has its own key, and a frame is ``kind, length, payload, HMAC(key, number of the
frame, kind, length, payload)``: frames cannot be changed, repeated or reordered on the way. They can be read:
nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import RuntimeFailure

if TYPE_CHECKING:
    from weft.runtime.bootstrap.environment import Place

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
_MAGIC: Final = b"WEFT"
_VERSION: Final = 2
_CLAIM: Final = struct.Struct("!4sHIi32s32s")
_CHALLENGE: Final = struct.Struct("!32s32s")
_ANSWER: Final = struct.Struct("!32sH")
_HEADER: Final = struct.Struct("!BI")
_NUMBER: Final = struct.Struct("!Q")
_PREFIX: Final = struct.pack("!4sH", _MAGIC, _VERSION)
HELLO_BYTES: Final = _CLAIM.size + MAC_BYTES
CHALLENGE_BYTES: Final = _CHALLENGE.size
ANSWER_BYTES: Final = _ANSWER.size
_READ_BYTES: Final = 256 << 10

assert HELLO_BYTES + ANSWER_BYTES + limits.MAX_MEMBER_BYTES <= limits.MAX_UNPROVEN_BYTES


class FrameKind(IntEnum):
    """What a frame is."""

    ADMITTED = 1
    REFUSED = 2
    WELCOME = 3
    FAILED = 4
    EXCHANGE = 5
    BARRIER = 6
    EXPIRED = 7
    REPORT = 8
    MESSAGE = 9


class ProtocolError(Exception):
    """The other side does not speak this protocol, or does not know the secret."""


class Gone(Exception):
    """The other side closed the connection, or the network did."""


@dataclass(frozen=True)
class Hello:
    """What a caller claims to be.

    Parameters
    ----------
    rank
        The caller's.
    number
        Where the job meets, how many ranks the caller counts; for data, the purpose of the connection.
    scope
        Hash of what the connection is for: the job, or its data.
    nonce
        Random, and used once.
    """

    rank: int
    number: int
    scope: bytes
    nonce: bytes

    @staticmethod
    def make(rank: int, number: int, scope: str) -> Hello:
        """Claim with a nonce of its own."""
        return Hello(rank, number, hash_scope(scope), secrets.token_bytes(NONCE_BYTES))

    @staticmethod
    def of(place: Place) -> Hello:
        """Claim of a process that joins its job."""
        return Hello.make(place.rank, place.size, place.job)

    def encode(self) -> bytes:
        """The claim without its proof."""
        return _CLAIM.pack(_MAGIC, _VERSION, self.rank, self.number, self.scope, self.nonce)

    def sign(self, secret: bytes) -> bytes:
        """The claim with its proof: `HELLO_BYTES` bytes."""
        claim = self.encode()
        return claim + _prove(secret, b"hello", claim)

    @staticmethod
    def decode(data: bytes, secret: bytes) -> Hello:
        """Claim in `HELLO_BYTES` bytes, if it was made with the secret."""
        check_prefix(data)
        claim, proof = data[: _CLAIM.size], data[_CLAIM.size :]
        if not hmac.compare_digest(proof, _prove(secret, b"hello", claim)):
            raise ProtocolError("it does not know the job's secret")
        _, _, rank, number, scope, nonce = _CLAIM.unpack(claim)
        return Hello(rank, number, scope, nonce)


def check_prefix(data: bytes) -> None:
    """Refuse a hello as soon as its first bytes, however few, are not those of this protocol."""
    if data.startswith(_PREFIX) or _PREFIX.startswith(data):
        return
    if not data.startswith(_MAGIC):
        raise ProtocolError("it does not speak Weft's protocol")
    msg = f"it speaks another version of the protocol, this is {_VERSION}; use one Weft everywhere"
    raise ProtocolError(msg)


def hash_scope(scope: str) -> bytes:
    """Name of a job, or of what else a connection is for, in a fixed number of bytes."""
    return hashlib.sha256(scope.encode()).digest()


def _prove(secret: bytes, label: bytes, said: bytes) -> bytes:
    # The label has a fixed length, so that no two meanings share a message.
    return hmac.digest(secret, label.ljust(16, b"\0") + said, "sha256")


@dataclass(frozen=True)
class Transcript:
    """Everything both sides said before their proofs, and the secret that makes proofs of it."""

    secret: bytes
    hello: Hello
    nonce: bytes

    def _mac(self, label: bytes, extra: bytes = b"") -> bytes:
        return _prove(self.secret, label, self.hello.encode() + self.nonce + extra)

    def challenge(self) -> bytes:
        """The listener's nonce and proof."""
        return _CHALLENGE.pack(self.nonce, self._mac(b"listener"))

    def answer(self, record: bytes) -> bytes:
        """The caller's proof, and its record."""
        length = limits.check("bytes of a member record", len(record), limits.MAX_MEMBER_BYTES)
        said = struct.pack("!H", length) + record
        return self._mac(b"caller", said) + said

    def check_answer(self, head: bytes, record: bytes) -> None:
        """Refuse an answer that was not made with the secret for this very connection."""
        proof, _ = _ANSWER.unpack(head)
        if not hmac.compare_digest(proof, self._mac(b"caller", head[MAC_BYTES:] + record)):
            raise ProtocolError("it does not know the job's secret")

    def keys(self) -> tuple[bytes, bytes]:
        """Key of frames from the caller, and of frames to it."""
        return self._mac(b"from caller"), self._mac(b"to caller")


def read_challenge(secret: bytes, hello: Hello, data: bytes) -> Transcript:
    """Check the listener's proof; the transcript then makes the answer."""
    nonce, proof = _CHALLENGE.unpack(data)
    transcript = Transcript(secret, hello, nonce)
    if not hmac.compare_digest(transcript.challenge(), nonce + proof):
        raise ProtocolError("the listener there does not know the job's secret")
    return transcript


def record_length(head: bytes) -> int:
    """Length of the record that follows the head of an answer, within its bound."""
    _, length = _ANSWER.unpack(head)
    if length > limits.MAX_MEMBER_BYTES:
        raise ProtocolError(f"a record of {length} bytes")
    return int(length)


def send_at_once(connection: socket.socket) -> None:
    """Have the network send small messages at once; within a machine it does so anyway."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class FramedConnection:
    """A connection whose both ends have proven themselves; never blocks, and takes only whole, true frames.

    Parameters
    ----------
    connection
        Owned from here on.
    send_key, receive_key
        One key for each direction.
    longest
        Payload that a frame from the other side may have at most.
    """

    def __init__(self, connection: socket.socket, send_key: bytes, receive_key: bytes, longest: int) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._send_key = send_key
        self._receive_key = receive_key
        self._longest = longest
        self._sent = 0
        self._received = 0
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()

    def fileno(self) -> int:
        """Let selectors wait for it."""
        return self.connection.fileno()

    @property
    def sending(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._outgoing)

    def queue(self, kind: FrameKind, payload: bytes) -> None:
        """Add a frame to what is to be sent."""
        header = _HEADER.pack(kind, len(payload))
        # Piece by piece: rank 0 sends one large payload to everybody, which is not worth a copy for each.
        mac = hmac.new(self._send_key, _NUMBER.pack(self._sent) + header, "sha256")
        mac.update(payload)
        self._sent += 1
        self._outgoing.extend(memoryview(piece) for piece in (header, payload, mac.digest()) if piece)

    def flush(self) -> None:
        """Send what the network takes now."""
        try:
            while self._outgoing:
                piece = self._outgoing.popleft()
                try:
                    sent = self.connection.send(piece)
                except (BlockingIOError, InterruptedError):
                    self._outgoing.appendleft(piece)
                    return
                if sent < len(piece):
                    self._outgoing.appendleft(piece[sent:])
        except OSError as error:
            raise Gone(str(error)) from error

    def flush_if_open(self) -> None:
        """Send what the network takes now, if the other side is there."""
        with suppress(Gone):  # it may have said why before it left: that is still there to be read
            self.flush()

    def tell(self, kind: FrameKind, payload: bytes) -> None:
        """Add a frame, and send what the network takes now, if the other side is there."""
        self.queue(kind, payload)
        self.flush_if_open()

    def receive(self) -> tuple[FrameKind, bytes] | None:
        """Read what is there; the next frame once it is whole, else `None`."""
        while (needed := self._needed()) > 0:
            try:
                data = self.connection.recv(min(needed, _READ_BYTES))
            except (BlockingIOError, InterruptedError):
                return None
            except OSError as error:
                raise Gone(str(error)) from error
            if not data:
                raise Gone("the connection was closed")
            self._incoming += data
        return self._take()

    def _needed(self) -> int:
        """Bytes that the frame under way still lacks; never reads into the next one."""
        have = len(self._incoming)
        if have < _HEADER.size:
            return _HEADER.size - have
        _, length = _HEADER.unpack_from(self._incoming)
        if length > self._longest:
            msg = f"a frame of {length:,} bytes came, where at most {self._longest:,} are expected"
            raise RuntimeFailure(msg)
        return _HEADER.size + int(length) + MAC_BYTES - have

    def _take(self) -> tuple[FrameKind, bytes]:
        frame, mac = bytes(self._incoming[:-MAC_BYTES]), bytes(self._incoming[-MAC_BYTES:])
        wanted = hmac.digest(self._receive_key, _NUMBER.pack(self._received) + frame, "sha256")
        if not hmac.compare_digest(mac, wanted):
            raise RuntimeFailure("a frame was changed on its way between two ranks")
        self._received += 1
        self._incoming = bytearray()
        try:
            return FrameKind(frame[0]), frame[_HEADER.size :]
        except ValueError as error:
            msg = f"a frame of unknown kind {frame[0]} came; use one Weft everywhere"
            raise RuntimeFailure(msg) from error

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
