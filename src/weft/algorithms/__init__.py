"""Makers of schedules: one module per algorithm, one function per collective.

A module is loaded when it is first named, so that ``weft.algorithms.ring.all_reduce(topology)`` works after
``import weft`` and nothing else is paid for. `weft.algorithms.registry` lists them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.algorithms.registry import ALGORITHMS

if TYPE_CHECKING:
    from weft.algorithms import (
        bidirectional_ring,
        blueconnect,
        bucket,
        direct,
        double_binary_tree,
        flexreduce,
        forest,
        four_phase,
        gloo_halving_doubling,
        gloo_ring,
        halving_doubling,
        hdrm,
        hierarchical,
        mpich_choice,
        multitree,
        nccl_ring,
        nccl_tree,
        open_mpi_choice,
        rccl_ring,
        recursive_doubling,
        registry,
        ring,
        ring2d,
        swing,
    )

__all__ = [
    "bidirectional_ring",
    "blueconnect",
    "bucket",
    "direct",
    "double_binary_tree",
    "flexreduce",
    "forest",
    "four_phase",
    "gloo_halving_doubling",
    "gloo_ring",
    "halving_doubling",
    "hdrm",
    "hierarchical",
    "mpich_choice",
    "multitree",
    "nccl_ring",
    "nccl_tree",
    "open_mpi_choice",
    "rccl_ring",
    "recursive_doubling",
    "registry",
    "ring",
    "ring2d",
    "swing",
]


def __getattr__(name: str) -> Any:
    if name in ALGORITHMS or name in __all__:
        return import_module(f"weft.algorithms.{name}")
    raise AttributeError(f"module 'weft.algorithms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
