"""What a policy takes when it is tried decides, whatever the model of an iteration expects.

What the tuner measures is replaced by known times, so that the choice does not depend on the machine.

Run by tests/torch/test_dear_use.py.
"""

import logging

import torch
import torch.distributed as dist
from dear_use_model import flat, make, train
from support.torch_rank import R

import weft.torch
from weft.torch.dear import tuner
from weft.training.costs import AlphaBeta, Linear
from weft.training.layers import Layer

lines: list[str] = []
log = logging.getLogger("weft.torch")
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
log.addHandler(handler)

tuner.Tuner._layer = lambda self, module, forward_s, backward_s: Layer(self._name(module), 4000, 0.01, 0.01)
next_plan = tuner.Tuner.next_plan
FREE, SLOW = 1e-12, 2e-6
for seconds_per_byte, expected, taken in ((FREE, "wfbp", "dear"), (SLOW, "dear", "wfbp")):
    half = AlphaBeta(0.0, seconds_per_byte)
    tuner._fit_costs = lambda _, half=half: Linear(half, half, AlphaBeta(0.0, 2 * half.beta_s_per_byte))
    lines.clear()
    model = make()
    optimizer = weft.torch.DeAR(model, torch.optim.SGD, lr=0.1, fusion="1KB")
    tried: list[str] = []

    def told(self, _, optimizer=optimizer, tried=tried, taken=taken):
        tried.append(optimizer.fusion.policy)
        return next_plan(self, 1.0 if optimizer.fusion.policy == taken else 2.0)

    tuner.Tuner.next_plan = told
    steps = 0
    while optimizer.tuning:
        assert optimizer.decision is None
        assert not lines
        train(model, optimizer, steps, steps + 1)
        steps += 1
    assert tried[3:] == 2 * (6 * [expected] + 6 * [taken]), tried
    assert optimizer.fusion.policy == taken
    times = f"{taken}: when tried, an iteration took 1 s with {taken} and 2 s with {expected}"
    chosen = f"the model of an iteration had chosen {expected}: "
    assert optimizer.decision.startswith(f"{times}; {chosen}")
    said = optimizer.decision.removeprefix("wfbp: ")
    fallen_back = [f"DeAR works as WFBP here: {said}"] if taken == "wfbp" and R == 0 else []
    assert lines == fallen_back, lines
    train(model, optimizer, steps, steps + 2)
    optimizer.synchronize()
    mine = flat(model)
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    assert all(torch.equal(mine, other) for other in others)
    optimizer.close()
    tuner.Tuner.next_plan = next_plan
dist.destroy_process_group()
