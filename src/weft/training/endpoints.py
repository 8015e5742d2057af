"""What communication costs the accelerator itself: its processors, its memory, and the bus to the network.

A collective that runs as a kernel occupies processors and reads memory for every byte that it sends: twice
where it adds (its own data and what it received), once where it forwards. What it takes, computing does not
have. ACE (Rashidi et al., ISCA 2021) moves this into an engine beside the network interface: buffers are
read once into its SRAM and written back once, whatever is sent in between. An `Endpoint` is one such
configuration; the five of the paper are in `ENDPOINTS`. Every figure is a field, so that one can be changed
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from weft import limits
from weft.errors import InputError, look_up

if TYPE_CHECKING:
    from weft.training.devices import Device

_GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class EndpointEngine:
    """An engine that carries out collectives by itself, chunk by chunk, from a memory of its own.

    Parameters
    ----------
    sram_bytes
        Its memory, divided among the phases of a collective and the results that wait to be written back.
    fsms
        State machines; each takes one chunk at a time through all its phases.
    partitions
        How the memory is divided: by how long a chunk stays in a phase times its bytes there (``stay``), or
        by the bandwidth of the phase times these bytes (``bandwidth``), the paper's rule as recalled.
    alus, alu_bytes, clock_hz
        Units that add, bytes that each adds in a cycle, and cycles per second.
    """

    sram_bytes: int = 4 << 20
    fsms: int = 16
    alus: int = 4
    alu_bytes: int = 64
    clock_hz: int = 1_245_000_000
    partitions: Literal["stay", "bandwidth"] = "stay"

    def __post_init__(self) -> None:
        if min(self.sram_bytes, self.fsms, self.alus, self.alu_bytes, self.clock_hz) < 1:
            raise InputError(f"{self}: every figure is at least 1")
        limits.check("SRAM of an engine", self.sram_bytes, limits.MAX_SIZE_BYTES)
        limits.check("state machines of an engine", self.fsms, limits.MAX_SEGMENTS)

    @property
    def adding_bandwidth(self) -> int:
        """Bytes per second that its units add."""
        return self.alus * self.alu_bytes * self.clock_hz


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How collectives are carried out at a rank.

    Parameters
    ----------
    name, summary
        For people.
    processors
        Of the device's units, how many communicate instead of computing.
    memory_bandwidth
        Bytes per second that communication may read and computing then lacks; None if it needs none.
    copy_reads, reduce_reads
        Bytes read for each byte sent: where the receiver copies, and where it adds. An engine reads each
        byte of a buffer once instead.
    overlaps
        Whether it communicates while the rank computes.
    engine
        Carries collectives out in place of the processors.
    chunk_bytes
        Buffers are cut into chunks that follow one another through the network; None leaves them whole.
    message_bytes
        What a chunk of an all-to-all has at least for each rank.
    processor_bandwidth
        Bytes per second that one processor can read for communication.
    bus_bandwidth
        Bytes per second between memory and network, each way.
    only_while_sending
        Whether computing lacks processors and memory bandwidth only while a collective is under way at its
        rank. By default they are set aside all the time, as the paper's configurations have it.
    """

    name: str
    summary: str
    processors: int = 0
    memory_bandwidth: int | None = None
    copy_reads: Fraction = Fraction(1)
    reduce_reads: Fraction = Fraction(2)
    overlaps: bool = True
    engine: EndpointEngine | None = None
    chunk_bytes: int | None = 64 << 10
    message_bytes: int = 8 << 10
    processor_bandwidth: int = 64 * 1_245_000_000
    bus_bandwidth: int = 500 * _GB
    only_while_sending: bool = False

    def __post_init__(self) -> None:
        speeds = (self.processor_bandwidth, self.bus_bandwidth, self.memory_bandwidth or 1)
        if self.processors < 0 or min(speeds) < 1 or min(self.copy_reads, self.reduce_reads) < 0:
            raise InputError(f"endpoint {self.name}: speeds are at least 1, processors and reads at least 0")
        if self.message_bytes < 1 or (self.chunk_bytes is not None and self.chunk_bytes < 1):
            sizes = f"chunks of {self.chunk_bytes} bytes, messages of {self.message_bytes}"
            raise InputError(f"endpoint {self.name}: {sizes}; they have at least 1")
        if self.engine is not None and self.chunk_bytes is None:
            raise InputError(f"endpoint {self.name}: an engine works on chunks; give their size")

    @property
    def read_bandwidth(self) -> int | None:
        """Bytes per second that it reads: what memory gives, and processors can take."""
        if self.memory_bandwidth is None:
            return None
        if self.engine is not None:
            return self.memory_bandwidth
        return min(self.memory_bandwidth, self.processors * self.processor_bandwidth)

    def leaves(self, device: Device) -> Device:
        """What is left of a device for computing.

        Raises
        ------
        InputError
            If nothing is.

        Examples
        --------
        >>> from weft.training.devices import find_device
        >>> find_endpoint("comm-opt").leaves(find_device("ace-npu")).memory_bytes_per_s
        450000000000.0
        """
        if not self.overlaps:
            return device
        taken = (self.memory_bandwidth or 0) / device.memory_bytes_per_s
        compute = 1 - self.processors / device.units
        if taken >= 1 or compute <= 0:
            what = f"{self.processors} of {device.units} processors and {taken:.0%} of the memory bandwidth"
            msg = f"endpoint {self.name} takes {what} of {device.name}: nothing is left to compute with"
            raise InputError(msg)
        return device.share(compute=compute, memory_bandwidth=1 - taken)


ENDPOINTS: Final = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint("free", "costs nothing, and collectives stay whole", chunk_bytes=None),
        Endpoint("ideal", "costs nothing, in chunks: what no engine can beat"),
        Endpoint(
            "no-overlap", "everything communicates, after the backward pass", 80, 900 * _GB, overlaps=False
        ),
        Endpoint("comm-opt", "6 processors and 450 GB/s communicate: the network is filled", 6, 450 * _GB),
        Endpoint(
            "comp-opt", "2 processors and 128 GB/s communicate: little is taken from computing", 2, 128 * _GB
        ),
        Endpoint(
            "ace",
            "an engine with 4 MiB and 16 state machines, which reads 128 GB/s",
            memory_bandwidth=128 * _GB,
            engine=EndpointEngine(),
        ),
    )
}
"""By name; the last five are those of the paper."""

COMPARED: Final = ("no-overlap", "comm-opt", "comp-opt", "ace", "ideal")
"""The five of the paper, in its order: three baselines, the engine, and what no engine can beat."""

WHILE_SENDING: Final = ":while-sending"
"""Behind a name: take from computing only while something is sent."""


def find_endpoint(name: str) -> Endpoint:
    """Give the endpoint of a name; ``:while-sending`` behind it sets `only_while_sending`.

    Raises
    ------
    InputError
        If there is none; says which there are.

    Examples
    --------
    >>> find_endpoint("ace").engine.fsms
    16
    >>> find_endpoint("comm-opt:while-sending").only_while_sending
    True
    """
    if name.endswith(WHILE_SENDING):
        endpoint = look_up("endpoint", name.removesuffix(WHILE_SENDING), ENDPOINTS)
        return replace(endpoint, name=name, only_while_sending=True)
    return look_up("endpoint", name, ENDPOINTS)
