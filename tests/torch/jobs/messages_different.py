"""Messages of another size or type are told.

Sizes and types that differ between the two are told to both; of a message that was kept, to the receiver.

Run by tests/torch/test_messages.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import R

import weft

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
dist.destroy_process_group()
