"""Messages are matched by their tags.

Run by tests/torch/test_messages.py.
"""

import threading

import torch
import torch.distributed as dist
from support.torch_rank import R


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
dist.destroy_process_group()
