"""NCCL's own cost model on a topology, for one line below a comparison.

It is an estimate from NCCL's tables (`weft.planning.nccl_costs`), and stands for what has no row among the
schedules: protocols, threads, and sums in the NVSwitch. It knows boxes whose GPUs hang on one NVSwitch each,
and tells the generation by the speed of NVLink. It knows nothing of what is between boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.algorithms.common.nccl_channels import NcclChannels, links_between_boxes
from weft.errors import UnsupportedError
from weft.planning.nccl_costs import NcclCluster
from weft.topology.rated_links import NVLINK, network_port
from weft.units import human_seconds

if TYPE_CHECKING:
    from weft.planning.nccl_costs import NcclChoice
    from weft.topology import Topology

_NVLINKS: Final = {"ampere": (3, 12), "hopper": (4, 18), "blackwell": (5, 18)}
"""Generation of NVLink, and how many of them a GPU has."""

_CPUS: Final = {"ampere": "amd", "hopper": "intel", "blackwell": "intel"}
"""Those of NVIDIA's own boxes."""

_MOST_GPUS: Final = 16
"""Of a box. Racks of 72 have other CPUs, and more GPUs than NVLS has places for."""

NOT_SIMULATED: Final = "NCCL's own cost model, neither simulated nor verified"

_LEAST_GIGABITS: Final = 1.0
"""Of an interface: NCCL's table of speeds ends at 0.12 GB/s."""

_ALGORITHMS: Final = {"ring": "ring", "tree": "tree", "nvls": "NVLS", "nvls_tree": "NVLSTree"}


class NcclEstimate(NamedTuple):
    """What NCCL's model takes the boxes to be, and for each algorithm its best protocol, fastest first."""

    cluster: NcclCluster
    choices: tuple[NcclChoice, ...]

    def __str__(self) -> str:
        others = ", ".join(map(_in_words, self.choices[1:]))
        return f"{self.first}; {others} ({NOT_SIMULATED})"

    @property
    def first(self) -> str:
        """What NCCL would choose, in words."""
        return _in_words(self.choices[0])

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft compare --json`` prints them."""
        cluster = self.cluster
        return {
            "boxes": cluster.boxes,
            "gpus": cluster.gpus,
            "generation": cluster.generation,
            "interfaces": cluster.interfaces,
            "gigabits": cluster.gigabits,
            "cpu": cluster.cpu,
            "text": str(self),
            "estimates": [
                {"algorithm": one.algorithm, "protocol": one.protocol, "seconds": one.microseconds / 1e6}
                for one in self.choices
            ],
        }


def _in_words(choice: NcclChoice) -> str:
    time = human_seconds(choice.microseconds / 1e6)
    return f"{_ALGORITHMS[choice.algorithm]} with {choice.protocol} {time}"


def estimate_of_nccl(topology: Topology, size_bytes: int) -> NcclEstimate | None:
    """Estimate an all-reduce, or None where NCCL's model does not know the boxes.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> estimate_of_nccl(load_topology("dgx-a100:1"), 1 << 30).first
    'ring with Simple 7.885 ms'
    >>> estimate_of_nccl(load_topology("mi300x:2"), 1 << 30)
    """
    cluster = nccl_cluster_of(topology)
    return None if cluster is None else NcclEstimate(cluster, cluster.choices(size_bytes))


def nccl_cluster_of(topology: Topology) -> NcclCluster | None:
    """Boxes as NCCL's model sees them, or None where it does not know them.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> found = nccl_cluster_of(load_topology("leafspine:16x8@nics=4,oversub=3"))
    >>> found.generation, found.interfaces, found.gigabits
    ('hopper', 4, 400.0)
    """
    gpus = {len(members) for members in topology.hosts}
    if len(gpus) != 1 or not 2 <= min(gpus) <= _MOST_GPUS:
        return None
    rated = _generation_of(topology)
    if rated is None:
        return None
    generation, rating = rated
    shape = (len(topology.hosts), min(gpus), generation)
    if shape[0] == 1:
        return NcclCluster(*shape, cpu=_CPUS[generation])
    network = _network_of(topology, rating)
    return None if network is None else NcclCluster(*shape, *network, cpu=_CPUS[generation])


def _generation_of(topology: Topology) -> tuple[str, str] | None:
    """Generation of the GPUs, and whether speeds are nominal or effective, by NVLink to the NVSwitch."""
    switch = np.zeros(topology.nodes, bool)
    for number, name in enumerate(topology.switch_names):
        switch[topology.ranks + number] = name.rpartition(".")[2] == "nvswitch"
    near = switch[topology.link_dst] & (topology.link_src < topology.ranks)
    # One such link for each rank, and all as fast.
    if not np.array_equal(np.sort(topology.link_src[near]), np.arange(topology.ranks)):
        return None
    speeds = np.unique(topology.bandwidth[near]).tolist()
    return next(
        (
            (generation, rating)
            for generation, (number, links) in _NVLINKS.items()
            for rating in ("nominal", "effective")
            if speeds == [NVLINK[number].rated(rating, links)]
        ),
        None,
    )


def _network_of(topology: Topology, rating: str) -> tuple[int, float] | None:
    """Interfaces of a box, and Gbit/s of the slowest: of what is in a box on the ways to the next one."""
    try:
        channels = NcclChannels(topology, "nccl_ring")
    except UnsupportedError:  # cables join GPUs one by one as well
        return None
    outside = links_between_boxes(topology)
    ways = [link for rail in channels.rails for link in channels.way(rail, 0, 1) if link not in outside]
    slowest = int(topology.bandwidth[ways].min())
    port = network_port(1_000_000)
    gigabits = round(slowest * 1000 / port.rated(rating), 3)
    return (len(channels.rails), gigabits) if gigabits >= _LEAST_GIGABITS else None
