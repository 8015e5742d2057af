"""The XML that NCCL writes when ``NCCL_GRAPH_DUMP_FILE`` is set: the ways it chose through one machine.

::

    <graphs version="1">
      <graph id="0" pattern="4" nchannels="2" speedintra="20" speedinter="20" typeintra="NVL" ..>
        <channel> <net dev="0"/> <gpu dev="0" rank="0"/> <gpu dev="1" rank="1"/> <net dev="0"/> </channel>

Graph 0 is of rings. Its channels say what NCCL found to be possible at once, not how the machine is wired:

- Where all steps are over NVLink (``typeintra="NVL"``) GPUs are on one switch, and each sends as much as all
  channels together.
- Otherwise only the steps of the rings are links, each as fast as the channels that take it together.
- A NIC is nearest to the GPU that its channels enter by, and as fast as those channels together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from weft import limits
from weft.errors import FormatError, quote
from weft.files import name_after
from weft.topology.cluster_fabric import BoxNic, ImportedBox
from weft.topology.gpu_machine import NVLINK_LATENCY_PS, PCIE_LATENCY_PS, GpuMachine

if TYPE_CHECKING:
    from weft.topology.graph import Topology
    from weft.topology.nccl_xml import Element

_RING: Final = "0"
_NOTE: Final = "links are what the rings of NCCL use at once, not how the machine is wired"
_SPEED: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_NUMBER: Final = re.compile(r"(?:0x[0-9a-fA-F]{1,12}|[0-9]{1,9})")


def read_graph_box(root: Element, source: str) -> ImportedBox:
    """Build the machine of a graph file whose XML has been read.

    Raises
    ------
    FormatError
        If it holds no rings; says in which line.
    """
    reader = _GraphReader(source)
    ring = next((graph for graph in root.named("graph") if graph.attributes.get("id") == _RING), None)
    if ring is None:
        reader.fail(root, 'holds no <graph id="0">, which has the rings')
    channels = list(ring.named("channel"))
    ways = reader.ways(ring, channels)
    nics: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for channel, way in zip(channels, ways, strict=True):
        for net in list(channel.named("net"))[:1]:
            nics[reader.number(net, "dev")][way[0]] += reader.speed(ring, "speedinter")
    inside = None
    if len(ways[0]) > 1:
        nvlink = ring.attributes.get("typeintra") == "NVL"
        inside = _join(source, ways, reader.speed(ring, "speedintra"), nvlink=nvlink)
    found = tuple(BoxNic(tuple(sorted(gpus)), sum(gpus.values())) for _, gpus in sorted(nics.items()))
    return ImportedBox(source, len(ways[0]), inside, found or None, (_NOTE,))


@dataclass(frozen=True, slots=True)
class _GraphReader:
    """Reads attributes; errors name the line."""

    source: str

    def fail(self, element: Element, problem: str) -> NoReturn:
        raise FormatError(self.source, f"<{element.name}>: {problem}", f"line {element.line}")

    def number(self, element: Element, key: str) -> int:
        text = element.attributes.get(key, "")
        if not _NUMBER.fullmatch(text):
            self.fail(element, f"{key} must be a whole number, not {quote(text)}")
        return int(text, 16 if text.startswith("0x") else 10)

    def speed(self, element: Element, key: str) -> int:
        text = element.attributes.get(key, "")
        if not _SPEED.fullmatch(text) or not 0 < float(text) <= 10**5:
            self.fail(element, f"{key} must be GB/s such as 20 or 0.24, not {quote(text)}")
        return max(1, round(float(text) * 10**9))

    def ways(self, ring: Element, channels: list[Element]) -> list[list[int]]:
        """GPUs in the order of each channel, numbered from 0 by their ``dev``."""
        if not channels:
            self.fail(ring, "holds no <channel>")
        order = [[self.number(gpu, "dev") for gpu in channel.named("gpu")] for channel in channels]
        devices = sorted(set(order[0]))
        if len(devices) > limits.MAX_GPUS:
            self.fail(ring, f"has more than {limits.MAX_GPUS} GPUs")
        for channel, gpus in zip(channels, order, strict=True):
            if not gpus or sorted(gpus) != devices:
                self.fail(channel, "must pass each GPU of the first channel once")
        rank = {device: index for index, device in enumerate(devices)}
        return [[rank[device] for device in gpus] for gpus in order]


def _join(source: str, ways: list[list[int]], speed: int, *, nvlink: bool) -> Topology:
    machine = GpuMachine(source)
    gpus = [machine.add("gpu") for _ in ways[0]]
    if nvlink:
        hub = machine.add("nvswitch")
        for gpu in gpus:
            machine.cable(gpu, hub, speed * len(ways), NVLINK_LATENCY_PS, nvlink=True)
    else:
        for way in ways:
            for a, b in zip(way, [*way[1:], way[0]], strict=True):
                machine.wire(gpus[a], gpus[b], speed, PCIE_LATENCY_PS)
    machine.notes.append(_NOTE)
    return machine.build(name_after(source, "nccl-graph"), gpus, [gpus])
