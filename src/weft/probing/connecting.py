"""The connections that a probe measures over: one for each cable, and between all hosts where that is needed.

A shared subnet is no proof of a cable. Each is tried, and what does not connect is left out and named.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from weft.errors import RuntimeFailure
from weft.probing.flow_rounds import cable_flows
from weft.probing.flows import prepare
from weft.probing.host_addresses import find_cables, own_addresses
from weft.probing.measurements import FABRIC, MeasuredCable, join_all
from weft.runtime.transport.link_connections import ConnectionEnds
from weft.runtime.transport.tcp_connections import (
    ListenAddress,
    PeerConnection,
    connect_peers,
    open_data_listener,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from weft.probing.flows import Connections
    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.transport.tcp_connections import DataListener

CABLE_S: Final = 3.0
"""A cable that has not connected by then is none."""

_FABRIC_LINE: Final = 0


class ProbeConnections:
    """Connections of this rank, and what all ranks know about everybody's.

    Parameters
    ----------
    control_plane
        Everybody.
    hosts
        Ranks of each host; the first of them speaks for it.
    timeout
        Seconds for each step of connecting.
    """

    def __init__(self, control_plane: ControlPlane, hosts: Sequence[Sequence[int]], timeout: float) -> None:
        self.control_plane = control_plane
        self.leaders = [host[0] for host in hosts]
        self.me = self.leaders.index(control_plane.rank) if control_plane.rank in self.leaders else None
        self.connections: Connections = {}
        self.cables: tuple[MeasuredCable, ...] = ()
        self.notes: list[str] = []
        self._timeout = timeout

    def connect(self) -> None:
        """Connect every cable, and all hosts with all if cables do not join them."""
        told = self.control_plane.exchange(msgspec.msgpack.encode(own_addresses()), self._timeout)
        addresses = [msgspec.msgpack.decode(told[rank], type=list[str]) for rank in self.leaders]
        cables = find_cables(addresses)
        with ExitStack() as stack:
            entrance, doors = self._open(cables, stack)
            alive = self._try_cables(cables, entrance, doors)
            self._keep(cables, alive)
            if not self.joined_by_cables:
                self._join_fabric(entrance, doors)
        for connection in self.connections.values():
            prepare(connection)

    @property
    def joined_by_cables(self) -> bool:
        """Whether every host reaches every other over cables."""
        return join_all(len(self.leaders), self.cables)

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            connection.close()

    def _open(
        self, cables: Sequence[MeasuredCable], stack: ExitStack
    ) -> tuple[DataListener | None, list[ListenAddress]]:
        entrance, payload = None, b""
        if self.me is not None:
            own = [cable.address_of(self.me) for cable in cables if self.me in cable.hosts]
            entrance = stack.enter_context(open_data_listener(self.control_plane.address, own, self._timeout))
            payload = msgspec.msgpack.encode(entrance.listens_at)
        told = self.control_plane.exchange(payload, self._timeout)
        nobody = ListenAddress("", 0, b"")
        return entrance, [
            msgspec.msgpack.decode(part, type=ListenAddress) if part else nobody for part in told
        ]

    def _try_cables(
        self, cables: Sequence[MeasuredCable], entrance: DataListener | None, doors: list[ListenAddress]
    ) -> list[dict[int, str]]:
        """What went wrong with which cable, as each rank sees it."""
        problems: dict[int, str] = {}
        # A host that waits for a dead cable must not make its neighbours wait for a good one.
        for meeting in cable_flows(cables):
            for flow in meeting:
                if self.me is None or entrance is None or self.me not in flow[:2] or flow.src > flow.dst:
                    continue
                other = flow.dst if flow.src == self.me else flow.src
                cable = cables[flow.cable]
                line = PeerConnection(self.leaders[other], 1 + flow.cable)
                ends = ConnectionEnds(cable.address_of(self.me), cable.address_of(other))
                try:
                    found = connect_peers(self.control_plane.rank, entrance, doors, {line: ends}, CABLE_S)
                except RuntimeFailure as error:
                    problems[flow.cable] = str(error)
                else:
                    self.connections[other, flow.cable] = found[line]
            self.control_plane.barrier(self._timeout)
        told = self.control_plane.exchange(msgspec.msgpack.encode(problems), self._timeout)
        return [msgspec.msgpack.decode(part, type=dict[int, str]) for part in told]

    def _keep(self, cables: Sequence[MeasuredCable], problems: Sequence[dict[int, str]]) -> None:
        """Number the cables that work anew, and say what is wrong with the others."""
        broken = {number: text for part in problems for number, text in part.items()}
        kept = [number for number in range(len(cables)) if number not in broken]
        before, self.connections = self.connections, {}
        for (other, number), connection in before.items():
            if number in broken:
                connection.close()
            else:
                self.connections[other, kept.index(number)] = connection
        self.cables = tuple(cables[number] for number in kept)
        for number, text in sorted(broken.items()):
            ends = " and ".join(cables[number].addresses)
            self.notes.append(f"{ends} share a subnet, but no connection: {text}")

    def _join_fabric(self, entrance: DataListener | None, doors: list[ListenAddress]) -> None:
        if self.me is None or entrance is None:
            return
        others = [host for host in range(len(self.leaders)) if host != self.me]
        lines = {PeerConnection(self.leaders[host], _FABRIC_LINE): None for host in others}
        found: dict[PeerConnection, socket.socket] = connect_peers(
            self.control_plane.rank, entrance, doors, lines, self._timeout
        )
        for line, connection in found.items():
            self.connections[self.leaders.index(line.rank), FABRIC] = connection
