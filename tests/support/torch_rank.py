"""A rank of a torch job in a test: importing it joins the group that `support.groups` has started."""

from __future__ import annotations

import sys

import torch.distributed as dist

import weft.torch  # noqa: F401 - registers the backend

BACKEND, WORDS = sys.argv[1], sys.argv[2:]
dist.init_process_group(BACKEND)
R, N = dist.get_rank(), dist.get_world_size()
