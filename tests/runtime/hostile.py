"""Peers as they should not be, and real ranks for them to bother."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
from support.rank_pool import PooledRank, pool

from weft.runtime import Member, Place
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.meeting_point import reserve_port

RANK = Path(__file__).with_name("jobs") / "joining.py"


@dataclass
class Job:
    """Real ranks on loopback, each a process.

    Parameters
    ----------
    then
        What they do with their control plane, ``plane``, once all have joined.
    """

    size: int
    timeout: float = 30.0
    then: str = "plane.barrier(10)"
    secret: bytes = field(default_factory=lambda: os.urandom(32))
    processes: dict[int, PooledRank] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.holder, self.port = reserve_port("127.0.0.1")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        self.holder.close()

    def place(self, rank: int, **changes: Any) -> Place:
        fields: dict[str, Any] = {
            "rank": rank,
            "size": self.size,
            "address": "127.0.0.1",
            "port": self.port,
            "job": "job",
            "secret": self.secret,
        }
        return Place(**fields | changes)

    def start(self, *ranks: int, then: str | None = None, timeout: float | None = None) -> None:
        """Start some ranks."""
        for rank in ranks:
            variables = {
                "WEFT_RANK": str(rank),
                "WEFT_SIZE": str(self.size),
                "WEFT_ADDRESS": "127.0.0.1",
                "WEFT_PORT": str(self.port),
                "WEFT_JOB": "job",
                "WEFT_SECRET": self.secret.hex(),
            }
            words = [str(timeout or self.timeout), self.then if then is None else then]
            self.processes[rank] = pool(torch=False).start(RANK, words, variables=os.environ | variables)

    def result(self, rank: int) -> dict[str, Any]:
        """The last thing a rank said."""
        out, _ = self.processes[rank].communicate(timeout=60)
        found = json.loads(out.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    def results(self) -> dict[int, dict[str, Any]]:
        return {rank: self.result(rank) for rank in self.processes}

    def wait_joined(self, rank: int) -> dict[str, Any]:
        """What a rank says when everybody is there."""
        stream = self.processes[rank].stdout
        assert stream is not None
        found = json.loads(stream.readline())
        assert isinstance(found, dict)
        return found

    def connect(self) -> socket.socket:
        """A connection to rank 0, as soon as it listens."""
        for _ in range(1000):
            try:
                return socket.create_connection(("127.0.0.1", self.port), 10)
            except ConnectionRefusedError:
                time.sleep(0.02)
        msg = "rank 0 never listened"
        raise AssertionError(msg)


def read(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer if the other side hangs up."""
    data = b""
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more
    return data


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side closes the connection, saying nothing."""
    connection.settimeout(30)
    return read(connection, 1) == b""


def prove(
    job: Job, place: Place, record: bytes | None = None
) -> tuple[socket.socket, bytes, handshake.FramedConnection]:
    """Do everything a true peer does; the connection, its answer, and the channel to rank 0."""
    assert place.secret is not None
    connection = job.connect()
    hello = handshake.Hello.of(place)
    connection.sendall(hello.sign(place.secret))
    challenge = read(connection, handshake.CHALLENGE_BYTES)
    transcript = handshake.read_challenge(place.secret, hello, challenge)
    member = msgspec.msgpack.encode(Member.here(place.rank)) if record is None else record
    answer = transcript.answer(member)
    connection.sendall(answer)
    to_rank_0, from_rank_0 = transcript.keys()
    return connection, answer, handshake.FramedConnection(connection, to_rank_0, from_rank_0, 1 << 20)
