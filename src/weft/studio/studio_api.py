"""What the studio answers to requests: one method for each row of the table in `api_routes`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from weft import _core, limits, units
from weft.algorithms import registry
from weft.collective_names import COLLECTIVES
from weft.errors import InputError, look_up
from weft.studio.api_bodies import (
    ClusterBody,
    CompareBody,
    EditBody,
    StudioChoices,
    StudioCounts,
    StudioRefusal,
)
from weft.studio.edit_session import (
    BOUNDS,
    IDLE_S,
    EditedCluster,
    EditSession,
    SessionTable,
    apply_edits,
    check_size,
    describe_cluster,
    read_cluster,
)
from weft.studio.http_connection import REQUEST_S
from weft.topology.size_bounds import lowered_bounds
from weft.topology.toml_file import format_toml

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from weft.studio.comparison_job import ComparisonJob
    from weft.studio.comparison_queue import ComparisonQueue
    from weft.topology import Topology

_Found = TypeVar("_Found")
_CLUSTER_S: Final = 30.0
"""Seconds that reading or changing a cluster may take, waiting included."""


class StudioApi:
    """The state of a studio, and what can be asked of it.

    Parameters
    ----------
    topology
        The cluster that a session begins with, unless it says another.
    queue
        The queue that runs comparisons.
    """

    def __init__(self, topology: Topology, queue: ComparisonQueue) -> None:
        self._default = check_size(topology)
        self._queue = queue
        self._sessions = SessionTable()
        # One thread: clusters are read and drawn beside the loop, which answers meanwhile.
        self._thread = ThreadPoolExecutor(1, "weft-studio")

    def drop_idle(self) -> None:
        """End sessions that nobody uses any more."""
        self._sessions.drop_idle(IDLE_S)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def choices(self, _request: Request) -> Response:
        """What can be chosen."""
        by_collective: dict[str, list[str]] = {
            collective: [line.name for line in registry.ALGORITHMS.values() if collective in line.collectives]
            for collective in COLLECTIVES
        }
        bounds = {
            "body_bytes": limits.MAX_STUDIO_BODY_BYTES,
            "edits": limits.MAX_STUDIO_EDITS,
            "links": limits.MAX_STUDIO_LINKS,
            "ranks": limits.MAX_STUDIO_RANKS,
            "sessions": limits.MAX_STUDIO_SESSIONS,
            "waiting_comparisons": limits.MAX_STUDIO_WAITING,
        }
        return _json(StudioChoices(by_collective, self._default.name, _core.version(), bounds))

    async def counts(self, _request: Request) -> Response:
        """What became of comparisons."""
        queue = self._queue
        running = {"running": queue.running, "waiting": queue.waiting, "refused": queue.refused}
        return _json(
            StudioCounts(accepted=queue.accepted, **queue.outcomes, **running, sessions=len(self._sessions))
        )

    async def open_session(self, request: Request) -> Response:
        """Begin with a cluster."""
        body = await read_body(request, ClusterBody)
        topology = await self._beside(lambda: read_cluster(body, self._default))
        session = self._sessions.open(topology)
        return await self._describe(session.key, session.cluster, 201)

    async def show_session(self, request: Request) -> Response:
        """The cluster as it is now."""
        session = self._session(request)
        return await self._describe(session.key, session.cluster)

    async def close_session(self, request: Request) -> Response:
        """End a session."""
        self._sessions.drop(self._session(request))
        return Response(status_code=204)

    async def replace_cluster(self, request: Request) -> Response:
        """Take another cluster, without edits."""
        session, body = self._session(request), await read_body(request, ClusterBody)
        async with session.lock:
            topology = await self._beside(lambda: read_cluster(body, self._default))
            cluster = EditedCluster(topology, (), topology)
            session.put(cluster)
        return await self._describe(session.key, cluster)

    async def save_cluster(self, request: Request) -> Response:
        """The cluster as a TOML file."""
        topology = self._session(request).cluster.topology
        text = await self._beside(lambda: format_toml(topology))
        return Response(text, headers={"content-disposition": 'attachment; filename="cluster.toml"'},
                        media_type="application/toml")  # fmt: skip

    async def add_edit(self, request: Request) -> Response:
        """Change a cable."""
        session, edit = self._session(request), await read_body(request, EditBody)
        return await self._change(session, lambda edits: (*edits, edit))

    async def undo_edit(self, request: Request) -> Response:
        """Take the last edit back."""
        return await self._change(self._session(request), _without_last)

    async def _change(
        self, session: EditSession, change: Callable[[tuple[EditBody, ...]], tuple[EditBody, ...]]
    ) -> Response:
        async with session.lock:
            base, edits = session.cluster.base, change(session.cluster.edits)
            topology = await self._beside(lambda: apply_edits(base, edits))
            cluster = EditedCluster(base, edits, topology)
            session.put(cluster)
        return await self._describe(session.key, cluster)

    async def compare(self, request: Request) -> Response:
        """Compare algorithms; the answer is a line for each row as it comes."""
        session, body = self._session(request), await read_body(request, CompareBody)
        if not units.parse_size(body.size):
            raise InputError(f"size {body.size!r}: nothing to compare without data; give at least one byte")
        for name in body.algorithms:
            # Names alone: elsewhere an algorithm may be a file of Python.
            look_up("algorithm", name, registry.ALGORITHMS)
        session.stop("replaced by a newer comparison")
        session.job = await self._queue.submit(session.cluster.topology, body)
        return EventStream(session.job)

    async def cancel_comparison(self, request: Request) -> Response:
        """Stop the comparison of a session."""
        self._session(request).stop("cancelled")
        return Response(status_code=204)

    def _session(self, request: Request) -> EditSession:
        return self._sessions.find(request.path_params["session"])

    async def _describe(self, key: str, cluster: EditedCluster, status: int = 200) -> Response:
        return _json(await self._beside(lambda: describe_cluster(key, cluster)), status)

    async def _beside(self, work: Callable[[], _Found]) -> _Found:
        """Do work on a cluster in the thread."""
        try:
            async with asyncio.timeout(_CLUSTER_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, _bounded(work))
        except TimeoutError as error:
            text = f"reading or drawing this cluster takes more than {_CLUSTER_S:g} s"
            raise StudioRefusal(503, text, "Take a smaller cluster, or try again later.") from error


def _bounded(work: Callable[[], _Found]) -> Callable[[], _Found]:
    """The same work, which refuses topologies too large for the studio before it builds them."""

    def do() -> _Found:
        with lowered_bounds(BOUNDS):
            return work()

    return do


def _without_last(edits: tuple[EditBody, ...]) -> tuple[EditBody, ...]:
    if not edits:
        raise StudioRefusal(409, "there is no edit to take back", "Edit something first.")
    return edits[:-1]


class EventStream(Response):
    """The events of a comparison, sent as they come; whoever stops reading cancels it.

    Parameters
    ----------
    job
        The comparison whose events are sent.
    """

    media_type = "application/x-ndjson"

    def __init__(self, job: ComparisonJob) -> None:
        super().__init__(b"", media_type=self.media_type)
        self._job = job
        # The length is not known before the end.
        del self.headers["content-length"]

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        gone = asyncio.create_task(self._wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (line := await self._job.next_line()) is not None:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._job.cancel("disconnected")

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._job.cancel("disconnected")


async def read_body(request: Request, kind: type[_Found]) -> _Found:
    """Read and check a body of JSON, in bounded time and memory.

    Raises
    ------
    StudioRefusal
        If it is too large, too slow, cut off, no JSON, or not of this kind.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise StudioRefusal(415, "the body is not JSON", "Send it with Content-Type: application/json.")
    data = bytearray()
    try:
        async with asyncio.timeout(REQUEST_S):
            async for part in request.stream():
                data += part
                if len(data) > limits.MAX_STUDIO_BODY_BYTES:
                    text = f"the body has more than {limits.MAX_STUDIO_BODY_BYTES:,} bytes"
                    raise StudioRefusal(413, text, "Send a smaller file.")
    except TimeoutError as error:
        raise StudioRefusal(
            408, f"the body did not arrive within {REQUEST_S:g} s", "Send it again."
        ) from error
    except ClientDisconnect as error:
        raise StudioRefusal(400, "the connection ended within the body", "Send it again.") from error
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StudioRefusal(
            422, f"the body is wrong: {error}", "The page /api describes every body."
        ) from error


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
