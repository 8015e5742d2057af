"""Clusters to try FlexReduce on: uneven hosts, racks, unequal NICs, and what a shared cloud hands out.

The paper's own are not known. Counts of GPUs are such as a scheduler hands out; speeds are those of hosts of
that time, and each is a field here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.topology import load_topology

if TYPE_CHECKING:
    from weft.topology import Topology

INSIDE: Final = {"NVLink": "intra=120GB/s,intra_lat=500ns", "PCIe": "intra=12GB/s,intra_lat=2850ns"}
"""Both sorts of hosts: six NVLinks of 20 GB/s to a switch, or PCIe 3.0 x16."""

FAST: Final = "12.5GB/s"
SLOW: Final = "3.125GB/s"
"""NICs of 100 and of 25 Gb/s."""

LATENCY: Final = "lat=1950ns"
SLOW_CHANCE: Final = 0.5
"""Chance of a host of the cloud to have the slow NIC, where NICs differ."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster that is given.

    Parameters
    ----------
    name
        GPUs of each host, in braces; what stands together in a rack is joined by +. After a comma, the
        NICs.
    kind
        What is uneven about it, or ``symmetric``.
    shape, network
        Of its spec: GPUs of the hosts, and the options that say what joins them.
    inside
        Sorts of hosts that it is tried with, of `INSIDE`.
    """

    name: str
    kind: str
    shape: str
    network: str
    inside: tuple[str, ...] = tuple(INSIDE)

    def topology(self, inside: str) -> Topology:
        """The cluster with one sort of hosts.

        Examples
        --------
        >>> SCENARIOS[0].topology("PCIe").name
        'hosts:8,8@intra=12GB/s,intra_lat=2850ns,uplink=12.5GB/s,lat=1950ns'
        """
        return load_topology(f"hosts:{self.shape}@{INSIDE[inside]},{self.network},{LATENCY}")


SYMMETRIC: Final = "symmetric"
COUNTS: Final = "GPUs of hosts differ"
RACKS: Final = "racks differ"
NICS: Final = "NICs differ"
EACH: Final = "a NIC for each GPU, GPUs of hosts differ"
ASYMMETRIC: Final = (COUNTS, RACKS, NICS, EACH)

_EQUAL: Final = f"uplink={FAST}"
_ALONE: Final = "1,1,1,1,1,1,1,1"
_NVLINK: Final = ("NVLink",)


def _one_slow(hosts: int, slow: int) -> str:
    return "uplink=" + "/".join(SLOW if host == slow else FAST for host in range(hosts))


SCENARIOS: Final = (
    Scenario("{8,8}", SYMMETRIC, "8,8", _EQUAL),
    Scenario("{4,4,4,4}", SYMMETRIC, "4,4,4,4", _EQUAL),
    Scenario("racks {8+8,8+8}", SYMMETRIC, "8,8,8,8", f"{_EQUAL},racks=2,rack_uplink={FAST}"),
    Scenario("{8,8} NIC each", SYMMETRIC, "8,8", f"nic={FAST}", _NVLINK),
    Scenario("{8,4}", COUNTS, "8,4", _EQUAL),
    Scenario("{8,4,2}", COUNTS, "8,4,2", _EQUAL),
    Scenario("{4,3,1}", COUNTS, "4,3,1", _EQUAL),
    Scenario("{8,8,8,1}", COUNTS, "8,8,8,1", _EQUAL),
    Scenario("{16,8}", COUNTS, "16,8", _EQUAL),
    Scenario("racks {8+8,8}", RACKS, "8,8,8", f"{_EQUAL},racks=2/1,rack_uplink={FAST}"),
    Scenario("{8,8}, 100 and 25 Gb/s", NICS, "8,8", _one_slow(2, 1)),
    Scenario("{8,8,8,8}, one 25 Gb/s", NICS, "8,8,8,8", _one_slow(4, 3)),
    Scenario("{8,4,2}, 100, 40, 10 Gb/s", NICS, "8,4,2", f"uplink={FAST}/5GB/s/1.25GB/s"),
    Scenario("8 x {1} last, 25 Gb/s", NICS, _ALONE, _one_slow(8, 7), _NVLINK),
    Scenario("8 x {1} fourth, 25 Gb/s", NICS, _ALONE, _one_slow(8, 3), _NVLINK),
    Scenario("{8,4} NIC each", EACH, "8,4", f"nic={FAST}", _NVLINK),
    Scenario("{8,4,2} NIC each", EACH, "8,4,2", f"nic={FAST}", _NVLINK),
    Scenario("{4,3,1} NIC each", EACH, "4,3,1", f"nic={FAST}", _NVLINK),
    Scenario("{8,8,8,1} NIC each", EACH, "8,8,8,1", f"nic={FAST}", _NVLINK),
)

HOSTS: Final = 16
WANTED: Final = 16
TAKEN: Final = 96
"""The cloud: hosts of eight GPUs, in racks of four; others have three of four GPUs, and a job asks for 16.

With half of the GPUs free a job that is packed gets whole hosts nearly always.
"""


@dataclass(frozen=True, slots=True)
class Study:
    """Many draws of what the cloud hands out.

    Parameters
    ----------
    name
        For people.
    rule
        How GPUs are chosen among the free ones, see `weft.topology.placements.RULES`.
    inside
        Sort of hosts, of `INSIDE`.
    nics
        ``equal``, ``unequal`` or ``each``: one for a host, one for a host and half of them slow, or one for
        each GPU. The uplinks of a rack carry half of what the NICs of four hosts carry.
    """

    name: str
    rule: str
    inside: str
    nics: str

    def topology(self, seed: int) -> Topology:
        """What a draw gives.

        Examples
        --------
        >>> [len(host) for host in STUDIES[0].topology(seed=1).hosts]
        [4, 6, 6]
        """
        if self.nics == "each":
            network = f"nic={FAST},rack_uplink=200GB/s"
        else:
            slow = np.random.default_rng(seed).random(HOSTS) < SLOW_CHANCE
            unequal = "/".join(SLOW if one else FAST for one in slow)
            network = f"uplink={unequal if self.nics == 'unequal' else FAST},rack_uplink=25GB/s"
        placing = f"taken={TAKEN},rule={self.rule},draw={seed},racks=4"
        return load_topology(f"cloud:{HOSTS}x8,{WANTED}@{placing},{INSIDE[self.inside]},{network},{LATENCY}")


STUDIES: Final = (
    Study("packed, equal NICs", "packed", "NVLink", "equal"),
    Study("random, equal NICs", "random", "NVLink", "equal"),
    Study("random, equal NICs, PCIe", "random", "PCIe", "equal"),
    Study("random, unequal NICs", "random", "NVLink", "unequal"),
    Study("random, NIC each", "random", "NVLink", "each"),
)


def is_symmetric(topology: Topology) -> bool:
    """Whether the cluster looks the same from every rank: equally many others equally far and fast.

    Examples
    --------
    >>> [is_symmetric(load_topology(f"hosts:{what}")) for what in ("2,2", "2,1", "2,2@uplink=1GB/s/2GB/s")]
    [True, False, False]
    """
    views = {
        tuple(
            sorted(
                tuple(topology.bandwidth[list(topology.route(rank, other))].tolist())
                for other in range(topology.ranks)
                if other != rank
            )
        )
        for rank in range(topology.ranks)
    }
    return len(views) == 1
