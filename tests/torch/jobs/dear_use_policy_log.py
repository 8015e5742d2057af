"""DeAR says in its log, and not by a warning, that it works as WFBP, once and on rank 0 alone.

What the tuner measures is replaced by known times, so that the choice does not depend on the machine.

Run by tests/torch/test_dear_use.py.
"""

import logging
import warnings

import torch
import torch.distributed as dist
from dear_use_model import make, train
from support.torch_rank import R

import weft.torch
from weft.torch.dear import tuner
from weft.training.costs import AlphaBeta, Linear
from weft.training.layers import Layer

warnings.simplefilter("error")
lines: list[tuple[int, str]] = []
log = logging.getLogger("weft.torch")
handler = logging.Handler()
handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))
log.addHandler(handler)
log.setLevel(logging.INFO)

tuner.Tuner._layer = lambda self, module, forward_s, backward_s: Layer(self._name(module), 4000, 0.01, 0.01)
FREE, SLOW = 1e-12, 2e-6
for seconds_per_byte, chosen in ((FREE, "wfbp"), (SLOW, "dear")):
    half = AlphaBeta(0.0, seconds_per_byte)
    tuner._fit_costs = lambda _, half=half: Linear(half, half, AlphaBeta(0.0, 2 * half.beta_s_per_byte))
    lines.clear()
    model = make()
    optimizer = weft.torch.DeAR(model, torch.optim.SGD, lr=0.1, tune=False)
    train(model, optimizer, 0, 6)
    assert optimizer.fusion.policy == chosen, optimizer.decision
    said = [line for line in lines if "DeAR" in line[1]]
    expected = (logging.WARNING, f"DeAR works as WFBP here: {optimizer.decision.removeprefix('wfbp: ')}")
    assert said == ([expected] if chosen == "wfbp" and R == 0 else []), said
    optimizer.close()
dist.destroy_process_group()
