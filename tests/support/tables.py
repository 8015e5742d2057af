"""What tests of network interfaces share: runs with the times of every message, hardware to reckon with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.packets import (
    Hardware,
    Rules,
    Send,
    TableEntry,
    Tables,
    find_hardware,
)
from weft.packets.engine_input import Program
from weft.packets.packet_simulator import _run
from weft.topology import Topology

PLAIN = Hardware(
    "plain",
    "made for tests",
    payload_bytes=64,
    virtual_channels=2,
    buffer_flits=1000,
    queue_packets=1000,
    receive_cycles=3,
)
"""Packets of 4 flits and a head; on links of 16 GB/s a flit takes a cycle. Queues never fill."""


@dataclass(frozen=True)
class Run:
    """When each message was handed over and when it had come, by receiver, operation, flow and sender."""

    start: dict[tuple[int, str, int, int], int]
    arrived: dict[tuple[int, str, int, int], int]
    busy_ps: NDArray[np.int64]
    time_ps: int
    flits: int
    packets: int
    program: Program


def run(
    tables: Tables, hardware: str | Hardware = PLAIN, rules: Rules | None = None, detail: str = "packet"
) -> Run:
    """Carry out tables, and keep what `simulate_tables` does not."""
    made = find_hardware(hardware) if isinstance(hardware, str) else hardware
    found, program = _run(tables, made, rules or Rules(), detail, None)
    assert (found["stuck_send"], found["stuck_entry"]) == (-1, -1)
    keys = [(e.sends[i].dst, e.op, e.flow, rank) for rank, e, i in program.sends]
    return Run(
        start=dict(zip(keys, found["send_start_ps"].tolist(), strict=True)),
        arrived=dict(zip(keys, found["send_arrived_ps"].tolist(), strict=True)),
        busy_ps=found["channel_busy_ps"],
        time_ps=found["time_ps"],
        flits=found["flits"],
        packets=found["packets"],
        program=program,
    )


def make(
    topology: Topology, entries: dict[int, list[TableEntry]], *, size: int = 1 << 20, ports: int = 1
) -> Tables:
    """Tables of some ranks; the others have nothing to do."""
    ranks = tuple(tuple(entries.get(rank, ())) for rank in range(topology.ranks))
    steps = 1 + max((entry.step for each in ranks for entry in each), default=-1)
    return Tables(topology, "mine", "broadcast", size, steps, ports, ranks)


def gather(
    flow: int, *to: int, step: int = 0, size: int = 64, after: tuple[tuple[str, int, int], ...] = ()
) -> TableEntry:
    """Send a flow to some ranks."""
    return TableEntry(step, "gather", flow, 0, size, after, tuple(Send(dst, 0) for dst in to))


def reduce(
    flow: int, *to: int, step: int = 0, size: int = 64, after: tuple[tuple[str, int, int], ...] = ()
) -> TableEntry:
    """Send a sum to a rank, or to none: a closing entry."""
    return TableEntry(step, "reduce", flow, 0, size, after, tuple(Send(dst, 0) for dst in to))


def flits_of(size: int, hardware: Hardware, flow_control: str) -> tuple[int, int]:
    """Packets and flits of a message, counted from the definition."""
    packets = max(1, -(-size // hardware.payload_bytes))
    heads = hardware.head_flits * (packets if flow_control == "packet" else 1)
    if hardware.padded:
        return packets, heads + packets * -(-hardware.payload_bytes // hardware.flit_bytes)
    data, left = 0, size
    while left > 0:
        data += -(-min(left, hardware.payload_bytes) // hardware.flit_bytes)
        left -= hardware.payload_bytes
    return packets, heads + data
