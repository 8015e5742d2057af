"""Fuzz targets that read from control connections."""

from __future__ import annotations

import functools
import select
import socket
import struct
from contextlib import suppress
from typing import Any

import msgspec
from support.faults.control_frames import damage_control_frames
from support.faults.damage import KINDS as DAMAGES

from fuzzing.mutate import change_bytes, change_tree
from fuzzing.target import Chance, WrongResult
from weft import limits
from weft.errors import WeftError
from weft.runtime import Member
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.listener import Listener, open_socket
from weft.runtime.bootstrap.members import LossVerdict, decode


def make_seed(chance: Chance) -> bytes:
    """Seed of what a hostile side says."""
    return str(chance.getrandbits(64)).encode()


def read_control_frames(data: bytes) -> bool:
    """Frames that were changed on their way."""
    chance = Chance(data)
    end, problem = damage_control_frames(chance.choice(DAMAGES), chance)
    if problem:
        raise WrongResult(problem)
    return end == "unchanged"


def make_record(chance: Chance) -> bytes:
    """Payload of a frame."""
    member, verdict = Member.here(chance.randrange(4)), LossVerdict("join", 1, "host", 7, (2, 3), 1.5, "text")
    value = chance.choice((member, [member] * 3, verdict))
    data = msgspec.msgpack.encode(value)
    if chance.random() < 0.5:
        with suppress(OverflowError):
            return msgspec.msgpack.encode(change_tree(msgspec.msgpack.decode(data), chance))
    return change_bytes(data, chance)


def read_record(data: bytes) -> bool:
    """Take it for each of the things that a frame may hold."""
    taken = False
    kinds: tuple[type[Any], ...] = (Member, tuple[Member, ...], LossVerdict)
    for kind in kinds:
        with suppress(WeftError):
            found = decode(data, kind, "rank 1")
            taken = True
            if isinstance(found, LossVerdict):
                str(found.error())
    return taken


@functools.cache
def _listener() -> tuple[Listener, bytes, int]:
    secret = b"s" * 32
    listening = open_socket(socket.AF_INET, ("127.0.0.1", 0))
    return Listener([listening], secret, 1 << 16), secret, listening.getsockname()[1]


def read_handshake(data: bytes) -> bool:
    """Somebody connects, and says what a member would say, or nearly; whether it was admitted."""
    chance = Chance(data)
    listener, secret, port = _listener()
    with socket.create_connection(("127.0.0.1", port), 10) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.setblocking(False)
        hello = handshake.Hello(
            chance.choice((1, 2**32 - 1, chance.getrandbits(32))),
            chance.choice((2, -1, chance.getrandbits(31))),
            chance.randbytes(32),
            chance.randbytes(32),
        )
        known = secret if chance.random() < 0.9 else chance.randbytes(32)
        said = hello.sign(known)
        changed = change_bytes(said, chance, said) if chance.random() < 0.5 else said
        true = known == secret and changed[: len(said)] == said
        found = _say(listener, caller, changed)
        challenge = b""
        with suppress(BlockingIOError, ConnectionError):
            challenge = caller.recv(1024)
        if bool(challenge) > true:
            msg = "a challenge for a hello that is none"
            raise WrongResult(msg)
        if len(challenge) == handshake.CHALLENGE_BYTES and changed == said and not found:
            record = chance.randbytes(chance.choice((0, 1, 100, limits.MAX_MEMBER_BYTES)))
            answer = handshake.read_challenge(secret, hello, challenge).answer(record)
            changed = change_bytes(answer, chance, said) if chance.random() < 0.5 else answer
            found = _say(listener, caller, changed)
            if bool(found) != (changed[: len(answer)] == answer) or any(
                one.record != record for one in found
            ):
                msg = f"an answer of {len(answer)} bytes, changed to {len(changed)}: {len(found)} admitted"
                raise WrongResult(msg)
            with suppress(WeftError, handshake.Gone):
                for one in found:
                    one.admit().receive()
        for one in found:
            one.channel.close()
    listener.serve()
    return bool(found)


def _say(listener: Listener, caller: socket.socket, data: bytes) -> list[Any]:
    with suppress(ConnectionError):
        caller.sendall(data)
    found: list[Any] = []
    for _ in range(3):
        select.select([listener], [], [], 0.002)
        found += listener.serve()
    return found
