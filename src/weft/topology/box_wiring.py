"""The inside of one machine as a list of cables that can be drawn as often as there are such machines.

Nodes ``0 .. gpus-1`` are the GPUs and the others are switches with names: ``nvswitch``, ``pcie0``, ``cpu0``,
``nic0``. In machine 3 these become ``host3.nvswitch`` and so on, as in `weft.topology.gpu_boxes`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.topology.gpu_machine import PCIE_LATENCY_PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.topology.cable_notes import CableNotes
    from weft.topology.cluster_fabric import BoxNic
    from weft.topology.graph import Topology

_NIC: Final = re.compile(r"(?:.*\.)?nic([0-9]{1,6})\Z")


@dataclass(frozen=True, slots=True)
class BoxWiring:
    """GPUs, switches by name, and links between them.

    Parameters
    ----------
    gpus
        How many.
    names
        Names of the switches, without that of the machine.
    links
        Source, destination, bytes per second and picoseconds of each link.

    Examples
    --------
    >>> BoxWiring(1, ("nic0",), ((0, 1, 10**9, 1000), (1, 0, 10**9, 1000))).nics
    [1]
    """

    gpus: int
    names: tuple[str, ...] = ()
    links: tuple[tuple[int, int, int, int], ...] = ()

    @classmethod
    def of(cls, topology: Topology) -> BoxWiring:
        """The wiring of a machine that was read as a topology; a switch without a name is ``switch0``."""
        names = [name.rpartition(".")[2] for name in topology.switch_names]
        if len(set(names)) < topology.switches:
            names = [f"switch{number}" for number in range(topology.switches)]
        columns = (topology.link_src, topology.link_dst, topology.bandwidth, topology.latency_ps)
        links = zip(*(column.tolist() for column in columns), strict=True)
        return cls(topology.ranks, tuple(names), tuple(links))

    @property
    def nics(self) -> list[int]:
        """Nodes that are called ``nic0``, ``nic1`` and so on, by their numbers."""
        found = [(_NIC.match(name), self.gpus + number) for number, name in enumerate(self.names)]
        return [node for _, node in sorted((int(match[1]), node) for match, node in found if match)]

    def with_nics(self, nics: Sequence[BoxNic]) -> BoxWiring:
        """The same with a switch for each NIC, cabled to the GPUs that are nearest to it."""
        names, links = list(self.names), list(self.links)
        for number, nic in enumerate(nics):
            node = self.gpus + len(names)
            names.append(f"nic{number}")
            for gpu in nic.gpus:
                wire = (nic.bandwidth, PCIE_LATENCY_PS)
                links += [(gpu, node, *wire), (node, gpu, *wire)]
        return BoxWiring(self.gpus, tuple(names), tuple(links))

    def draw(self, wiring: CableNotes, number: int) -> list[int]:
        """Draw machine `number` of many that are alike; return its NICs."""
        return self.draw_at(wiring, number * self.gpus, f"host{number}")

    def draw_at(self, wiring: CableNotes, first: int, machine: str) -> list[int]:
        """Draw the machine of this name, whose GPUs are ranks from `first` on; return its NICs."""
        nodes = [first + gpu for gpu in range(self.gpus)]
        nodes += [wiring.named(f"{machine}.{name}") for name in self.names]
        for src, dst, bandwidth, latency_ps in self.links:
            wiring.link(nodes[src], nodes[dst], bandwidth, latency_ps)
        return [nodes[nic] for nic in self.nics]
