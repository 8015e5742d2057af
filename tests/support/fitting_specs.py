"""Topologies on which each algorithm of the registry can run with so many ranks."""

from __future__ import annotations

from collections.abc import Iterator


def fitting_specs(name: str, ranks: int) -> Iterator[str]:
    """Yield a full mesh, and the spec that an algorithm needs if a full mesh does not suit it.

    An algorithm that refuses some numbers of ranks has no spec of its own for those.
    """
    yield f"fullmesh:{ranks}"
    if name in ("hierarchical", "blueconnect"):
        yield f"hosts:{ranks - ranks // 2},{ranks // 2}"
    if name in ("bucket", "four_phase", "ring2d", "swing") and ranks % 2 == 0:
        yield f"torus:2x{ranks // 2}"
    if name == "hdrm" and ranks == 8:
        yield "bigraph:2,4"
    if name in ("nccl_ring", "nccl_tree") and ranks % 2 == 0:
        yield f"rails:2x{ranks // 2}"
    if name == "rccl_ring" and ranks == 8:
        yield "mi300x:1"
    if name in ("multitree", "forest", "flexreduce"):
        yield f"ring:{ranks}"
