"""Clusters that are being edited: one for each page that is open, few of them, and none for ever."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from weft import limits, units
from weft.errors import InputError
from weft.reporting.fabric_picture import fabric_section
from weft.reporting.section_kinds import MOST_NAME, MOST_TITLE, cut
from weft.studio.api_bodies import ClusterState, StudioRefusal
from weft.studio.cable_edits import apply_edit, describe_edit
from weft.topology.load import parse_topology
from weft.topology.size_bounds import SizeBounds
from weft.topology.spec_parser import is_spec, parse_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.studio.api_bodies import ClusterBody, EditBody
    from weft.studio.comparison_job import ComparisonJob
    from weft.topology import Topology

IDLE_S: Final = 1800.0
"""A session that nobody asked for in this time is dropped."""

_GIVES_WAY_S: Final = 60.0
"""One that was idle this long gives its place to a new one."""

_MOST_NAMED: Final = 500


@dataclass(frozen=True, slots=True)
class EditedCluster:
    """A cluster and how it came about: a value, so that a thread can describe it while the session goes on.

    Parameters
    ----------
    base
        The cluster before all edits.
    edits
        The edits in the order in which they were made; undoing takes the last one away.
    topology
        The cluster after all edits.
    """

    base: Topology
    edits: tuple[EditBody, ...]
    topology: Topology


@dataclass(eq=False)
class EditSession:
    """One cluster that is edited, and the comparison that runs on it.

    Parameters
    ----------
    key
        The name of the session in addresses; it is random, so that a page does not meet the session of
        another by chance.
    cluster
        The cluster with its edits.
    job
        The last comparison, which an edit cancels.
    used_at
        When somebody last asked for the session.
    lock
        Held while the cluster is changed, so that no edit is made of a cluster that another edit replaces.
    """

    key: str
    cluster: EditedCluster
    job: ComparisonJob | None = None
    used_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def put(self, cluster: EditedCluster) -> None:
        """Take over a cluster; what is compared on the old one is cancelled."""
        self.stop("edited")
        self.cluster = cluster

    def stop(self, reason: str) -> None:
        """Cancel the comparison that runs, if one does."""
        if self.job is not None:
            self.job.cancel(reason)
            self.job = None


def read_cluster(body: ClusterBody, default: Topology) -> Topology:
    """The cluster that a request describes; never one of a file of this machine.

    Raises
    ------
    InputError
        If it describes none, or one that is too large for the studio.
    """
    if body.file is not None:
        if body.topology is not None:
            raise InputError("topology and file exclude each other: give one of them")
        topology = parse_topology(body.file.text, body.file.name)
    elif body.topology is None:
        topology = default
    elif is_spec(body.topology):
        topology = parse_spec(body.topology)
    else:
        raise InputError(f"{body.topology!r} is no spec; a spec looks like torus:8x8, and files are uploaded")
    return check_size(topology)


BOUNDS: Final = SizeBounds(
    ranks=limits.MAX_STUDIO_RANKS, links=limits.MAX_STUDIO_LINKS, place="of a cluster in the studio"
)
"""Of every topology that is built for a request, also of one that only a name describes."""


def check_size(topology: Topology) -> Topology:
    """Return a topology that is small enough for the studio."""
    limits.check("ranks of a cluster in the studio", topology.ranks, limits.MAX_STUDIO_RANKS)
    limits.check("links of a cluster in the studio", topology.links, limits.MAX_STUDIO_LINKS)
    return topology


def apply_edits(base: Topology, edits: Sequence[EditBody]) -> Topology:
    """The cluster after all edits, with a name that says so: a spec where specs can say it."""
    limits.check("edits of a cluster", len(edits), limits.MAX_STUDIO_EDITS)
    topology = base
    for edit in edits:
        topology = apply_edit(topology, edit)
    return replace(topology, name=_edited_name(base.name, edits, topology)) if edits else topology


def _edited_name(name: str, edits: Sequence[EditBody], edited: Topology) -> str:
    """The spec that says the edits, if it describes the very topology that they made; else words."""
    described = f"{name} with {units.count(len(edits), 'edit')}"
    suffix = ""
    for edit in edits:
        cable = f"{edit.a.strip()}-{edit.b.strip()}"
        if edit.action == "cut":
            suffix += f"+fail={cable}"
        elif edit.action == "slow" and edit.bandwidth is not None:
            suffix += f"+speed={cable}:{edit.bandwidth}"
        else:
            return described
    if not is_spec(name) or len(name) + len(suffix) > limits.MAX_SPEC_CHARACTERS:
        return described
    # A file may have any name: also that of a spec of another cluster, or one that no spec has.
    try:
        return name + suffix if parse_spec(name + suffix) == edited else described
    except InputError:
        return described


def describe_cluster(key: str, cluster: EditedCluster) -> ClusterState:
    """What the page shows of the session with this key while it has this cluster."""
    topology = cluster.topology
    fabric = fabric_section(topology)
    ends = None
    if len(fabric.get("lines", ())) == topology.links:
        ends = [
            (topology.node_key(a), topology.node_key(b))
            for a, b in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
        ]
    return ClusterState(
        session=key,
        name=topology.name,
        base=cluster.base.name,
        ranks=topology.ranks,
        switches=topology.switches,
        links=topology.links,
        edits=[cut(describe_edit(edit), MOST_TITLE) for edit in cluster.edits],
        fabric=fabric,
        line_ends=ends,
        node_names=[_short_name(topology, node) for node in range(min(topology.nodes, _MOST_NAMED))],
    )


def _short_name(topology: Topology, node: int) -> str:
    """What a node is called; of one with a long name, its key, which edits take as well."""
    name = topology.node_name(node)
    return name if len(name) <= MOST_NAME else topology.node_key(node)


class SessionTable:
    """All sessions, at most `weft.limits.MAX_STUDIO_SESSIONS`.

    Parameters
    ----------
    clock
        A clock in seconds, which measures how long sessions are idle.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, EditSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, topology: Topology) -> EditSession:
        """Begin a session; one that has been idle gives its place if all are taken.

        Raises
        ------
        StudioRefusal
            If all places are taken by sessions in use.
        """
        self.drop_idle(IDLE_S)
        if len(self._sessions) >= limits.MAX_STUDIO_SESSIONS:
            oldest = min(self._sessions.values(), key=lambda one: one.used_at)
            if self._clock() - oldest.used_at < _GIVES_WAY_S:
                text = f"{len(self._sessions)} sessions are open, which is the most"
                raise StudioRefusal(429, text, "Close a page of the studio, or try again in a minute.")
            self.drop(oldest)
        cluster = EditedCluster(topology, (), topology)
        session = EditSession(secrets.token_urlsafe(12), cluster, used_at=self._clock())
        self._sessions[session.key] = session
        return session

    def find(self, key: str) -> EditSession:
        """The session of a name; asking for it counts as use.

        Raises
        ------
        StudioRefusal
            If there is none.
        """
        session = self._sessions.get(key)
        if session is None:
            raise StudioRefusal(
                404, "there is no such session", "Begin a new one; idle sessions are dropped."
            )
        session.used_at = self._clock()
        return session

    def drop(self, session: EditSession) -> None:
        """End a session and its comparison."""
        session.stop("closed")
        self._sessions.pop(session.key, None)

    def drop_idle(self, idle_s: float) -> None:
        """End those that nobody has used for so many seconds."""
        now = self._clock()
        for session in [one for one in self._sessions.values() if now - one.used_at >= idle_s]:
            self.drop(session)
