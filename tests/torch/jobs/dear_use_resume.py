"""A checkpoint goes on bit by bit.

Run by tests/torch/test_dear_use.py.
"""

import copy

import torch
import torch.distributed as dist
from dear_use_model import flat, make, refused, train
from support.torch_rank import WORDS, N, R

import weft
import weft.torch

mode, kind = WORDS[0], getattr(torch.optim, WORDS[1])
words = {"lr": 0.05, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.01}
folder = WORDS[2]
model = make(R)
optimizer = weft.torch.DeAR(model, kind, mode=mode, tune=False, **words)
train(model, optimizer, 0, 7)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/{R}.pt")
full = copy.deepcopy(optimizer.full_state_dict())
train(model, optimizer, 7, 12)
optimizer.synchronize()

saved = torch.load(f"{folder}/{R}.pt", weights_only=True)
other = make(99)
again = weft.torch.DeAR(other, kind, mode=mode, tune=False, **words)
other.load_state_dict(saved["model"])
again.load_state_dict(saved["optimizer"])
assert again.fusion.digest == optimizer.fusion.digest
train(other, again, 7, 12)
again.synchronize()
assert torch.equal(flat(model), flat(other)), (flat(model) - flat(other)).abs().max()

# The same in the other mode, and in one process: the full state is torch's own.
third = make(98)
opposite = "gradients" if mode == "parameters" else "parameters"
turned = weft.torch.DeAR(third, kind, mode=opposite, policy="dear", fusion="3kB", **words)
third.load_state_dict(saved["model"])
turned.load_state_dict(full)
train(third, turned, 7, 12)
turned.synchronize()
assert (flat(model) - flat(third)).abs().max() < 1e-6
plain = kind(make().parameters(), **words)
plain.load_state_dict(full)
dist.barrier()

shares = [torch.load(f"{folder}/{r}.pt", weights_only=True)["optimizer"] for r in range(N)]
if mode == "parameters":
    fourth = make(97)
    joined = weft.torch.DeAR(fourth, kind, mode=mode, policy="dear", fusion="2kB", **words)
    fourth.load_state_dict(saved["model"])
    joined.load_state_dict(shares)
    train(fourth, joined, 7, 12)
    joined.synchronize()
    assert (flat(model) - flat(fourth)).abs().max() < 1e-6
    refused(lambda: again.load_state_dict(shares[1 - R]), "another rank's share", weft.FormatError)
    refused(lambda: turned.load_state_dict(shares[R]), "one rank's share", weft.FormatError)
    refused(lambda: again.load_state_dict(shares[:1]), "expected 0 to 1", weft.FormatError)
dist.destroy_process_group()
