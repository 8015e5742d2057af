"""One function per kind of network; each takes a spec: the numbers of its shape, and its options.

Direct networks number ranks row-major. Switched ones number ranks leaf by leaf. Every cable is drawn forward
link first, and cables in the order of the loops below: link numbers are stable. To add a kind, write its
function here, with its name, an example and its options in the line above it.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weft import limits
from weft.errors import InputError, LimitError, TopologyError
from weft.topology import box_fabrics, gpu_boxes, rated_links, servers
from weft.topology.cable_notes import CableNotes
from weft.topology.full_mesh import DEFAULT_BANDWIDTH, DEFAULT_LATENCY_PS, full_mesh
from weft.topology.graph import Grid, Routing, Topology
from weft.topology.placements import RULES, draw_placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.topology.spec_parser import Spec


_DIMENSION_ORDER: Final = Routing("dimension-order")
_GRID_OPTIONS: Final = "bw, lat, back, links, wrap2"
_HOST_OPTIONS: Final = "bw, lat, intra, intra_lat, uplink, nic, racks, rack_uplink, rack_lat"

Builder: TypeAlias = "Callable[[Spec], Topology]"


class Kind(NamedTuple):
    """One kind of network: what builds it, a shape that is an example, and what it takes after ``@``.

    `boxes` is set for kinds of boxes full of GPUs: it reads how many there are, and what each is made of.
    """

    build: Builder
    example: str
    own_options: str
    boxes: Callable[[Spec], tuple[int, gpu_boxes.BoxParts]] | None = None

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
def ring(spec: Spec) -> Topology:
    """``ring:8``: each rank wired to the next, the last to the first."""
    return _grid(spec, spec.sizes(1, "ring:N"), wrap=True)


@_kind("mesh", "4x4", _GRID_OPTIONS)
def mesh(spec: Spec) -> Topology:
    """``mesh:4x4``, any number of dimensions, no wrap-around."""
    return _grid(spec, spec.shape, wrap=False)


@_kind("torus", "8x8", _GRID_OPTIONS)
def torus(spec: Spec) -> Topology:
    """``torus:4x4x4``, any number of dimensions, wrapped around."""
    return _grid(spec, spec.shape, wrap=True)


@_kind("hypercube", "6", _GRID_OPTIONS)
def hypercube(spec: Spec) -> Topology:
    """``hypercube:6``: 2^6 ranks, wired where their numbers differ in one bit."""
    (dimensions,) = spec.sizes(1, "hypercube:D")
    limits.check(f"{spec.text}: dimensions", dimensions, limits.MAX_DIMENSIONS)
    return _grid(spec, [2] * dimensions, wrap=False)


@_kind("fullmesh", "8", "bw, lat, back, links")
def fullmesh(spec: Spec) -> Topology:
    """``fullmesh:8``: a cable between every two ranks."""
    (ranks,) = spec.sizes(1, "fullmesh:N")
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    back, count = spec.speed("back", speed), spec.count("links", 1)
    return full_mesh(spec.text, ranks, bandwidth=speed, latency_ps=latency, back=back, count=count)


@_kind("switch", "8", "bw, lat, back, links")
def switch(spec: Spec) -> Topology:
    """``switch:8``: ranks on one switch."""
    (ranks,) = spec.sizes(1, "switch:N")
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    back, count = spec.speed("back", speed), spec.count("links", 1)
    wiring = CableNotes.sized(spec.text, ranks, 1, cables=ranks * count)
    for rank in range(ranks):
        wiring.cable(rank, ranks, bandwidth=speed, latency_ps=latency, back=back, count=count)
    return wiring.build(spec.text)


@_kind("fattree", "4,2,8", "bw, lat, uplink, uplinks")
def fattree(spec: Spec) -> Topology:
    """``fattree:L,S,H``: L leaves with H ranks each, S spines; ``fattree:64`` is 8,8,8."""
    form = "fattree:LEAVES,SPINES,RANKS_PER_LEAF"
    if len(spec.shape) == 1:
        side = math.isqrt(spec.shape[0])
        if side * side != spec.shape[0]:
            raise spec.error(f"{spec.shape[0]} is not a square; write {form}")
        leaves, spines, per_leaf = side, side, side
    else:
        leaves, spines, per_leaf = spec.sizes(3, form)
    wiring = _crossed(spec, leaves, per_leaf, range(leaves), range(leaves, leaves + spines))
    return wiring.build(spec.text)


@_kind("bigraph", "4,8", "bw, lat, uplink, uplinks")
def bigraph(spec: Spec) -> Topology:
    """``bigraph:m,n`` (EFLOPS): n switches in two fully wired halves, m ranks on each switch."""
    per_switch, switches = spec.sizes(2, "bigraph:RANKS_PER_SWITCH,SWITCHES")
    if switches % 2:
        raise spec.error(f"BiGraph has two equal halves, so the number of switches ({switches}) must be even")
    half = switches // 2
    wiring = _crossed(spec, switches, per_switch, range(half), range(half, switches))
    return wiring.build(spec.text, routing=Routing("by-switch"))


@_kind("dragonfly", "9,4,2", "bw, lat, local, global")
def dragonfly(spec: Spec) -> Topology:
    """``dragonfly:g,a,h``: g groups of a routers with h ranks each, one cable per two groups."""
    groups, routers, per_router = spec.sizes(3, "dragonfly:GROUPS,ROUTERS,RANKS_PER_ROUTER")
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    local, far = spec.speed("local", speed), spec.speed("global", speed)
    ranks = groups * routers * per_router
    cables = ranks + groups * math.comb(routers, 2) + math.comb(groups, 2)
    wiring = CableNotes.sized(spec.text, ranks, groups * routers, cables=cables)
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
    return wiring.build(spec.text)


@_kind("dragonflyplus", "4,2,2,4", "bw, lat, local, global")
def dragonflyplus(spec: Spec) -> Topology:
    """``dragonflyplus:g,l,s,h``: g groups of l leaves with h ranks each and of s spines."""
    groups, leaves, spines, per_leaf = spec.sizes(4, "dragonflyplus:GROUPS,LEAVES,SPINES,RANKS_PER_LEAF")
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    local, far = spec.speed("local", speed), spec.speed("global", speed)
    ranks, size = groups * leaves * per_leaf, leaves + spines
    limits.check(f"{spec.text}: switches", groups * size, limits.MAX_SWITCHES)
    cables = ranks + groups * leaves * spines + math.comb(groups, 2) * max(spines // max(groups - 1, 1), 1)
    wiring = CableNotes.sized(spec.text, ranks, cables=cables)
    names = [f"leaf{n}" for n in range(leaves)] + [f"spine{n}" for n in range(spines)]
    nodes = [[wiring.named(f"group{group}.{name}") for name in names] for group in range(groups)]
    for rank in range(ranks):
        group, leaf = divmod(rank // per_leaf, leaves)
        wiring.cable(rank, nodes[group][leaf], bandwidth=speed, latency_ps=latency)
    for own in nodes:
        for leaf, spine in product(own[:leaves], own[leaves:]):
            wiring.cable(leaf, spine, bandwidth=local, latency_ps=latency)
    # Every two groups have as many cables as spines allow, at least one, spread evenly over the spines.
    count = max(spines // max(groups - 1, 1), 1)
    for g1, g2 in combinations(range(groups), 2):
        for k in range(count):
            a = nodes[g1][leaves + ((g2 - 1) * count + k) % spines]
            b = nodes[g2][leaves + (g1 * count + k) % spines]
            wiring.cable(a, b, bandwidth=far, latency_ps=latency)
    return wiring.build(spec.text)


@_kind("hosts", "8,4,2", _HOST_OPTIONS)
def hosts(spec: Spec) -> Topology:
    """``hosts:8,4,2``: uneven hosts behind one core switch or in racks, with an uplink or a NIC per rank.

    ``hosts:16x8,4`` has 16 hosts with 8 ranks and one with 4.
    """
    counts: list[int] = []
    for part in spec.parts:
        if len(part) > 2:
            form = "x".join(map(str, part))
            raise spec.error(f"{form}: expected a number of ranks, or HOSTSxRANKS, such as hosts:16x8,4")
        number, ranks = part if len(part) == 2 else (1, part[0])
        limits.check(f"{spec.text}: hosts", len(counts) + number, limits.MAX_SWITCHES)
        counts += [ranks] * number
    return _hosts(spec, counts)


@_kind("cloud", "8x8,24", f"draw, taken, rule, {_HOST_OPTIONS}")
def cloud(spec: Spec) -> Topology:
    """``cloud:8x8,24``: 24 GPUs of a cloud of 8 hosts with 8 each, of which others have taken some."""
    number, gpus, wanted = spec.sizes(3, "cloud:HOSTSxGPUS,WANTED, such as cloud:8x8,24")
    taken = spec.count("taken", number * gpus // 2, least=0)
    rule = spec.choice("rule", RULES, RULES[0])
    draw = spec.count("draw", 0, least=0)
    try:
        counts = draw_placement(number, gpus, wanted, taken=taken, rule=rule, seed=draw)
    except LimitError as error:
        raise LimitError(f"{spec.text}: {error}") from error
    except InputError as error:
        raise spec.error(str(error)) from error
    return _hosts(spec, counts)


@_kind("ace", "4x4x4", _GRID_OPTIONS)
def ace(spec: Spec) -> Topology:
    """Packages of L accelerators, V times H of them on a torus: the platform of the ACE paper.

    Two links of 200 GB/s and 90 cycles within a package, two of 25 GB/s and 500 cycles along either axis
    between packages; a cycle is that of 1.245 GHz.
    """
    return _grid(
        spec,
        spec.sizes(3, "ace:LxVxH, such as ace:4x4x4"),
        wrap=True,
        wrap2="double",
        bandwidths=(200 * 10**9, 25 * 10**9, 25 * 10**9),
        latencies=(72_290, 401_607, 401_607),
    )


_OCS_OPTIONS: Final = "block, bw, lat, ocs_lat"


@_kind("ocs", "4x4x8", _OCS_OPTIONS)
def ocs(spec: Spec) -> Topology:
    """``ocs:4x4x8``: a torus of blocks of 4x4x4 that optical circuit switches join, as in TPU v4 pods.

    A dimension that is a whole number of blocks closes; a smaller slice stays open there. Cables between
    blocks, those that close a dimension among them, have the latency `ocs_lat`.
    """
    return _optical(spec, spec.speed("bw", DEFAULT_BANDWIDTH))


@_kind("tpu-v4", "4x4x4", f"speed, {_OCS_OPTIONS}")
def tpu_v4(spec: Spec) -> Topology:
    """``tpu-v4:4x4x8``: a slice of a TPU v4 pod, 6 links of 50 GB/s for each chip."""
    return _optical(spec, _rated(spec, "bw", rated_links.ICI_V4), dimensions=3)


@_kind("tpu-v5p", "4x4x4", f"speed, {_OCS_OPTIONS}")
def tpu_v5p(spec: Spec) -> Topology:
    """``tpu-v5p:4x4x8``: a slice of a TPU v5p pod, 6 links of 100 GB/s for each chip."""
    return _optical(spec, _rated(spec, "bw", rated_links.ICI_V5P), dimensions=3)


@_kind("trn2", "1", "speed, bw, lat")
def trn2(spec: Spec) -> Topology:
    """``trn2:K``: K instances of 4x4 Trainium2 chips in rings of K; 4 of them are an UltraServer."""
    (instances,) = spec.sizes(1, "trn2:INSTANCES")
    rating = _rating(spec)
    try:
        inside = rated_links.NEURONLINK_INSIDE.rated(rating)
        between = rated_links.NEURONLINK_BETWEEN.rated(rating)
    except TopologyError as error:
        raise spec.error(str(error)) from error
    shape = [4, 4] if instances == 1 else [instances, 4, 4]
    return _grid(spec, shape, wrap=True, bandwidths=(between, inside, inside)[-len(shape) :])


@_kind("spark-ring", "4", "speed, bw, lat")
def spark_ring(spec: Spec) -> Topology:
    """``spark-ring:4``: DGX Sparks, each wired to the next with one of its two ports of 200 Gbit/s."""
    return _grid(
        spec, spec.sizes(1, "spark-ring:N"), wrap=True, bandwidths=(_rated(spec, "bw", rated_links.SPARK),)
    )


@_kind("mac-mesh", "4", "speed, bw, lat")
def mac_mesh(spec: Spec) -> Topology:
    """``mac-mesh:4``: Macs with a Thunderbolt 5 cable of 80 Gbit/s between every two."""
    (ranks,) = spec.sizes(1, "mac-mesh:N")
    speed, latency = _rated(spec, "bw", rated_links.THUNDERBOLT_5), spec.latency()
    wiring = CableNotes.sized(spec.text, ranks, cables=ranks * (ranks - 1) // 2)
    for a, b in combinations(range(ranks), 2):
        wiring.cable(a, b, bandwidth=speed, latency_ps=latency)
    return wiring.build(spec.text)


def _boxes(name: str, parts: gpu_boxes.BoxParts) -> None:
    """List a preset of boxes, ``NAME:K``."""

    def boxes(spec: Spec) -> tuple[int, gpu_boxes.BoxParts]:
        return spec.sizes(1, f"{name}:BOXES")[0], parts

    def build(spec: Spec) -> Topology:
        fabric = spec.choice("fabric", box_fabrics.FABRICS, "rails")
        return box_fabrics.connect(spec, *boxes(spec), fabric=fabric)

    KINDS[name] = Kind(build, "1", box_fabrics.ALL_OPTIONS, boxes)


_boxes("dgx-a100", gpu_boxes.A100_BOX)
_boxes("dgx-h100", gpu_boxes.H100_BOX)
_boxes("dgx-b200", gpu_boxes.B200_BOX)
_boxes("gb200-nvl72", gpu_boxes.GB200_RACK)
_boxes("mi300x", gpu_boxes.MI300X_BOX)

_INSIDE: Final = {"nvswitch": gpu_boxes.H100_BOX, "xgmi": gpu_boxes.MI300X_BOX, "pcie": gpu_boxes.PCIE_BOX}


def _fabric(name: str, example: str) -> None:
    """List a fabric for boxes of any sort, ``NAME:BOXESxGPUS``."""

    def boxes(spec: Spec) -> tuple[int, gpu_boxes.BoxParts]:
        count, gpus = spec.sizes(2, f"{name}:BOXESxGPUS, such as {name}:{example}")
        parts = _INSIDE[spec.choice("inside", gpu_boxes.INSIDES, "nvswitch")]
        limits.check(f"{spec.text}: GPUs of a box", gpus, limits.MAX_GPUS)
        return count, parts if gpus == parts.gpus else parts.with_gpus(gpus)

    def build(spec: Spec) -> Topology:
        return box_fabrics.connect(spec, *boxes(spec), fabric=name)

    options = f"inside, {box_fabrics.FABRIC_OPTIONS}, {gpu_boxes.BOX_OPTIONS}"
    KINDS[name] = Kind(build, example, options, boxes)


_fabric("rails", "4x8")
_fabric("leafspine", "16x8")
_fabric("threetier", "16x8")


def _domain(name: str, parts: gpu_boxes.BoxParts) -> None:
    """List one box alone, ``NAME:GPUS``."""

    def boxes(spec: Spec) -> tuple[int, gpu_boxes.BoxParts]:
        (gpus,) = spec.sizes(1, f"{name}:GPUS")
        limits.check(f"{spec.text}: GPUs", gpus, limits.MAX_NVLINK_GPUS)
        return 1, parts if gpus == parts.gpus else parts.with_gpus(gpus)

    def build(spec: Spec) -> Topology:
        return box_fabrics.connect(spec, *boxes(spec), fabric="rails")

    KINDS[name] = Kind(build, "8", gpu_boxes.BOX_OPTIONS, boxes)


_domain("nvlink", gpu_boxes.H100_BOX)
_domain("xgmi", gpu_boxes.MI300X_BOX)
_domain("pcie", gpu_boxes.PCIE_BOX)

KINDS["servers"] = Kind(
    servers.from_spec,
    "4x8",
    "nics, nic_at, switches, pcie, pcie_lat, root, fabric, leaves, spines, bw, lat, uplink, uplinks",
)


def _rating(spec: Spec) -> str:
    return spec.choice("speed", rated_links.RATINGS, "nominal")


def _rated(spec: Spec, name: str, link: rated_links.LinkSpeed) -> int:
    """Speed that an option gives, else that of a known link, nominal or effective as ``speed`` says."""
    rating = _rating(spec)
    if name in spec.values:
        return spec.speed(name, 0)
    try:
        return link.rated(rating)
    except TopologyError as error:
        raise spec.error(str(error)) from error


def _optical(spec: Spec, speed: int, dimensions: int | None = None) -> Topology:
    """A grid of blocks; what leaves a block goes through an optical circuit switch."""
    if dimensions is not None:
        spec.sizes(dimensions, "x".join("ABC"[:dimensions]) + ", such as 4x4x8")
    limits.check(f"{spec.text}: dimensions", len(spec.shape), limits.MAX_DIMENSIONS)
    block, latency = spec.count("block", 4, least=2), spec.latency()
    ocs_latency = spec.latency("ocs_lat", latency)
    closed = tuple(size % block == 0 and size > 2 for size in spec.shape)
    grid, ranks = Grid(tuple(spec.shape), closed), math.prod(spec.shape)
    wiring = CableNotes.sized(spec.text, ranks, cables=ranks * len(spec.shape))
    for rank in range(ranks):
        here = grid.coordinates(rank)
        for axis in reversed(range(len(spec.shape))):
            if here[axis] + 1 == spec.shape[axis] and not closed[axis]:
                continue
            following = grid.rank([*here[:axis], here[axis] + 1, *here[axis + 1 :]])
            outside = (here[axis] + 1) % block == 0
            wiring.cable(rank, following, bandwidth=speed, latency_ps=ocs_latency if outside else latency)
    return wiring.build(spec.text, grid=grid, routing=_DIMENSION_ORDER)


def _crossed(spec: Spec, carriers: int, per_switch: int, lower: range, upper: range) -> CableNotes:
    """Ranks on the first switches, so many on each, and cables from each lower switch to each upper one."""
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    uplink, uplinks = spec.speed("uplink", speed), spec.count("uplinks", 1)
    ranks, cables = carriers * per_switch, len(lower) * len(upper) * uplinks
    wiring = CableNotes.sized(spec.text, ranks, upper.stop, cables=ranks + cables)
    for rank in range(ranks):
        wiring.cable(rank, wiring.switch(rank // per_switch), bandwidth=speed, latency_ps=latency)
    for low, high in product(lower, upper):
        a, b = wiring.switch(low), wiring.switch(high)
        wiring.cable(a, b, bandwidth=uplink, latency_ps=latency, count=uplinks)
    return wiring


def _grid(
    spec: Spec,
    shape: list[int],
    *,
    wrap: bool,
    wrap2: str = "single",
    bandwidths: Sequence[int] = (DEFAULT_BANDWIDTH,),
    latencies: Sequence[int] = (DEFAULT_LATENCY_PS,),
) -> Topology:
    limits.check(f"{spec.text}: dimensions", len(shape), limits.MAX_DIMENSIONS)
    speeds = spec.speeds("bw", bandwidths, len(shape), "dimensions")
    back = spec.speeds("back", [0], len(shape), "dimensions")
    latencies = spec.latencies(latencies, len(shape), "dimensions")
    kinds = [
        {"bandwidth": speed, "back": other or speed, "latency_ps": latency}
        for speed, other, latency in zip(speeds, back, latencies, strict=True)
    ]
    count = spec.count("links", 1)
    double = spec.choice("wrap2", ("single", "double"), wrap2) == "double"
    closed = tuple(wrap and (size > 2 or (size == 2 and double)) for size in shape)
    grid = Grid(tuple(shape), closed)
    ranks = math.prod(shape)
    cables = sum(ranks - (0 if wraps else ranks // size) for size, wraps in zip(shape, closed, strict=True))
    wiring = CableNotes.sized(spec.text, ranks, cables=cables * count)
    for rank in range(wiring.ranks):
        here = grid.coordinates(rank)
        for axis in reversed(range(len(shape))):
            if here[axis] + 1 == shape[axis] and not closed[axis]:
                continue
            following = grid.rank([*here[:axis], here[axis] + 1, *here[axis + 1 :]])
            wiring.cable(rank, following, **kinds[axis], count=count)
    return wiring.build(spec.text, grid=grid, routing=_DIMENSION_ORDER)


def _hosts(spec: Spec, counts: Sequence[int]) -> Topology:
    """Hosts with so many ranks each; one without any is left out, and so is a rack without hosts."""
    speed, latency = spec.speed("bw", DEFAULT_BANDWIDTH), spec.latency()
    intra = spec.speeds("intra", [speed], len(counts), "hosts")
    intra_latency = spec.latency("intra_lat", latency)
    per_rank = "nic" in spec.values
    if per_rank and "uplink" in spec.values:
        problem = "nic gives every rank a cable of its own, uplink one to every host; give one of them"
        raise spec.error(problem)
    outside = spec.speeds("nic" if per_rank else "uplink", [speed], len(counts), "hosts")
    rack_of, rack_speeds, rack_latency = _racks(spec, len(counts), speed, latency)
    given = [host for host, count in enumerate(counts) if count]
    # A rank with a NIC of its own needs no switch to itself.
    inside = [host for host in given if counts[host] > 1 or not per_rank]
    racks = sorted({rack_of[host] for host in given})
    racks = racks if len(racks) > 1 else []
    ranks, switches = sum(counts), len(inside) + len(racks) + 1
    wiring = CableNotes.sized(spec.text, ranks, switches, cables=2 * ranks + len(given) + len(racks))
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
    return wiring.build(spec.text, hosts=tuple(members))


def _racks(spec: Spec, hosts: int, speed: int, latency: int) -> tuple[list[int], list[int], int]:
    """Rack of each host, speed of each rack's uplink, and the latency of these."""
    if "racks" not in spec.values:
        for name in ("rack_uplink", "rack_lat"):
            if name in spec.values:
                raise spec.error(f"{name} is for racks; say how many hosts each has, such as racks=2/1")
        return [0] * hosts, [speed], latency
    text = spec.values["racks"]
    sizes = spec.division("racks", hosts, "hosts")
    if len(sizes) == 1:
        problem = f"racks={text} puts all hosts ({hosts}) into one rack, and nothing connects a single rack"
        raise spec.error(f"{problem}; racks says how many hosts each has, such as racks=1 or racks=2/1")
    rack_of = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    speeds = spec.speeds("rack_uplink", [speed], len(sizes), "racks")
    return rack_of, speeds, spec.latency("rack_lat", latency)
