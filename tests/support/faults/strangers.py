"""Frames from connections whose other end does not know the job's secret."""

from __future__ import annotations

import random
import secrets
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from support.faults.case import Case, Fault, Setting
from support.faults.nursery import Nursery
from support.faults.outcome import Outcome, read_reports
from support.faults.trial import case_folder, job_variables
from support.rank_pool import PooledRank
from weft.runtime import Member
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.handshake import Hello

KINDS = ("frame", "hello and frame", "replayed hello and frame", "data", "heartbeat", "noise")
_LISTENING = "0A"
_PATIENCE_S = 8.0


@dataclass(frozen=True)
class Heard:
    """What a stranger got for its frame.

    Parameters
    ----------
    bytes
        That were sent back.
    hung_up
        Whether the connection was closed within seconds.
    """

    bytes: int
    hung_up: bool

    @property
    def is_nothing(self) -> bool:
        """Whether it has learned nothing, and costs nothing any more."""
        return self.hung_up and self.bytes <= handshake.CHALLENGE_BYTES


def send_frame(port: int, kind: str, job: str, size: int, overheard: bytes, chance: random.Random) -> Heard:
    """Connect, send a frame as if one were a rank of the job, and wait until the job hangs up."""
    with socket.create_connection(("127.0.0.1", port), _PATIENCE_S) as connection:
        with suppress(ConnectionError):
            connection.sendall(_say(kind, job, size, overheard, chance))
        return _hear(connection)


def _say(kind: str, job: str, size: int, overheard: bytes, chance: random.Random) -> bytes:
    frame = _frame(chance)
    if kind == "frame":
        return frame
    if kind == "hello and frame":
        secret = secrets.token_bytes(32)
        hello = Hello.make(1 + chance.randrange(max(1, size - 1)), size, job)
        record = msgspec.msgpack.encode(Member.here(1))
        answer = handshake.Transcript(secret, hello, secrets.token_bytes(32)).answer(record)
        return hello.sign(secret) + answer + frame
    if kind == "replayed hello and frame":
        return overheard + frame
    if kind == "data":
        return b"weftOpen" + struct.pack("<QQII", 1, chance.getrandbits(64), 0, 0) + chance.randbytes(4096)
    if kind == "heartbeat":
        return struct.pack("<iiIiiii", 0, 0, 0, -1, -1, 0, 0) * 4
    return chance.randbytes(chance.randrange(1, 2000))


def _frame(chance: random.Random) -> bytes:
    """A frame like those of the control plane, under a key that was guessed."""
    payload = chance.randbytes(chance.randrange(200))
    kind = chance.choice(list(handshake.FrameKind))
    return struct.pack("!BI", kind, len(payload)) + payload + chance.randbytes(handshake.MAC_BYTES)


def _hear(connection: socket.socket) -> Heard:
    heard, deadline = 0, time.monotonic() + _PATIENCE_S
    try:
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            if not (data := connection.recv(4096)):
                return Heard(heard, True)
            heard += len(data)
    except TimeoutError:
        return Heard(heard, False)
    except ConnectionError:
        return Heard(heard, True)
    return Heard(heard, False)


def find_listening_ports(pid: int) -> set[int]:
    """Ports at which a process listens."""
    inodes = set()
    for entry in Path("/proc", str(pid), "fd").iterdir():
        with suppress(OSError):
            inodes.add(str(entry.readlink()))
    found = set()
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTENING and f"socket:[{words[9]}]" in inodes:
            found.add(int(words[1].partition(":")[2], 16))
    return found


class Strangers:
    """Many of them, at the ports of one process.

    Parameters
    ----------
    job, size
        What everybody can know of the job.
    overheard
        A hello that a rank of the job has said.
    """

    def __init__(self, job: str, size: int, overheard: bytes, chance: random.Random) -> None:
        self.heard: list[tuple[str, Heard]] = []
        self._job, self._size, self._overheard, self._chance = job, size, overheard, chance

    def bother(self, ports: list[int], count: int, until: float) -> int:
        """Send so many frames, or as many as there is time for; how many."""
        for number in range(count):
            if time.monotonic() > until:
                return number
            kind, port = KINDS[number % len(KINDS)], ports[number % len(ports)]
            try:
                heard = send_frame(port, kind, self._job, self._size, self._overheard, self._chance)
            except ConnectionRefusedError:  # it listens no more
                return number
            self.heard.append((kind, heard))
        return count


def bother_job(
    nursery: Nursery, count: int, chance: random.Random, held_s: float = 7.0
) -> tuple[list[tuple[str, Heard]], list[str]]:
    """Bother a job of two ranks while it starts: what strangers got, and what is wrong with the job.

    The second rank comes when rank 0 has had half of the frames, and then lets it wait for data connections
    while the other half comes.

    Parameters
    ----------
    held_s
        How long it waits for these; less than it does at most.
    """
    setting = Setting("tcp", 2, timeout=60.0)
    with case_folder() as folder, job_variables(folder, setting) as variables:
        Case(setting, Fault.sleep(1, held_s).during("lines"), variables).save(folder)
        port = int(variables["WEFT_PORT"])
        secret = bytes.fromhex(variables["WEFT_SECRET"])
        overheard = Hello.make(1, 2, variables["WEFT_JOB"]).sign(secret)
        strangers = Strangers(variables["WEFT_JOB"], 2, overheard, chance)
        ranks = [nursery.start_program(folder, 0, variables={**variables, "WEFT_RANK": "0"})]
        try:
            _await_ports(ranks[0], lambda ports: port in ports)
            half = strangers.bother([port], -(-count // 2), time.monotonic() + 20)
            ranks.append(nursery.start_program(folder, 1, variables={**variables, "WEFT_RANK": "1"}))
            data = _await_ports(ranks[0], lambda ports: bool(ports - {port}))
            strangers.bother(sorted(data - {port}), count - half, time.monotonic() + held_s - 1)
            ended = [rank.ends_within(60) for rank in ranks]
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGKILL)
        outcome = Outcome(
            Case(setting, Fault.none(), variables),
            read_reports(folder, 2),
            {number: rank.returncode for number, rank in enumerate(ranks)},
            [] if all(ended) else ["a rank did not end"],
        )
    problems = outcome.problems()
    problems += [f"{kind}: {heard}" for kind, heard in strangers.heard if not heard.is_nothing]
    return strangers.heard, problems


def _await_ports(rank: PooledRank, are_there: Callable[[set[int]], bool]) -> set[int]:
    """The ports at which a process listens, as soon as they are what is wanted."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and rank.poll() is None:
        found = find_listening_ports(rank.pid)
        if are_there(found):
            return found
        time.sleep(0.01)
    msg = "the rank does not listen"
    raise AssertionError(msg)
