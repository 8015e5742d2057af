"""The table that ``nvidia-smi topo -m`` prints: how any two GPUs of one machine reach each other.

::

            GPU0    GPU1    GPU2    NIC0    CPU Affinity    NUMA Affinity
    GPU0     X      NV4     SYS     PIX     0-31            0
    GPU1    NV4      X      SYS     SYS     0-31            0
    ..

The table tells who is near whom, not how fast. These speeds are assumed, for each direction; where they are
wrong, write the topology down with `weft.topology.toml_file.format_toml` and correct it there:

- ``NV#``: 25 GB/s for each of # bonded NVLinks (V100 to H100; Blackwell has twice that);
- ``PIX``, ``PXB``: GPUs behind one PCIe switch, or behind several; ``PHB``, ``NODE``: below one CPU. PCIe
  gives 31.5 GB/s (generation 4, 16 lanes), and 63 GB/s (generation 5) where a GPU has more NVLinks than an
  A100, which tells that it is an H100 or later;
- ``SYS``: between CPUs, 16 GB/s between any two.

These are nominal; `weft.topology.rated_links` has the effective ones, and the sources of both.

NVLinks are cables between two GPUs, unless that cannot be: where every two of a set of GPUs show them and a
GPU would need more than 18, there is an NVSwitch. One machine needs no NICs, so their columns are read only
by `parse_nvidia_smi_box`, whose machine is to be put into a network.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from weft import limits, units
from weft.errors import FormatError
from weft.files import name_after
from weft.topology import rated_links
from weft.topology.cluster_fabric import ImportedBox, share_out
from weft.topology.gpu_machine import NVLINK_LATENCY_PS, PCIE_LATENCY_PS, GpuMachine
from weft.topology.graph import Topology

_FEW_NVLINKS: Final = 12
"""An A100 has as many, and only H100 and later have more: that tells the generation of a link."""

MAX_NVLINKS: Final = 18
"""No GPU has more, so more than that in one row can only be an NVSwitch."""


_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NEARNESS: Final = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 2, "SYS": 3, "SOC": 3}
_PCIE_SWITCH, _PCIE_TREE, _CPU = 0, 1, 2


@dataclass
class NvidiaSmiTable:
    """What the table says: NVLinks and nearness of pairs, the NUMA node of each GPU, and how many NICs.

    NICs are numbered behind the GPUs in `nearness`.
    """

    nvlinks: dict[tuple[int, int], int]
    nearness: dict[tuple[int, int], int]
    numa: list[str]
    nics: int = 0

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.numa)


def parse_nvidia_smi(text: str, source: str, rating: str = "nominal") -> Topology:
    r"""Build the topology of one machine from its table.

    Parameters
    ----------
    text
        Output of ``nvidia-smi topo -m``, colours and legend included.
    source
        Name of the file, for error messages.
    rating
        Whether speeds are ``"nominal"`` or ``"effective"``.

    Raises
    ------
    FormatError
        If this is no such table; says in which line.

    Examples
    --------
    >>> parse_nvidia_smi("     GPU0 GPU1\nGPU0  X   NV12\nGPU1 NV12  X\n", "pair.txt")
    <Topology pair: 2 ranks, 0 switches, 2 links>
    """
    machine, gpus, _ = _read_machine(_read_table(text, source), source, rating)
    return machine.build(name_after(source, "nvidia-smi"), gpus, [gpus])


def parse_nvidia_smi_box(text: str, source: str, rating: str = "nominal") -> ImportedBox:
    """Build the machine of a table with its NICs, to be put into a larger network.

    The table does not say how fast NICs are. Where it has no columns of NICs that can be read, the box says
    nothing of them.

    Raises
    ------
    FormatError
        If this is no such table; says in which line.
    """
    table = _read_table(text, source, nics=True)
    inside = parse_nvidia_smi(text, source, rating) if table.gpus > 1 else None
    wired = None
    machine, gpus, nics = _read_machine(table, source, rating)
    if nics:
        wired = machine.build_box(gpus, nics)
    return ImportedBox(source, table.gpus, inside, None, tuple(machine.notes), wired, _nearest(table))


def find_table(text: str) -> int | None:
    r"""Number of the line with the table's heads, counted from 0; None where the first lines have none.

    Examples
    --------
    >>> find_table("$ nvidia-smi topo -m\n     GPU0 GPU1\n"), find_table("GPU0 = 1")
    (1, None)
    """
    lines = text.removeprefix("\ufeff").split("\n", limits.MAX_PREAMBLE_LINES)[: limits.MAX_PREAMBLE_LINES]
    for number, line in enumerate(lines):
        match _words(line):
            case ["GPU0", "=", *_]:  # a key of TOML
                continue
            case ["GPU0", *_]:
                return number
    return None


def _nearest(table: NvidiaSmiTable) -> tuple[tuple[int, ...], ...]:
    """GPUs that are nearest to each NIC; NICs near to the same GPUs share them out."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for nic in range(table.gpus, table.gpus + table.nics):
        far = [table.nearness[gpu, nic] for gpu in range(table.gpus)]
        groups.setdefault(tuple(gpu for gpu, one in enumerate(far) if one == min(far)), []).append(nic)
    found = {
        nic: own
        for gpus, nics in groups.items()
        for nic, own in zip(nics, share_out(gpus, len(nics)), strict=True)
    }
    return tuple(found[nic] for nic in sorted(found))


def _read_machine(table: NvidiaSmiTable, source: str, rating: str) -> tuple[GpuMachine, list[int], list[int]]:
    """Parts of the machine; its GPUs; its NICs, where the table was read with them."""
    machine = GpuMachine(source)
    gpus = [machine.add("gpu") for _ in range(table.gpus)]
    nics = [machine.add("nic") for _ in range(table.nics)]
    late = max(table.nvlinks.values(), default=0) > _FEW_NVLINKS
    nvlink = rated_links.NVLINK[4 if late else 3].rated(rating)
    pcie = rated_links.PCIE_X16[32.0 if late else 16.0].rated(rating)
    between = rated_links.BETWEEN_CPUS.rated(rating)
    _join_nvlinks(machine, gpus, table.nvlinks, nvlink)
    _join_pcie(machine, [*gpus, *nics], table, pcie, between)
    speeds = {"one NVLink": nvlink, "PCIe": pcie, "between CPUs": between}
    said = ", ".join(f"{name} {units.human_bandwidth(speed)}" for name, speed in speeds.items())
    machine.notes.insert(0, f"{rating} speed of each direction: {said}")
    return machine, gpus, nics


def _read_table(text: str, source: str, *, nics: bool = False) -> NvidiaSmiTable:
    raw = text.removeprefix("\ufeff").split("\n")
    start = find_table(text)
    if start is None:
        raise FormatError(source, "no line starts with GPU0; expected the table of nvidia-smi topo -m")
    lines = [_words(line) for line in raw[start : start + 1 + limits.MAX_GPUS]]
    header = lines[0]
    gpus = 0
    while gpus < len(header) and header[gpus] == f"GPU{gpus}":
        gpus += 1
    if gpus > limits.MAX_GPUS:
        problem = f"{gpus} GPUs are more than the {limits.MAX_GPUS} of one machine"
        raise FormatError(source, problem, f"line {start + 1}")
    table = NvidiaSmiTable({}, {}, [""] * gpus)
    # NIC columns may run into each other in a pasted table, so NUMA is only read where the words add up.
    named = header.index("CPU") if "CPU" in header else len(header)
    entries: list[list[str]] = []
    for row in range(gpus):
        words = lines[1 + row] if 1 + row < len(lines) else []
        place = f"line {start + 2 + row}"
        if words[:1] != [f"GPU{row}"]:
            raise FormatError(source, f"expected the row of GPU{row} of {gpus} GPUs", place)
        if len(words) < gpus + 1:
            raise FormatError(source, f"GPU{row} has {len(words) - 1} entries for {gpus} GPUs", place)
        entries.append(words[1 : gpus + 1])
        if "NUMA" in header and len(words) > named + 2 and words[named + 2].isdigit():
            table.numa[row] = words[named + 2]
        for column, entry in enumerate(entries[row]):
            _read_entry(table, row, column, entry, source, place)
            if column < row and entry != entries[column][row]:
                problem = f"GPU{row} to GPU{column} is {entry}, but the other way {entries[column][row]}"
                raise FormatError(source, problem, place)
    if nics:
        _read_nics(table, header, lines[1 : 1 + gpus])
    return table


def _read_nics(table: NvidiaSmiTable, header: list[str], rows: list[list[str]]) -> None:
    """Add how near the NICs are to the GPUs, unless columns run into each other or hold something else."""
    first, last = table.gpus, header.index("CPU") if "CPU" in header else len(header)
    if last == first or any(len(words) < 1 + last for words in rows):
        return
    entries = [words[1 + first : 1 + last] for words in rows]
    if last - first > limits.MAX_GPUS or not all(entry in _NEARNESS for row in entries for entry in row):
        return
    table.nics = last - first
    for gpu, row in enumerate(entries):
        for nic, entry in enumerate(row):
            table.nearness[gpu, first + nic] = _NEARNESS[entry]


def _words(line: str) -> list[str]:
    return _ESCAPE.sub("", line[: limits.MAX_LINE_CHARACTERS]).split()


def _read_entry(table: NvidiaSmiTable, row: int, column: int, entry: str, source: str, place: str) -> None:
    nvlink = re.fullmatch(r"NV([0-9]{1,3})", entry)
    if row == column:
        if entry != "X":
            raise FormatError(source, f"GPU{row} to itself should be X, not {entry[:20]!r}", place)
    elif nvlink is not None and int(nvlink[1]) > 0:
        table.nvlinks[row, column] = int(nvlink[1])
    elif entry in _NEARNESS:
        table.nearness[row, column] = _NEARNESS[entry]
    else:
        problem = f"{entry[:20]!r} is unknown, expected NV#, PIX, PXB, PHB, NODE or SYS"
        raise FormatError(source, f"GPU{row} to GPU{column}: {problem}", place)


def _join_nvlinks(
    machine: GpuMachine, parts: list[int], nvlinks: dict[tuple[int, int], int], one_link: int
) -> None:
    total: Counter[int] = Counter()
    for (a, _), count in nvlinks.items():
        total[a] += count
    for group in _components(range(len(parts)), nvlinks):
        pairs = list(combinations(group, 2))
        everyone = all(pair in nvlinks for pair in pairs)
        if everyone and max(total[gpu] for gpu in group) > MAX_NVLINKS:
            nvswitch = machine.add("nvswitch")
            members = ", ".join(map(str, group))
            machine.notes.append(f"GPUs {members} are on an NVSwitch: cables to all others would be too many")
            for gpu in group:
                count = max(nvlinks[gpu, other] for other in group if other != gpu)
                machine.cable(parts[gpu], nvswitch, count * one_link, NVLINK_LATENCY_PS, nvlink=True)
            continue
        for a, b in pairs:
            if (a, b) in nvlinks:
                speed = nvlinks[a, b] * one_link
                machine.cable(parts[a], parts[b], speed, NVLINK_LATENCY_PS, nvlink=True)


def _join_pcie(machine: GpuMachine, parts: list[int], table: NvidiaSmiTable, pcie: int, between: int) -> None:
    """Draw the tree: GPUs, PCIe switches, PCIe switches above those, CPUs; every two CPUs are joined."""
    members = range(len(parts))
    gpus = range(table.gpus)
    same_numa = [(a, b) for a, b in combinations(gpus, 2) if table.numa[a] and table.numa[a] == table.numa[b]]
    top = list(parts)
    for level in (_PCIE_SWITCH, _PCIE_TREE, _CPU):
        near = [pair for pair, nearness in table.nearness.items() if nearness <= level]
        if level == _CPU:
            near += same_numa
        for group in _components(members, near):
            below = dict.fromkeys(top[member] for member in group)
            if len(below) == 1 and level != _CPU:
                continue
            above = machine.add("cpu" if level == _CPU else "pcie")
            for part in below:
                machine.cable(part, above, pcie, PCIE_LATENCY_PS)
            for member in group:
                top[member] = above
    for a, b in combinations(dict.fromkeys(top), 2):
        machine.cable(a, b, between, PCIE_LATENCY_PS)


def _components(members: range, pairs: list[tuple[int, int]] | dict[tuple[int, int], int]) -> list[list[int]]:
    """Group the members that pairs join, smallest member first."""
    smallest = list(members)
    for a, b in pairs:
        low, high = sorted((smallest[a], smallest[b]))
        if low != high:
            smallest = [low if found == high else found for found in smallest]
    return [[m for m in members if smallest[m] == first] for first in dict.fromkeys(smallest)]
