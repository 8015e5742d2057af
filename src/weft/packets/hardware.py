"""What packets, routers and network interfaces are made of: numbers with a source each.

Speeds and latencies of links are the topology's. A preset says only what happens around them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from weft import limits
from weft.errors import InputError, look_up


@dataclass(frozen=True, slots=True)
class Hardware:
    """Packets, routers and interfaces.

    Parameters
    ----------
    name, source
        What it is and where its numbers come from.
    cycle_ps
        Clock of routers and interfaces.
    flit_bytes, payload_bytes, head_flits
        What a channel carries at a time; a packet's data; what comes in front of it.
    padded
        Whether the last packet of a message is as long as the others.
    virtual_channels, buffer_flits
        Behind each channel, and the room of each; 0 is as much as keeps the longest link busy.
    router_cycles, switch_cycles
        From a head's arrival to its earliest start on the next channel: in a router that is part of a rank,
        and in a switch.
    credit_cycles
        Of a credit's way back, beyond the latency of its channel.
    port_cycles
        Latency of the ports between an interface and the router of its rank.
    queue_packets
        That wait between an interface and its injection port.
    queue_flits, switched_queue_flits
        That wait in the injection port itself, of ranks with a router and of ranks on a switch.
    send_cycles, receive_cycles
        From a table's decision to the first flit; from the last flit to a table's knowledge.
    lockstep_packets
        Packets of a step that the estimate of a step's time takes for free, because queues hold them.
    lanes, lane_elements, element_bytes
        Adding a message of n elements takes ``lanes * ceil(ceil(n / lanes) / lane_elements)`` cycles; 0 lanes
        add for free.
    """

    name: str
    source: str
    cycle_ps: int = 1000
    flit_bytes: int = 16
    payload_bytes: int = 256
    head_flits: int = 1
    padded: bool = False
    virtual_channels: int = 4
    buffer_flits: int = 318
    router_cycles: int = 3
    switch_cycles: int = 4
    credit_cycles: int = 1
    port_cycles: int = 1
    queue_packets: int = 48
    queue_flits: int = 80
    switched_queue_flits: int = 318
    send_cycles: int = 2
    receive_cycles: int = 2
    lockstep_packets: int = 58
    lanes: int = 0
    lane_elements: int = 32
    element_bytes: int = 4

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("name", "source", "padded"):
                kind = bool if item.name == "padded" else str
                if not isinstance(value, kind):
                    raise InputError(f"hardware: {item.name} is {value!r:.40}, expected a {kind.__name__}")
                continue
            least = 1 if item.name in _POSITIVE else 0
            most = _MOST.get(item.name, _LARGEST)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                msg = f"hardware {self.name}: {item.name} is {value!r}, expected {least} to {most:,}"
                raise InputError(msg)

    def aggregate_ps(self, size_bytes: int) -> int:
        """What adding a message costs the rank that receives it.

        Examples
        --------
        >>> find_hardware("multitree-isca21").aggregate_ps(8192)
        64000
        """
        if self.lanes == 0:
            return 0
        each = -(-size_bytes // (self.element_bytes * self.lanes))
        return self.lanes * -(-each // self.lane_elements) * self.cycle_ps

    @property
    def packet_flits(self) -> int:
        """Of a full packet with its head."""
        return -(-self.payload_bytes // self.flit_bytes) + self.head_flits

    def packets(self, size_bytes: int) -> int:
        """Packets of a message; even an empty one takes one."""
        return max(1, -(-size_bytes // self.payload_bytes))

    def flits(self, size_bytes: int) -> int:
        """Flits of a message, with a head for each packet.

        Examples
        --------
        >>> find_hardware("multitree-isca21").flits(1024)
        68
        """
        return self.packets(size_bytes) * self.packet_flits

    def wire_bytes(self, size_bytes: int) -> int:
        """Bytes of a message as packets carry it: whole ones if they are padded."""
        if not self.padded:
            return size_bytes
        return self.packets(size_bytes) * self.payload_bytes

    def step_ps(self, size_bytes: int, flow_control: str) -> int:
        """Time that a table's down-counter takes for a step with messages of this size.

        Examples
        --------
        >>> find_hardware("multitree-isca21").step_ps(64 << 10, "packet") // 1000
        3424
        """
        packets = self.packets(size_bytes)
        if packets <= self.lockstep_packets:
            return packets * self.cycle_ps
        payload = -(-self.payload_bytes // self.flit_bytes)
        flits = payload + (self.head_flits if flow_control == "packet" else 0)
        return (packets * flits - self.lockstep_packets * payload) * self.cycle_ps


_LARGEST: Final = 1 << 30
_MOST: Final = {"virtual_channels": limits.MAX_VIRTUAL_CHANNELS, "flit_bytes": 1 << 20}
"""Where that is too much: more would be no hardware, and numbers would not fit."""
_POSITIVE: Final = frozenset(
    {
        "cycle_ps",
        "flit_bytes",
        "payload_bytes",
        "virtual_channels",
        "lane_elements",
        "queue_packets",
        "element_bytes",
    }
)

_ETHERNET: Final = Hardware(
    "ethernet-10g",
    "IEEE 802.3: 38 bytes around a frame of 1,500, of which IP and TCP take 40; 256 KiB a port and 600 ns a "
    "switch are assumptions",
    flit_bytes=2,
    payload_bytes=1460,
    head_flits=39,
    virtual_channels=1,
    buffer_flits=128 << 10,
    router_cycles=600,
    switch_cycles=600,
    queue_packets=256,
    queue_flits=8192,
    switched_queue_flits=8192,
)

PRESETS: Final = {
    preset.name: preset
    for preset in (
        Hardware(
            "multitree-isca21",
            "parameter files and source of the simulator that MultiTree's authors published",
            padded=True,
            lanes=16,
        ),
        Hardware(
            "nvlink",
            "NVIDIA's description of NVLink for Pascal and Volta: 128-bit flits, up to 16 of data after a "
            "head; that buffers suffice for any link, and the pipeline of multitree-isca21, are assumptions",
            buffer_flits=0,
        ),
        replace(
            _ETHERNET,
            name="eflops",
            source=(
                "RoCE v2 with a path MTU of 1,024 bytes: Ethernet 38, IP 20, UDP 8, BTH 12, ICRC 4 bytes a "
                "packet; priority flow control with 256 KiB a port and 600 ns a switch are assumptions"
            ),
            payload_bytes=1024,
            head_flits=41,
        ),
        _ETHERNET,
        replace(
            _ETHERNET,
            name="ib-100g",
            source=(
                "InfiniBand architecture: LRH 8, BTH 12, ICRC 4, VCRC 2 bytes around up to 4,096; 64 KiB for "
                "each of 4 virtual lanes and 90 ns a switch are assumptions"
            ),
            payload_bytes=4096,
            head_flits=13,
            virtual_channels=4,
            buffer_flits=32 << 10,
            router_cycles=90,
            switch_cycles=90,
        ),
    )
}


def find_hardware(name: str) -> Hardware:
    """One of `PRESETS`.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    return look_up("hardware", name, PRESETS)
