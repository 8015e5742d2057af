"""Frames of the control plane, damaged on their way from one end of a connection to the other."""

from __future__ import annotations

import random
import socket
from itertools import accumulate

from support.faults.damage import ENDINGS, Damage
from weft.errors import RuntimeFailure
from weft.runtime.bootstrap.handshake import (
    MAC_BYTES,
    FramedConnection,
    FrameKind,
    Gone,
)

HEADER_BYTES = 5
FRAMES = 4


def damage_control_frames(kind: str, chance: random.Random) -> tuple[str, str]:
    """Send some frames with a damage: how receiving them ended, and what is wrong with that.

    Of what was sent exactly the frames before the damage may be received.
    """
    key = chance.randbytes(32)
    left, right = socket.socketpair()
    sender, receiver = FramedConnection(left, key, key, 1 << 20), FramedConnection(right, key, key, 1 << 20)
    sent = [(chance.choice(list(FrameKind)), chance.randbytes(chance.randrange(300))) for _ in range(FRAMES)]
    for frame in sent:
        sender.queue(*frame)
    sender.flush()
    data = right.recv(1 << 20)
    ends = list(accumulate(HEADER_BYTES + len(payload) + MAC_BYTES for _, payload in sent))
    changed = _damage(data, ends, kind, chance)
    left.sendall(changed)
    left.close()
    received, end = [], "waits for more"
    try:
        while (frame := receiver.receive()) is not None:
            received.append(frame)
    except RuntimeFailure:
        end = "refused"
    except Gone:
        end = "incomplete"
    right.close()
    if changed == data:
        return "unchanged", ""
    common = next((n for n, (a, b) in enumerate(zip(data, changed, strict=False)) if a != b), len(changed))
    intact = sent[: sum(last <= common for last in ends)]
    return end, "" if received == intact else f"{len(received)} frames were taken, {len(intact)} are intact"


def _damage(data: bytes, ends: list[int], kind: str, chance: random.Random) -> bytes:
    """The same bytes with a damage to a whole frame, or anywhere."""
    number = chance.randrange(1, FRAMES - 1)
    at, length = ends[number - 1], ends[number] - ends[number - 1]
    if chance.random() < 0.5:
        at, length = chance.randrange(len(data)), chance.randrange(1, 200)
    if kind in ENDINGS:
        return data[:at]
    bits = chance.choice((1, 2, 3, chance.randrange(1, 65)))
    damage = Damage(kind, 0, at, length, chance.randrange(at + 1), bits, chance.randrange(1 << 30))
    return data[:at] + damage.apply(data[at:], data[:at])
