"""DeepSpeed's ZeRO on backend weft.

torchrun --nproc-per-node 2 examples/frameworks/train_deepspeed.py --stage 2

On CPUs DeepSpeed compiles a shared-memory kernel of its own when it starts, which takes minutes. It is for
inference only, and left out here; gradients and parameters go through torch's process group.
"""

from __future__ import annotations

import deepspeed
import torch
import torch.distributed as dist
from job import average, make_data, make_model, make_parser, report

import weft.torch  # noqa: F401 - registers the backend

BATCH = 8


def main() -> None:
    """Train."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--stage", type=int, choices=range(4), default=2, help="of ZeRO")
    words = parser.parse_args()
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=words.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    settings = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": words.stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    data = make_data()
    loss = torch.tensor(0.0)
    for step in range(words.steps):
        start = (step * ranks + rank) * BATCH % len(data)
        inputs, wanted = data[start : start + BATCH]
        loss = torch.nn.functional.mse_loss(engine(inputs), wanted)
        engine.backward(loss)
        engine.step()
    report(average(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
