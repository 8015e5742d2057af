"""The hook takes buckets of an accelerator to the host and back.

Buckets are taken for an accelerator's, whose work is done at once; each step is recorded. Usage: as that of
training_ddp.py.

Run by tests/torch/test_training.py.
"""

import contextlib
import runpy
from pathlib import Path

import torch

import weft.torch.hook

done = []


class Module:
    """What torch has for a kind of accelerator."""

    class Event:
        def record(self, stream):
            done.append("recorded")

        def synchronize(self):
            done.append("waited")

    class Stream:
        def __init__(self, device=None):
            pass

        def synchronize(self):
            done.append("back")

    stream = staticmethod(lambda stream: contextlib.nullcontext())
    current_stream = staticmethod(lambda device: None)


weft.torch.hook._on_host = lambda buffer: False
torch.get_device_module = lambda device=None: Module
empty = torch.empty


def empty_without_pinning(*sizes, pin_memory=False, **options):
    return empty(*sizes, **options)


torch.empty = empty_without_pinning
# Kept until the end of the process: where torch frees the models in DDP here, a rank was seen to hang.
kept = runpy.run_path(str(Path(__file__).with_name("training_ddp.py")))
assert done.count("recorded") == done.count("waited") == done.count("back") > 0, done
