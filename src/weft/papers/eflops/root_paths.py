"""Published speeds of peer-to-peer transfers through the root complex of a processor.

EFLOPS's servers avoid this path: a GPU and its NIC are on one PCIe switch. Servers that share NICs take it.
NVIDIA's guide to GPUDirect RDMA says that it works but is slower than PCIe switches alone. Only speeds with a
source are here, and none was chosen for what comes out; docs/papers/eflops.md lists these and others that
could not be run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.topology.servers import PCIE_SPEED


@dataclass(frozen=True, slots=True)
class RootPath:
    """One speed and where it is from.

    Parameters
    ----------
    name
        What was measured, in a few words.
    speed
        Bytes per second through a port of the root complex.
    source
        Address of the page.
    """

    name: str
    speed: int
    source: str


ROOT_PATHS: Final = (
    RootPath(
        "as measured on a Xeon E5-2650 v4",
        7_100_000_000,
        "https://forums.developer.nvidia.com/t/p2p-dma-performance-limitation-where-a-single-cpu-is-invoked/55564",
    ),
    RootPath(
        "as NCCL reckons for Intel processors",
        PCIE_SPEED * 5 // 6,
        "https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h",
    ),
)
"""NCCL has 12 GB/s for PCIe 3.0 x16, and transfers through an Intel processor take 6/5 of their size."""
