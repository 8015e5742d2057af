"""How fast the links inside and between machines are: one table for presets and imports, with sources.

A speed is given twice, in bytes per second of one direction. The nominal one is what the data sheet says
after the encoding of the line. The effective one is what a transfer gets of it, after headers and
acknowledgements. ``@speed=effective`` selects the second; the first is the default, because a bound that is
made from it holds for every machine, however well it was tuned.

No effective speed is taken from a collective: those are what predictions are compared with. They come from
microbenchmarks of one link, from vendors' pages and from what NCCL assumes of a link in ``src/graph/topo.h``.
A link without such a source has no effective speed here, and asking for it is an error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.errors import TopologyError

GB: Final = 10**9
RATINGS: Final = ("nominal", "effective")


class LinkSpeed(NamedTuple):
    """Bytes per second of one direction, and where the two figures come from."""

    nominal: int
    effective: int | None
    source: str
    effective_source: str = ""

    def rated(self, rating: str, count: int = 1) -> int:
        """Speed of so many of these links together.

        Raises
        ------
        TopologyError
            If no effective speed is known.

        Examples
        --------
        >>> NVLINK[4].rated("nominal", 18), NVLINK[4].rated("effective", 18)
        (450000000000, 374040000000)
        """
        if rating == "nominal":
            return count * self.nominal
        if self.effective is None:
            msg = f"no measured speed of this link is known ({self.source}); give speed=nominal, or bw="
            raise TopologyError(msg)
        return count * self.effective


_TOPO_H: Final = "NCCL src/graph/topo.h"

NVLINK: Final = {
    1: LinkSpeed(20 * GB, 18 * GB, "open-mpi/hwloc#574: 8 pairs of 20 Gbit/s", f"{_TOPO_H}, SM60"),
    2: LinkSpeed(25 * GB, 20 * GB, "open-mpi/hwloc#574: 8 pairs of 25 Gbit/s", f"{_TOPO_H}, SM70"),
    3: LinkSpeed(
        25 * GB,
        20 * GB,
        "nvidia-smi nvlink -s on A100: 25 GB/s (NVIDIA/nccl-tests#228)",
        "NVIDIA/nccl-tests#149: 25 GB/s are about 20 with payloads of 128 bytes",
    ),
    4: LinkSpeed(
        25 * GB,
        20_780_000_000,
        "open-mpi/hwloc#574: 18 links of an H100, 900 GB/s both ways",
        "NVIDIA/nccl#1264: p2pBandwidthLatencyTest copies 371 to 377 GB/s over 18 links; the middle",
    ),
    5: LinkSpeed(
        50 * GB,
        40_100_000_000,
        "DGX SuperPOD GB200 reference architecture, network fabrics: 18 links, 1.8 TB/s both ways",
        f"{_TOPO_H}, SM100",
    ),
}
"""One NVLink, by generation."""

NVLINK_GA102: Final = LinkSpeed(
    14_062_500_000, 12 * GB, "NVIDIA GA102 white paper, unchecked: 14.0625 GB/s", f"{_TOPO_H}, SM86"
)


def nvlink_of(capability: int) -> LinkSpeed:
    """One NVLink of a GPU of this compute capability.

    Examples
    --------
    >>> nvlink_of(90).nominal, nvlink_of(86).effective
    (25000000000, 12000000000)
    """
    if capability == 86:
        return NVLINK_GA102
    known = ((100, 5), (90, 4), (80, 3), (70, 2), (60, 1))
    return NVLINK[next((generation for least, generation in known if capability >= least), 2)]


_PCIE_EFFECTIVE: Final = "lukealonso/p2pmark: 54.3 of the 63 GB/s of PCIe 5.0 x16; assumed of the others"

PCIE_X16: Final = {
    2.5: LinkSpeed(4 * GB, 3_447_619_048, "PCIe 1.1: 2.5 GT/s, 8b/10b, 16 lanes", _PCIE_EFFECTIVE),
    5.0: LinkSpeed(8 * GB, 6_895_238_095, "PCIe 2.0: 5 GT/s, 8b/10b, 16 lanes", _PCIE_EFFECTIVE),
    8.0: LinkSpeed(15_750_000_000, 13_575_000_000, "PCIe 3.0: 8 GT/s, 128b/130b, 16 lanes", _PCIE_EFFECTIVE),
    16.0: LinkSpeed(
        31_500_000_000, 27_150_000_000, "PCIe 4.0: 16 GT/s, 128b/130b, 16 lanes", _PCIE_EFFECTIVE
    ),
    32.0: LinkSpeed(63 * GB, 54_300_000_000, "PCIe 5.0: 32 GT/s, 128b/130b, 16 lanes", _PCIE_EFFECTIVE),
    64.0: LinkSpeed(
        121 * GB, 104_290_476_190, "PCIe 6.0: 64 GT/s, 242 of 256 bytes, 16 lanes", _PCIE_EFFECTIVE
    ),
}
"""A PCIe slot of 16 lanes, by GT/s of a lane."""

BETWEEN_CPUS: Final = LinkSpeed(
    16 * GB, 16 * GB, f"{_TOPO_H}, AMD_ZEN12_BW: nothing nominal is known of it", f"{_TOPO_H}, AMD_ZEN12_BW"
)
"""From one socket to another, where the file does not say which CPUs they are."""


def network_port(megabits: int) -> LinkSpeed:
    """One port of an InfiniBand or Ethernet network interface.

    Examples
    --------
    >>> network_port(400_000).nominal, network_port(400_000).effective
    (50000000000, 49000000000)
    """
    nominal = megabits * 125_000
    return LinkSpeed(
        nominal,
        nominal * 98 // 100,
        f"{megabits / 1000:g} Gbit/s, the rate of the port",
        "ib_write_bw: 392 of 400 Gbit/s (NVIDIA/nccl#2409), 98.4 of 100 (linux-rdma/perftest#225)",
    )


XGMI_MI300X: Final = LinkSpeed(
    64 * GB,
    48 * GB,
    "rocm.blogs.amd.com, Understanding RCCL bandwidth and xGMI performance on MI300X: 64 GB/s for each link",
    "ROCm/rccl#1210: protocol and error correction leave 48 GB/s; AMD's page says the same",
)
C2C_GB200: Final = LinkSpeed(
    225 * GB, None, "NVIDIA GB200, unchecked: NVLink-C2C of 900 GB/s both ways for two GPUs"
)
ICI_V4: Final = LinkSpeed(
    50 * GB,
    45 * GB,
    "glennklockwood.com, garden/processors/TPUv4: 400 Gbit/s each way",
    "jax-ml/scaling-book, tpus.md: 4.5e10 bytes/s one way",
)
ICI_V5P: Final = LinkSpeed(100 * GB, None, "jax-ml/scaling-book, tpus.md: 1e11 bytes/s one way")
NEURONLINK_INSIDE: Final = LinkSpeed(
    128 * GB, None, "AWS Neuron, Trn2 architecture: 1,024 GB/s for the 4 links of a chip inside an instance"
)
NEURONLINK_BETWEEN: Final = LinkSpeed(
    64 * GB, None, "AWS Neuron, Trn2 architecture: 256 GB/s for the 2 links of a chip between instances"
)
SPARK: Final = LinkSpeed(
    25 * GB,
    24_320_000_000,
    "geerlingguy/sbc-reviews#92: a port of 200 Gbit/s",
    "NVIDIA/dgx-spark-playbooks#108: ib_write_bw measures 97.28 Gbit/s on each of the two halves of a port",
)
THUNDERBOLT_5: Final = LinkSpeed(10 * GB, None, "Thunderbolt 5, unchecked: 80 Gbit/s each way")
