"""One function per kind of network; each takes the numbers of a spec's shape and its options.

Direct networks number ranks row-major. Switched ones number ranks leaf by leaf. Every cable is drawn forward
link first, and cables in the order of the loops below: link numbers are stable. To add a kind, write its
function here, with its name, an example and its options in the line above it.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weft import limits
from weft.errors import InputError, LimitError, TopologyError
from weft.topology import servers
from weft.topology.cable_notes import CableNotes
from weft.topology.graph import Grid, Routing, Topology
from weft.topology.placements import RULES, draw_placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.topology.spec_parser import SpecOptions

DEFAULT_BANDWIDTH: Final = 25 * 10**9
DEFAULT_LATENCY_PS: Final = 10**6

_DIMENSION_ORDER: Final = Routing("dimension-order")
_GRID_OPTIONS: Final = "bw, lat, back, links, wrap2"
_HOST_OPTIONS: Final = "bw, lat, intra, intra_lat, uplink, nic, racks, rack_uplink, rack_lat"

Builder: TypeAlias = "Callable[[str, list[int], SpecOptions], Topology]"


class Kind(NamedTuple):
    """One kind of network: what builds it, a shape that is an example, and what it takes after ``@``."""

    build: Builder
    example: str
    own_options: str

    @property
    def options(self) -> str:
        """Names of all options, for error messages and help."""
        return f"{self.own_options}, routing, seed"


KINDS: Final[dict[str, Kind]] = {}
"""By the name before the colon of a spec, in the order in which they are listed for people."""


def _kind(name: str, example: str, options: str) -> Callable[[Builder], Builder]:
    """List a builder in `KINDS`."""

    def enter(build: Builder) -> Builder:
        KINDS[name] = Kind(build, example, options)
        return build

    return enter


@_kind("ring", "8", _GRID_OPTIONS)
def ring(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``ring:8``: each rank wired to the next, the last to the first."""
    (ranks,) = _take_shape(spec, shape, 1, "ring:N")
    return _grid(spec, [ranks], options, wrap=True)


@_kind("mesh", "4x4", _GRID_OPTIONS)
def mesh(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``mesh:4x4``, any number of dimensions, no wrap-around."""
    return _grid(spec, shape, options, wrap=False)


@_kind("torus", "8x8", _GRID_OPTIONS)
def torus(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``torus:4x4x4``, any number of dimensions, wrapped around."""
    return _grid(spec, shape, options, wrap=True)


@_kind("hypercube", "6", _GRID_OPTIONS)
def hypercube(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``hypercube:6``: 2^6 ranks, wired where their numbers differ in one bit."""
    (dimensions,) = _take_shape(spec, shape, 1, "hypercube:D")
    limits.check(f"{spec}: dimensions", dimensions, limits.MAX_DIMENSIONS)
    return _grid(spec, [2] * dimensions, options, wrap=False)


@_kind("fullmesh", "8", "bw, lat, back, links")
def fullmesh(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``fullmesh:8``: a cable between every two ranks."""
    (ranks,) = _take_shape(spec, shape, 1, "fullmesh:N")
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    back, count = options.speed("back", speed), options.count("links", 1)
    wiring = _wiring(spec, ranks, cables=ranks * (ranks - 1) // 2 * count)
    for a, b in combinations(range(ranks), 2):
        wiring.cable(a, b, bandwidth=speed, latency_ps=latency, back=back, count=count)
    return wiring.build(spec)


@_kind("switch", "8", "bw, lat, back, links")
def switch(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``switch:8``: ranks on one switch."""
    (ranks,) = _take_shape(spec, shape, 1, "switch:N")
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    back, count = options.speed("back", speed), options.count("links", 1)
    wiring = _wiring(spec, ranks, 1, cables=ranks * count)
    for rank in range(ranks):
        wiring.cable(rank, ranks, bandwidth=speed, latency_ps=latency, back=back, count=count)
    return wiring.build(spec)


@_kind("fattree", "4,2,8", "bw, lat, uplink, uplinks")
def fattree(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``fattree:L,S,H``: L leaves with H ranks each, S spines; ``fattree:64`` is 8,8,8."""
    if len(shape) == 1:
        side = math.isqrt(shape[0])
        if side * side != shape[0]:
            msg = f"{spec}: {shape[0]} is not a square; write fattree:LEAVES,SPINES,RANKS_PER_LEAF"
            raise TopologyError(msg)
        shape = [side] * 3
    leaves, spines, per_leaf = _take_shape(spec, shape, 3, "fattree:LEAVES,SPINES,RANKS_PER_LEAF")
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    uplink, uplinks = options.speed("uplink", speed), options.count("uplinks", 1)
    ranks = leaves * per_leaf
    wiring = _wiring(spec, ranks, leaves + spines, cables=ranks + leaves * spines * uplinks)
    for rank in range(wiring.ranks):
        wiring.cable(rank, wiring.switch(rank // per_leaf), bandwidth=speed, latency_ps=latency)
    for leaf in range(leaves):
        for spine in range(spines):
            a, b = wiring.switch(leaf), wiring.switch(leaves + spine)
            wiring.cable(a, b, bandwidth=uplink, latency_ps=latency, count=uplinks)
    return wiring.build(spec)


@_kind("bigraph", "4,8", "bw, lat, uplink, uplinks")
def bigraph(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``bigraph:m,n`` (EFLOPS): n switches in two fully wired halves, m ranks on each switch."""
    per_switch, switches = _take_shape(spec, shape, 2, "bigraph:RANKS_PER_SWITCH,SWITCHES")
    if switches % 2:
        msg = f"{spec}: BiGraph has two equal halves, so the number of switches ({switches}) must be even"
        raise TopologyError(msg)
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    uplink, uplinks = options.speed("uplink", speed), options.count("uplinks", 1)
    half = switches // 2
    ranks = per_switch * switches
    wiring = _wiring(spec, ranks, switches, cables=ranks + half * half * uplinks)
    for rank in range(wiring.ranks):
        wiring.cable(rank, wiring.switch(rank // per_switch), bandwidth=speed, latency_ps=latency)
    for upper in range(half):
        for lower in range(half, switches):
            a, b = wiring.switch(upper), wiring.switch(lower)
            wiring.cable(a, b, bandwidth=uplink, latency_ps=latency, count=uplinks)
    return wiring.build(spec, routing=Routing("by-switch"))


@_kind("dragonfly", "9,4,2", "bw, lat, local, global")
def dragonfly(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``dragonfly:g,a,h``: g groups of a routers with h ranks each, one cable per two groups."""
    groups, routers, per_router = _take_shape(spec, shape, 3, "dragonfly:GROUPS,ROUTERS,RANKS_PER_ROUTER")
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    local, far = options.speed("local", speed), options.speed("global", speed)
    ranks = groups * routers * per_router
    cables = ranks + groups * math.comb(routers, 2) + math.comb(groups, 2)
    wiring = _wiring(spec, ranks, groups * routers, cables=cables)
    for rank in range(wiring.ranks):
        wiring.cable(rank, wiring.switch(rank // per_router), bandwidth=speed, latency_ps=latency)
    for group in range(groups):
        for a, b in combinations(range(routers), 2):
            first = wiring.switch(group * routers)
            wiring.cable(first + a, first + b, bandwidth=local, latency_ps=latency)
    for g1, g2 in combinations(range(groups), 2):
        # Group g1 meets its k-th other group at router k mod a, so that cables spread evenly.
        a = wiring.switch(g1 * routers + (g2 - 1) % routers)
        b = wiring.switch(g2 * routers + g1 % routers)
        wiring.cable(a, b, bandwidth=far, latency_ps=latency)
    return wiring.build(spec)


@_kind("dgx-a100", "1", "nvlink, nic, lat, nic_lat")
def dgx_a100(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``dgx-a100:K``: K boxes of 8, NVSwitch 300 GB/s, a 25 GB/s NIC per GPU."""
    return _dgx(spec, shape, options, nvlink=300 * 10**9, nic=25 * 10**9)


@_kind("dgx-h100", "1", "nvlink, nic, lat, nic_lat")
def dgx_h100(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``dgx-h100:K``: K boxes of 8, NVSwitch 450 GB/s, a 50 GB/s NIC per GPU."""
    return _dgx(spec, shape, options, nvlink=450 * 10**9, nic=50 * 10**9)


@_kind("hosts", "8,4,2", _HOST_OPTIONS)
def hosts(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``hosts:8,4,2``: uneven hosts behind one core switch or in racks, with an uplink or a NIC per rank."""
    return _hosts(spec, shape, options)


@_kind("cloud", "8x8,24", f"draw, taken, rule, {_HOST_OPTIONS}")
def cloud(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """``cloud:8x8,24``: 24 GPUs of a cloud of 8 hosts with 8 each, of which others have taken some."""
    number, gpus, wanted = _take_shape(spec, shape, 3, "cloud:HOSTSxGPUS,WANTED, such as cloud:8x8,24")
    taken = options.count("taken", number * gpus // 2, least=0)
    rule = options.choice("rule", RULES, RULES[0])
    draw = options.count("draw", 0, least=0)
    try:
        counts = draw_placement(number, gpus, wanted, taken=taken, rule=rule, seed=draw)
    except LimitError as error:
        raise LimitError(f"{spec}: {error}") from error
    except InputError as error:
        raise TopologyError(f"{spec}: {error}") from error
    return _hosts(spec, counts, options)


@_kind("ace", "4x4x4", _GRID_OPTIONS)
def ace(spec: str, shape: list[int], options: SpecOptions) -> Topology:
    """Packages of L accelerators, V times H of them on a torus: the platform of the ACE paper.

    Two links of 200 GB/s and 90 cycles within a package, two of 25 GB/s and 500 cycles along either axis
    between packages; a cycle is that of 1.245 GHz.
    """
    _take_shape(spec, shape, 3, "ace:LxVxH, such as ace:4x4x4")
    return _grid(
        spec,
        shape,
        options,
        wrap=True,
        wrap2="double",
        bandwidths=(200 * 10**9, 25 * 10**9, 25 * 10**9),
        latencies=(72_290, 401_607, 401_607),
    )


KINDS["servers"] = Kind(
    servers.from_spec,
    "4x8",
    "nics, nic_at, switches, pcie, pcie_lat, root, fabric, leaves, spines, bw, lat, uplink, uplinks",
)


def _take_shape(spec: str, shape: list[int], count: int, form: str) -> list[int]:
    if len(shape) != count:
        msg = f"{spec}: expected {form}"
        raise TopologyError(msg)
    return shape


def _wiring(spec: str, ranks: int, switches: int = 0, *, cables: int) -> CableNotes:
    """Empty wiring for a network whose size is known: too large a one is refused before it is drawn."""
    limits.check(f"{spec}: ranks", ranks, limits.MAX_RANKS)
    limits.check(f"{spec}: switches", switches, limits.MAX_SWITCHES)
    limits.check(f"{spec}: links", 2 * cables, limits.MAX_LINKS)
    return CableNotes(ranks, switches)


def _grid(
    spec: str,
    shape: list[int],
    options: SpecOptions,
    *,
    wrap: bool,
    wrap2: str = "single",
    bandwidths: Sequence[int] = (DEFAULT_BANDWIDTH,),
    latencies: Sequence[int] = (DEFAULT_LATENCY_PS,),
) -> Topology:
    limits.check(f"{spec}: dimensions", len(shape), limits.MAX_DIMENSIONS)
    limits.check(f"{spec}: ranks", math.prod(shape), limits.MAX_RANKS)
    speeds = options.speeds("bw", bandwidths, len(shape), "dimensions")
    back = options.speeds("back", [0], len(shape), "dimensions")
    latencies = options.latencies(latencies, len(shape), "dimensions")
    count = options.count("links", 1)
    double = options.choice("wrap2", ("single", "double"), wrap2) == "double"
    closed = tuple(wrap and (size > 2 or (size == 2 and double)) for size in shape)
    grid = Grid(tuple(shape), closed)
    ranks = math.prod(shape)
    cables = sum(ranks - (0 if wraps else ranks // size) for size, wraps in zip(shape, closed, strict=True))
    wiring = _wiring(spec, ranks, cables=cables * count)
    for rank in range(wiring.ranks):
        here = grid.coordinates(rank)
        for axis in reversed(range(len(shape))):
            if here[axis] + 1 == shape[axis] and not closed[axis]:
                continue
            following = grid.rank([*here[:axis], here[axis] + 1, *here[axis + 1 :]])
            wiring.cable(
                rank,
                following,
                bandwidth=speeds[axis],
                back=back[axis] or speeds[axis],
                latency_ps=latencies[axis],
                count=count,
            )
    return wiring.build(spec, grid=grid, routing=_DIMENSION_ORDER)


def _dgx(spec: str, shape: list[int], options: SpecOptions, *, nvlink: int, nic: int) -> Topology:
    (boxes,) = _take_shape(spec, shape, 1, f"{spec.split(':', maxsplit=1)[0]}:BOXES")
    nvlink, nic = options.speed("nvlink", nvlink), options.speed("nic", nic)
    latency = options.latency()
    nic_latency = options.latency("nic_lat", latency)
    wiring = _wiring(spec, 8 * boxes, boxes + (boxes > 1), cables=16 * boxes)
    for rank in range(wiring.ranks):
        wiring.cable(rank, wiring.switch(rank // 8), bandwidth=nvlink, latency_ps=latency)
    if boxes > 1:
        for rank in range(wiring.ranks):
            wiring.cable(rank, wiring.switch(boxes), bandwidth=nic, latency_ps=nic_latency)
    members = tuple(tuple(range(8 * box, 8 * box + 8)) for box in range(boxes))
    return wiring.build(spec, hosts=members)


def _hosts(spec: str, counts: Sequence[int], options: SpecOptions) -> Topology:
    """Hosts with so many ranks each; one without any is left out, and so is a rack without hosts."""
    speed, latency = options.speed("bw", DEFAULT_BANDWIDTH), options.latency()
    intra = options.speeds("intra", [speed], len(counts), "hosts")
    intra_latency = options.latency("intra_lat", latency)
    per_rank = "nic" in options.values
    if per_rank and "uplink" in options.values:
        msg = f"{spec}: nic gives every rank a cable of its own, uplink one to every host; give one of them"
        raise TopologyError(msg)
    outside = options.speeds("nic" if per_rank else "uplink", [speed], len(counts), "hosts")
    rack_of, rack_speeds, rack_latency = _racks(spec, len(counts), options, speed, latency)
    given = [host for host, count in enumerate(counts) if count]
    # A rank with a NIC of its own needs no switch to itself.
    inside = [host for host in given if counts[host] > 1 or not per_rank]
    racks = sorted({rack_of[host] for host in given})
    racks = racks if len(racks) > 1 else []
    ranks, switches = sum(counts), len(inside) + len(racks) + 1
    wiring = _wiring(spec, ranks, switches, cables=2 * ranks + len(given) + len(racks))
    core = wiring.switch(switches - 1)
    switch_of = {host: wiring.switch(number) for number, host in enumerate(inside)}
    rack_switch = {rack: wiring.switch(len(inside) + number) for number, rack in enumerate(racks)}
    members: list[tuple[int, ...]] = []
    for host in given:
        first = members[-1][-1] + 1 if members else 0
        members.append(tuple(range(first, first + counts[host])))
        for rank in members[-1] if host in switch_of else ():
            wiring.cable(rank, switch_of[host], bandwidth=intra[host], latency_ps=intra_latency)
    for host, own in zip(given, members, strict=True):
        above = rack_switch.get(rack_of[host], core)
        for end in own if per_rank else [switch_of[host]]:
            wiring.cable(end, above, bandwidth=outside[host], latency_ps=latency)
    for rack, end in rack_switch.items():
        wiring.cable(end, core, bandwidth=rack_speeds[rack], latency_ps=rack_latency)
    return wiring.build(spec, hosts=tuple(members))


def _racks(
    spec: str, hosts: int, options: SpecOptions, speed: int, latency: int
) -> tuple[list[int], list[int], int]:
    """Rack of each host, speed of each rack's uplink, and the latency of these."""
    if "racks" not in options.values:
        for name in ("rack_uplink", "rack_lat"):
            if name in options.values:
                msg = f"{spec}: {name} is for racks; say how many hosts each has, such as racks=2/1"
                raise TopologyError(msg)
        return [0] * hosts, [speed], latency
    sizes = options.division("racks", hosts, "hosts")
    rack_of = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    speeds = options.speeds("rack_uplink", [speed], len(sizes), "racks")
    return rack_of, speeds, options.latency("rack_lat", latency)
