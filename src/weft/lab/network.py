"""A blueprint, built: namespaces and shaped cables that are gone again whatever happens.

The settings are those with which real bytes keep to predictions. A bucket that holds little
(`weft.lab.shaping`) and a kernel that hands little to it at a time make queues short; without them a sender
floods its own link, loses packets at it, and slows down more than the link asks for.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.errors import InputError
from weft.lab.blueprint import Blueprint, draw, rank_address, reroute
from weft.lab.iproute import check_rights, execute, find, ip
from weft.lab.namespace_names import find_leftovers, make_folder, new_prefix, remove
from weft.lab.shaping import reshape_cable, shape_cables
from weft.lab.speed_scale import FASTEST, SLOWEST, fit
from weft.runtime.launcher.launch import Seat
from weft.topology import load_topology, save_topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.lab.blueprint import Cable, End, Routes
    from weft.topology import Topology

INTERFACE: Final = "host0"
"""Has the addresses of a host's ranks; a pair of its own, so that it is up without a cable."""

_SETTINGS: Final = {
    "net/ipv4/ip_forward": 1,
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    "net/ipv4/tcp_limit_output_bytes": 32768,
    "net/ipv4/tcp_slow_start_after_idle": 0,
    "net/ipv4/tcp_no_metrics_save": 1,
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv6/conf/all/disable_ipv6": 1,
}
_PACKETS: Final = "gso_max_size 6000 gso_max_segs 4"
_FIRST_TABLE: Final = 1000
_NO_RULES: Final = ("rule flush", "rule add lookup main priority 32766")
"""Before routes that are to stand instead of those so far."""

_PORT: Final = 4000


class Network:
    """An emulated cluster; `build` makes one.

    Parameters
    ----------
    blueprint
        What is built.
    prefix
        Of the names of its namespaces.
    file
        With the topology and the addresses of its cables.
    """

    def __init__(self, blueprint: Blueprint, prefix: str, file: Path) -> None:
        self.blueprint, self._prefix, self.file = blueprint, prefix, file
        self._jobs = 0
        self._cut: list[Cable] = []

    @property
    def topology(self) -> Topology:
        """What is emulated, with the addresses of cables between ranks."""
        return self.blueprint.topology

    def space_name(self, space: int) -> str:
        """Name of a namespace."""
        return f"{self._prefix}-{self.blueprint.spaces[space].name}"

    @property
    def names(self) -> list[str]:
        """The names of all namespaces."""
        return [self.space_name(space) for space in range(len(self.blueprint.spaces))]

    def seats(
        self, order: Sequence[int] | None = None, variables: Mapping[str, str] | None = None
    ) -> list[Seat]:
        """Where the ranks of a job are started, and what each is told; each call is for another job.

        ``WEFT_TOPOLOGY`` names `file`, so that `weft.init` plans for this network.

        Parameters
        ----------
        order
            Which rank of the topology each rank of the job takes the place of.
        variables
            What else all ranks are told.
        """
        blueprint = self.blueprint
        order = range(blueprint.topology.ranks) if order is None else order
        self._jobs += 1
        spaces = [blueprint.space_of[rank] for rank in order]
        common = {
            "WEFT_ADDRESS": rank_address(order[0]),
            "WEFT_PORT": str(_PORT + self._jobs),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            # The cables are slow, and so is what waits in front of them.
            "WEFT_UNSENT": "16KiB",
            "MASTER_ADDR": rank_address(order[0]),
            "MASTER_PORT": str(_PORT - self._jobs),
            "WORLD_SIZE": str(len(order)),
            "WEFT_TOPOLOGY": str(self.file),
        }
        seats = []
        for number, rank in enumerate(order):
            here = spaces[number]
            local = {"RANK": str(spaces[:number].count(here)), "SIZE": str(spaces.count(here))}
            own = {
                "WEFT_INTERFACE": rank_address(rank),
                "WEFT_LOCAL_RANK": local["RANK"],
                "WEFT_LOCAL_SIZE": local["SIZE"],
                "RANK": str(number),
                "LOCAL_RANK": local["RANK"],
                "LOCAL_WORLD_SIZE": local["SIZE"],
            }
            prefix = (find("ip"), "netns", "exec", self.space_name(here))
            told = {**common, **own, **(variables or {})}
            seats.append(Seat(prefix, told, blueprint.spaces[here].name))
        return seats

    def set_speed(self, link: int, bandwidth: int) -> None:
        """Change the speed of a link while it is in use, in bytes per second."""
        if not SLOWEST <= bandwidth <= FASTEST:
            raise InputError(f"{bandwidth} bytes per second: a cable of a lab has {SLOWEST:,} to {FASTEST:,}")
        cable, end = self._find(link)
        reshape_cable(cable, bandwidth, self.space_name(end.space))

    def cut(self, link: int) -> None:
        """Cut the cable of a link, both ways: nothing arrives any more, and nobody is told.

        What goes from rank to rank finds another way, as in a network that routes; what was bound to the
        cable does not.

        Raises
        ------
        DisconnectedError
            If there is no other way; then nothing is cut.
        """
        cable, _ = self._find(link)
        routes = reroute(self.blueprint, [*self._cut, cable])
        self._cut.append(cable)
        for end in cable.ends:
            ip("link", "set", cable.name, "down", space=self.space_name(end.space))
        for space, found in enumerate(routes):
            lines = [*_NO_RULES, *_route_lines(self.blueprint, space, found)]
            ip(lines=lines, space=self.space_name(space))

    def _find(self, link: int) -> tuple[Cable, End]:
        if not 0 <= link < self.topology.links:
            msg = f"there is no link {link}; {self.topology.name} has 0 to {self.topology.links - 1}"
            raise InputError(msg)
        cable = self.blueprint.find_cable(link)
        if cable is None:
            msg = f"link {self.topology.link_name(link)} is inside a host; the lab has no cable for it"
            raise InputError(msg)
        return cable, cable.ends[cable.links.index(link)]


@contextmanager
def build(topology: Topology | str | Path, *, scale: float | None = 1.0) -> Iterator[Network]:
    """Build an emulated cluster, for as long as the block runs.

    What earlier labs left behind because they were killed is removed as well.

    Parameters
    ----------
    topology
        Whatever `weft.load_topology` takes.
    scale
        What to multiply the speeds of all cables with; None for what this machine can emulate, if need be.

    Raises
    ------
    InputError
        Without root, the privileges of root or iproute2, or if the topology has no network.
    RuntimeFailure
        If the kernel refuses.
    """
    blueprint = draw(fit(load_topology(topology), scale)[0])
    check_rights()
    prefix = new_prefix()
    folder = make_folder(prefix)
    network = Network(blueprint, prefix, folder / "topology.toml")
    made: list[str] = []
    try:
        save_topology(blueprint.topology, network.file)
        for name in network.names:
            ip("netns", "add", name)
            made.append(name)
        # Not before: without the privilege to make namespaces, that is what to say, not that old ones stay.
        remove(find_leftovers())
        _wire(network)
        yield network
    finally:
        remove(made)
        shutil.rmtree(folder, ignore_errors=True)


def _wire(network: Network) -> None:
    blueprint = network.blueprint
    for space in range(len(blueprint.spaces)):
        cables = [
            f"link add {cable.name} type veth peer name {cable.name} netns "
            f"{network.space_name(cable.ends[1].space)}"
            for cable in blueprint.cables
            if cable.ends[0].space == space
        ]
        if cables:
            ip(lines=cables, space=network.space_name(space))
    assignments = "; ".join(f"echo {value} > /proc/sys/{name}" for name, value in _SETTINGS.items())
    for space in range(len(blueprint.spaces)):
        name = network.space_name(space)
        execute(name, "sh", "-ec", assignments)
        ip(lines=_addresses(blueprint, space), space=name)
        ip(lines=_route_lines(blueprint, space, blueprint.routes[space]), space=name)
        shape_cables(blueprint, space, name)


def _addresses(blueprint: Blueprint, space: int) -> Iterator[str]:
    yield "link set lo up"
    for cable, end in blueprint.ends_in(space):
        yield f"addr add {end.address}/30 dev {cable.name}"
        yield f"link set {cable.name} {_PACKETS} up"
    if blueprint.spaces[space].ranks:
        yield f"link add {INTERFACE} type veth peer name {INTERFACE}x"
        for rank in blueprint.spaces[space].ranks:
            yield f"addr add {rank_address(rank)}/32 dev {INTERFACE}"
        yield f"link set {INTERFACE}x up"
        yield f"link set {INTERFACE} up"


def _route_lines(blueprint: Blueprint, space: int, routes: Routes) -> Iterator[str]:
    """Routes; from a rank of this space they say which address is its own, for peers that choose none."""
    ranks = blueprint.spaces[space].ranks
    source = f" src {rank_address(ranks[0])}" if ranks else ""
    for target, cable in routes.by_target.items():
        yield f"route replace {rank_address(target)}/32 {_via(blueprint, space, cable)}{source}"
    for cable in sorted({cable for _, _, cable in routes.by_pair}):
        yield f"route replace default {_via(blueprint, space, cable)} table {_FIRST_TABLE + cable}"
    for source_rank, target, cable in routes.by_pair:
        ends = f"from {rank_address(source_rank)} to {rank_address(target)}"
        yield f"rule add {ends} lookup {_FIRST_TABLE + cable}"


def _via(blueprint: Blueprint, space: int, cable: int) -> str:
    one = blueprint.cables[cable]
    return f"via {one.far(space).address} dev {one.name}"
