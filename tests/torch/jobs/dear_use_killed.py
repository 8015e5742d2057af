"""A rank that dies is named by all others.

Run by tests/torch/test_dear_use.py.
"""

import os
import time

import torch
from support.torch_rank import WORDS, R
from torch import nn

import weft
import weft.torch

model = nn.Sequential(*(nn.Linear(600, 600) for _ in range(8)))
optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=WORDS[0], policy=WORDS[1], lr=1e-3)
x = torch.randn(64, 600)
done = 0
try:
    while True:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if R == 2 and done == 12:
            loss.register_hook(lambda _: os.kill(os.getpid(), 9))
            print("<now", time.time(), ">", flush=True)
        loss.backward()
        optimizer.step()
        done += 1
except weft.PeerLost as error:
    print("<lost", error.rank, time.time(), done, ">", flush=True)
    optimizer.close()
    os._exit(0)
