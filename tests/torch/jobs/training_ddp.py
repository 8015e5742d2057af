"""DDP with every option of its own, plain or with the hook, trains as one process does.

Usage: training_ddp.py BACKEND TOLERANCE [OPTIONS], the options of the hook in JSON.

Run by tests/torch/test_training.py.
"""

import copy
import json

import torch.distributed as dist
from support.torch_rank import WORDS
from torch.nn.parallel import DistributedDataParallel
from training_model import alone, compare, data, loss, mine, model, reference, sgd, wanted

import weft.torch

tolerance, *given = WORDS
named = ("static_graph", "gradient_as_bucket_view", "find_unused_parameters")


def train(options):
    """Train and compare; the DDP model ends here.

    One that outlives its gloo group hangs now and then, whoever averages its gradients: the last reference to
    the group is then dropped with Python's lock held, and waits for a thread of gloo that wants the lock.
    """
    net = copy.deepcopy(model)
    ddp = DistributedDataParallel(net, **options)
    if given:
        ddp.register_comm_hook(None, weft.torch.ddp_hook(**json.loads(given[0])))
    optimizer = sgd(net.parameters())
    for x, y in zip(data, wanted, strict=True):
        optimizer.zero_grad()
        loss(ddp, x[mine], y[mine]).backward()
        optimizer.step()
    alone.load_state_dict(model.state_dict())
    reference(sgd)
    compare(net.parameters(), float(tolerance))


for options in ({}, {"bucket_cap_mb": 0.005}, *({name: True} for name in named)):
    train(options)
dist.destroy_process_group()
