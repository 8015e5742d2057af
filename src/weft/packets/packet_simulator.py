"""Tables carried out packet by packet, on hardware that is described to the flit.

docs/packets.md has the rules. The C++ half is ``cpp/packets/packet_simulator.cpp``, which executes tables,
with ``cpp/packets/packet_network.cpp``, which moves packets.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft import _core, limits, units
from weft.errors import InputError, LimitError, SimulationError, check_choice
from weft.notebook_display import ShortRepr
from weft.packets.engine_input import Program
from weft.packets.hardware import Hardware, find_hardware
from weft.packets.network_channels import Channels, Ways, make_channels
from weft.packets.simulation_work import estimate_preparation, estimate_run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.packets.table import Tables

FLOW_CONTROLS: Final = ("packet", "message")
DETAILS: Final = ("flit", "packet", "message")

_FLIT_BY_FLIT: Final = -1
_PIECES: Final = 64
"""Units of a message at the detail of messages: as many as a fiftieth of the time allows for.

Results move with it, up and down: for MultiTree's 64 MiB on an 8x8 torus, 56 to 100 units gave -6 to +1 % of
the time by packets under message flow control, and -14 to -3 % under packet flow control.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """How interfaces and routers go about tables.

    Parameters
    ----------
    flow_control
        ``"packet"``: every packet has a head. ``"message"``: the first of a message has, the others follow it
        through the same virtual channels.
    strict
        A step begins when all ports of the rank are free.
    prioritised
        Where packets meet, the earlier step goes first.
    lockstep
        NOPs take the estimated time of a step; otherwise none.
    """

    flow_control: str = "packet"
    strict: bool = False
    prioritised: bool = False
    lockstep: bool = False

    def __post_init__(self) -> None:
        check_choice("flow control", self.flow_control, FLOW_CONTROLS)


CODESIGNED: Final = Rules("message", strict=True, lockstep=True)
"""MultiTree's interface with its own flow control; the authors' arbiters know no priority either."""


_COUNTED: Final = ("time_ps", "quiet_ps", "packets", "flits", "most_flits", "buffer_flits", "credit_share")
_WORK: Final = ("units", "events")
_FOUND: Final = (*_COUNTED, *_WORK, "rank_finish_ps")
"""Fields of a result that the engine gives as they are."""

_DERIVED: Final = ("seconds", "cycles", "total_cycles", "algbw_GBps", "head_flits", "head_overhead")
_NUMBERS: Final = (*_DERIVED, *_COUNTED, *_WORK)
"""Fields and properties of a result that are numbers of its document."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PacketResult(ShortRepr):
    """Times of one run.

    Parameters
    ----------
    tables, hardware, rules, detail
        What ran, on what, how.
    time_ps
        When the last message had come and was added.
    quiet_ps
        When the last credit was back as well.
    packets, flits
        Sent, in all.
    units, events
        How much work the engine had.
    most_flits, buffer_flits
        Most that any virtual channel ever held, and how many have room.
    credit_share
        How much of the time credits let one message at a time keep the longest link that was used busy.
    link_busy_ps, port_busy_ps
        How long each link and each port was occupied.
    rank_finish_ps
        When each rank had all its messages.
    cpu_seconds
        What the simulation cost.
    """

    tables: Tables
    hardware: Hardware
    rules: Rules
    detail: str
    time_ps: int
    quiet_ps: int
    packets: int
    flits: int
    units: int
    events: int
    most_flits: int
    buffer_flits: int
    credit_share: float
    link_busy_ps: NDArray[np.int64]
    port_busy_ps: NDArray[np.int64]
    rank_finish_ps: NDArray[np.int64]
    cpu_seconds: float

    @property
    def seconds(self) -> float:
        """Time of the whole collective."""
        return self.time_ps / units.PS_PER_S

    @property
    def cycles(self) -> int:
        """The same in cycles of the hardware."""
        return -(-self.time_ps // self.hardware.cycle_ps)

    @property
    def total_cycles(self) -> int:
        """Until the network is quiet, as cycle-level simulators count."""
        return -(-self.quiet_ps // self.hardware.cycle_ps)

    @property
    def algbw_GBps(self) -> float:
        """Buffer size over time, in 10^9 bytes per second."""
        return self.tables.size_bytes / self.seconds / 1e9 if self.time_ps else 0.0

    @property
    def head_flits(self) -> int:
        """Flits that are heads."""
        per_message = self.rules.flow_control == "message"
        return self.hardware.head_flits * (self.tables.messages if per_message else self.packets)

    @property
    def head_overhead(self) -> float:
        """Flits that are heads, over the others."""
        heads = self.head_flits
        return heads / (self.flits - heads) if self.flits > heads else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft packets --json`` prints."""
        out, into = self.port_busy_ps.reshape(2, -1).tolist()
        return {
            **self.tables.to_dict(),
            "hardware": self.hardware.name,
            **asdict(self.rules),
            "detail": self.detail,
            **{name: getattr(self, name) for name in _NUMBERS},
            "simulation_seconds": self.cpu_seconds,
            "rank_finish_ps": self.rank_finish_ps.tolist(),
            "link_busy_ps": self.link_busy_ps.tolist(),
            "port_out_busy_ps": out,
            "port_in_busy_ps": into,
        }


def simulate_tables(
    tables: Tables,
    *,
    hardware: str | Hardware = "multitree-isca21",
    rules: Rules | None = None,
    detail: str = "packet",
    max_work: float | None = limits.MAX_PACKET_WORK,
) -> PacketResult:
    """Let every rank's interface carry out its table.

    Parameters
    ----------
    tables
        From `make_tables`, or read from a file: nothing else is needed of the schedule.
    hardware
        One of `PRESETS`, or of your own making.
    rules
        How interfaces and routers go about it.
    detail
        ``"packet"`` moves packets one by one; ``"message"`` moves messages in at most 64 units each, by the
        same rules: many times faster for large buffers, and less exact. ``"flit"`` moves flits cycle by
        cycle, with the allocators of routers: slower, and the most exact (docs/packets.md).
    max_work
        Operations that it may take, by an estimate that is made first; None for any number. What packets wait
        for is counted as they go.

    Raises
    ------
    SimulationError
        If a message never arrives; names it and the channel it waits for.
    LimitError
        If it takes too many events or too long, or would take more operations than `max_work`.
    InputError
        If flits are to move one by one on links where they do not take whole cycles, or by priority.

    Examples
    --------
    >>> import weft
    >>> from weft.packets import make_tables
    >>> torus = weft.load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    >>> ring = weft.algorithms.ring.all_reduce(torus)
    >>> simulate_tables(make_tables(ring, "32KiB")).total_cycles
    9345
    """
    began = time.process_time()
    found_hardware = find_hardware(hardware) if isinstance(hardware, str) else hardware
    check_choice("detail", detail, DETAILS)
    rules = rules or Rules()
    found, program = _run(tables, found_hardware, rules, detail, max_work)
    if found["stuck_entry"] >= 0 or found["stuck_send"] >= 0:
        raise SimulationError(_stuck(tables, program, found))
    busy = found["channel_busy_ps"]
    links = tables.topology.links
    return PacketResult(
        tables=tables,
        hardware=found_hardware,
        rules=rules,
        detail=detail,
        link_busy_ps=busy[:links],
        port_busy_ps=busy[links:],
        cpu_seconds=time.process_time() - began,
        **{name: found[name] for name in _FOUND},
    )


class _Network(NamedTuple):
    """Channels and ways of a topology, and what follows from the hardware for them."""

    channels: Channels
    ways: Ways
    switched: bool
    router_ps: int
    round_trip_ps: NDArray[np.int64]
    buffer_flits: int


def _lay_out(tables: Tables, hardware: Hardware) -> _Network:
    topology = tables.topology
    buffers = (topology.links + 2 * topology.ranks * tables.ports) * hardware.virtual_channels
    what = f"{topology.name}: virtual channels of all links and ports"
    limits.check(what, buffers, limits.MAX_VIRTUAL_BUFFERS)
    channels = make_channels(topology, hardware, tables.ports)
    switched = not bool(channels.routers.all())
    router_ps = (hardware.switch_cycles if switched else hardware.router_cycles) * hardware.cycle_ps
    trips = 2 * channels.latency_ps + router_ps + hardware.credit_cycles * hardware.cycle_ps
    buffer_flits = hardware.buffer_flits or int((-(-trips // channels.flit_ps)).max()) + hardware.packet_flits
    ways = Ways(topology, channels, hardware.virtual_channels)
    return _Network(channels, ways, switched, router_ps, trips, buffer_flits)


def _run(
    tables: Tables, hardware: Hardware, rules: Rules, detail: str, max_work: float | None
) -> tuple[dict[str, Any], Program]:
    name = f"{tables.algorithm} on {tables.topology.name}"
    title = f"packets of {name}"
    limits.check_work(title, estimate_preparation(tables), max_work)
    network = _lay_out(tables, hardware)
    channels = network.channels
    program = Program(tables, hardware, network.ways)
    biggest = max((entry.size_bytes for entry in tables.all_entries()), default=0)
    slowest = max(int(channels.flit_ps.max()), hardware.cycle_ps)
    if max(hardware.flits(biggest) * slowest, hardware.aggregate_ps(biggest)) > limits.MAX_TIME_PS:
        raise limits.too_long(name)
    if detail == "flit":
        _check_cycles(name, channels, hardware)
    pieces = {"flit": _FLIT_BY_FLIT, "packet": 0, "message": _PIECES}[detail]
    columns, paths = program.table_columns(), network.ways.columns()
    # By flits, each unit that passes a channel is one.
    unit_bytes = hardware.flit_bytes if detail == "flit" else hardware.payload_bytes
    limits.check_work(title, estimate_run(columns | paths, unit_bytes, max(pieces, 0)), max_work)
    try:
        found = _core.execute_tables(
            _core.TableColumns(**columns),
            _core.ChannelColumns(
                **paths,
                flit_ps=channels.flit_ps,
                latency_ps=channels.latency_ps,
                inject=channels.inject,
                eject=channels.eject,
                virtual_channels=hardware.virtual_channels,
                classes=network.ways.classes,
                buffer_flits=network.buffer_flits,
                router_ps=network.router_ps,
                credit_ps=hardware.credit_cycles * hardware.cycle_ps,
            ),
            _packet_form(hardware, rules),
            _simulation_rules(tables, hardware, rules, biggest, network.switched, max_work),
            pieces,
        )
    except OverflowError as error:
        raise limits.too_long(name) from error
    except _core.TooMany as error:
        if str(error) == "operations":
            raise limits.too_much_work(title, max_work) from error
        msg = f"more than {limits.MAX_PACKET_EVENTS:,} {error}; use detail='message' or a smaller buffer"
        raise LimitError(f"{name}: {msg}") from error
    found["buffer_flits"] = network.buffer_flits
    found["credit_share"] = _credit_share(network, hardware, rules, found["channel_busy_ps"])
    return found, program


def _check_cycles(name: str, channels: Channels, hardware: Hardware) -> None:
    """Refuse links on which a flit or its way does not take whole cycles."""
    for what, times in (("a flit", channels.flit_ps), ("the way of a flit", channels.latency_ps)):
        odd = times[times % hardware.cycle_ps != 0]
        if odd.size:
            took = f"{what} takes {units.format_time(int(odd[0]))} there"
            cycle = units.format_time(hardware.cycle_ps)
            raise InputError(f"{name}: {took}, no whole number of cycles of {cycle}; use detail='packet'")


def _packet_form(hardware: Hardware, rules: Rules) -> _core.PacketForm:
    """The form of packets, as the engine takes it."""
    return _core.PacketForm(
        flit_bytes=hardware.flit_bytes,
        payload_bytes=hardware.payload_bytes,
        head_flits=hardware.head_flits,
        head_per_message=rules.flow_control == "message",
        padded=hardware.padded,
    )


def _simulation_rules(
    tables: Tables, hardware: Hardware, rules: Rules, biggest: int, switched: bool, max_work: float | None
) -> _core.ExecutionRules:
    """The rules of the network interfaces and the limits of a run, as the engine takes them.

    Parameters
    ----------
    tables, hardware, rules
        The tables, and the hardware and the rules by which they are executed.
    biggest
        Bytes of the largest message.
    switched
        Whether some ranks have only links to switches.
    max_work
        The most operations of the run; None: any number.
    """
    return _core.ExecutionRules(
        ports=tables.ports,
        cycle_ps=hardware.cycle_ps,
        queue_packets=hardware.queue_packets,
        queue_flits=hardware.switched_queue_flits if switched else hardware.queue_flits,
        send_cycles=hardware.send_cycles,
        receive_cycles=hardware.receive_cycles,
        nop_ps=hardware.step_ps(biggest, rules.flow_control) if rules.lockstep else 0,
        strict=rules.strict,
        prioritised=rules.prioritised,
        max_time_ps=limits.MAX_TIME_PS,
        max_events=limits.MAX_PACKET_EVENTS,
        max_work=math.inf if max_work is None else max_work,
    )


def _credit_share(network: _Network, hardware: Hardware, rules: Rules, busy_ps: NDArray[np.int64]) -> float:
    """How much of the time credits let one message at a time keep the longest link that was used busy."""
    own = 1 if rules.flow_control == "message" else hardware.virtual_channels // network.ways.classes
    whole = -(-network.buffer_flits // hardware.packet_flits) * hardware.packet_flits
    used = (network.round_trip_ps / network.channels.flit_ps)[busy_ps > 0]
    return min(1.0, own * whole / float(used.max())) if used.size else 1.0


def _stuck(tables: Tables, program: Program, found: dict[str, Any]) -> str:
    topology = tables.topology
    if found["stuck_send"] >= 0:
        rank, entry, number = program.sends[found["stuck_send"]]
        channel = found["stuck_channel"]
        where = "a port" if not 0 <= channel < topology.links else f"link {topology.link_name(channel)}"
        what = f"{entry.op} {entry.flow} from rank {rank} to {entry.sends[number].dst}, step {entry.step},"
        why = "a deadlock, buffers are taken in a circle; more virtual channels or another algorithm may help"
        return f"{tables.algorithm}: no progress; {what} waits for {where}: {why}"
    rank, entry = program.entries[found["stuck_entry"]]
    waits = ", ".join(f"{op} {flow} of rank {src}" for op, flow, src in entry.after[:3])
    who = f"rank {rank}, step {entry.step}, {entry.op} {entry.flow}"
    return f"{tables.algorithm}: no progress; {who} waits for {waits}"
