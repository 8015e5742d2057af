"""Messages between two ranks: matched by tag, of any type and size, and no harm where they do not match."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

TAGS = """
def of(value, count=1000):
    return torch.full((count,), float(value))

def check(tensor, value):
    assert (tensor == value).all(), (R, value, tensor)

# Received in another order than sent, one after the other: messages with other tags are kept.
if R == 0:
    for tag in range(5):
        dist.send(of(tag, 100 * tag), 1, tag=tag)
else:
    for tag in (4, 0, 2, 1, 3):
        room = torch.zeros(100 * tag)
        dist.recv(room, 0, tag=tag)
        check(room, tag)

# Receives that were started complete in the order in which their messages come.
if R == 0:
    answer = torch.zeros(1)
    dist.send(of(7), 1, tag=7)
    dist.recv(answer, 1)
    check(answer, 7)
    dist.send(of(8), 1, tag=8)
else:
    late, early = torch.zeros(1000), torch.zeros(1000)
    works = dist.irecv(late, 0, tag=8), dist.irecv(early, 0, tag=7)
    works[1].wait()
    check(early, 7)
    assert not works[0].is_completed()
    dist.send(early[:1], 0)
    works[0].wait()
    check(late, 8)

# Messages of one tag keep their order, whether they were kept or awaited.
if R == 0:
    for value in range(20):
        dist.send(of(value), 1, tag=value % 2)
    dist.send(of(99), 1, tag=2)
else:
    room = torch.zeros(1000)
    dist.recv(room, 0, tag=2)
    check(room, 99)
    for tag in (1, 0):
        for value in range(tag, 20, 2):
            dist.recv(room, 0, tag=tag)
            check(room, value)

# A tag is any number up to 2**63 - 1; a strided tensor is filled from what was kept; empty messages count.
odd = torch.zeros(10, 2)[:, 0]
if R == 0:
    dist.send(torch.arange(10.0), 1, tag=2**63 - 1)
    dist.send(torch.zeros(0), 1, tag=5)
    dist.send(of(6), 1, tag=6)
else:
    dist.recv(room, 0, tag=6)
    dist.recv(torch.zeros(0), 0, tag=5)
    dist.recv(odd, 0, tag=2**63 - 1)
    assert odd.tolist() == list(range(10)), odd

# Both ways at once, by threads: neither waits for the other.
import threading
def send_all():
    for tag in range(20):
        dist.send(of(tag), 1 - R, tag=tag)
thread = threading.Thread(target=send_all)
thread.start()
room = torch.zeros(1000)
for tag in reversed(range(20)):
    dist.recv(room, 1 - R, tag=tag)
    check(room, tag)
thread.join()
"""


def test_messages_are_matched_by_their_tags(tmp_path: Path) -> None:
    run_group(tmp_path, 2, TAGS)


# What would be kept without end is refused, and can be received then.
BOUND = """
from weft import limits

limits.MAX_UNEXPECTED_BYTES = 10_000
if R == 0:
    works = [dist.isend(torch.full((1000,), float(tag)), 1, tag=tag) for tag in range(5)]
    for work in works:
        work.wait()
else:
    room = torch.zeros(1000)
    for work in (lambda: dist.recv(room, 0, tag=4), lambda: dist.irecv(room, 0, tag=4).wait()):
        try:
            work()
        except weft.LimitError as error:
            assert "2 messages of 8,000 bytes" in str(error) and "tag 2 next" in str(error), error
        else:
            raise AssertionError
    for tag in (2, 0, 4, 3, 1):
        dist.recv(room, 0, tag=tag)
        assert (room == tag).all(), (tag, room)
dist.barrier()
"""


def test_what_would_be_kept_without_bound_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    run_group(tmp_path, 2, BOUND)


# Sizes and types that differ between the two are told to both; of a message that was kept, to the receiver.
DIFFERENT = """
SENT = torch.ones(100)
CASES = {
    "size": (SENT, torch.ones(99)),
    "type of the same size": (SENT, torch.ones(100, dtype=torch.int32)),
    "type that is moved as bytes": (torch.ones(100, dtype=torch.int16), torch.ones(100, dtype=torch.uint16)),
    "complex numbers for pairs": (torch.ones(50, dtype=torch.complex64), torch.ones(100)),
}
for name, (sent, room) in CASES.items():
    for kept in (False, True):
        group = dist.new_group()
        told = None
        try:
            if R == 0:
                if kept:
                    dist.send(sent, 1, group=group, tag=1)
                    dist.send(sent, 1, group=group, tag=2)
                else:
                    dist.send(sent, 1, group=group)
            elif kept:
                dist.recv(sent, 0, group=group, tag=2)
                dist.recv(room, 0, group=group, tag=1)
            else:
                dist.recv(room, 0, group=group)
        except weft.DesyncError as error:
            told = error.rank
        expected = None if kept and R == 0 else 1 - R
        assert told == expected, (R, name, kept, told)
"""


def test_messages_of_another_size_or_type_are_told(tmp_path: Path) -> None:
    run_group(tmp_path, 2, DIFFERENT)
