"""The server of the studio: pages, the API behind its guard, workers, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
from contextlib import asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError, LimitError, MissingPackageError, WeftError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    # Both are named where both are missing, so that one command installs what is needed.
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if len(missing) > 1:
        raise MissingPackageError("weft studio", " ".join(missing)) from error
    name = missing[0] if missing else (error.name or "starlette").partition(".")[0]
    raise MissingPackageError("weft studio", name, error) from error

from weft.reporting.report_page import compose_page, make_page
from weft.studio.api_bodies import Problem, StudioRefusal
from weft.studio.api_routes import ROUTES, make_api_document, make_openapi
from weft.studio.comparison_queue import ComparisonQueue
from weft.studio.http_connection import StudioConnection
from weft.studio.request_guard import RequestGuard, problem_response
from weft.studio.studio_api import StudioApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from starlette.requests import Request

    from weft.topology import Topology

ADDRESS: Final = "127.0.0.1"
_ASSETS: Final = Path(__file__).parent / "assets"
_SCRIPTS: Final = tuple(_ASSETS / f"{name}.js" for name in ("requests", "controls", "studio"))
_STYLES: Final = (_ASSETS / "studio.css",)
_SWEEP_S: Final = 60.0
_END_S: Final = 5
_MOST_HEAD_BYTES: Final = 16 << 10


def make_app(topology: Topology, *, token: str, port: int, workers: int) -> Starlette:
    """Build the application; its workers start and end with it."""
    queue = ComparisonQueue(workers)
    api = StudioApi(topology, queue)
    pages = _make_pages()

    @asynccontextmanager
    async def live(_app: Starlette) -> AsyncIterator[None]:
        queue.start()
        sweeper = asyncio.create_task(_sweep(api))
        try:
            yield
        finally:
            sweeper.cancel()
            await queue.close()
            api.close()

    routes = [
        Route(route.path, pages.get(route.handler) or getattr(api, route.handler), methods=[route.method])
        for route in ROUTES
    ]
    guard = Middleware(
        RequestGuard, token=token, port=port, public=[route.path for route in ROUTES if route.public]
    )
    handlers: dict[Any, Any] = {
        HTTPException: _answer_http_error,
        StudioRefusal: _answer_refused,
        WeftError: _answer_weft_error,
        Exception: _answer_bug,
    }
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=live)
    app.state.queue = queue
    return app


async def _sweep(api: StudioApi) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        api.drop_idle()


def _make_pages() -> dict[str, Callable[[Request], Any]]:
    """Pages and descriptions, which never change."""
    page = compose_page("weft studio", {}, scripts=_SCRIPTS, styles=_STYLES, connect="'self'")
    fixed = {
        "show_page": _page_response(page),
        "show_api_page": _page_response(make_page(make_api_document())),
        "show_openapi": Response(json.dumps(make_openapi()), media_type="application/json"),
    }

    def answer_with(response: Response) -> Callable[[Request], Any]:
        async def answer(_request: Request) -> Response:
            return response

        return answer

    return {name: answer_with(response) for name, response in fixed.items()}


def _page_response(page: str) -> Response:
    # The page has its policy in it; what only a header can say is added.
    policy = {"content-security-policy": "frame-ancestors 'none'"}
    return Response(page, headers=policy, media_type="text/html")


async def _answer_http_error(_request: Request, error: HTTPException) -> Response:
    advice = "The page /api lists every address and method."
    return problem_response(Problem(error.detail.lower(), advice), error.status_code)


async def _answer_refused(_request: Request, refused: StudioRefusal) -> Response:
    return problem_response(refused.problem, refused.status)


async def _answer_weft_error(_request: Request, error: WeftError) -> Response:
    large = isinstance(error, LimitError)
    advice = "Take something smaller." if large else "Change the cluster, edit or choice, and try again."
    return problem_response(Problem(str(error), advice), 400)


async def _answer_bug(_request: Request, error: Exception) -> Response:
    problem = Problem(f"a bug in Weft: {type(error).__name__}", "The terminal of weft studio shows more.")
    return problem_response(problem, 500)


class _Server(uvicorn.Server):
    """Leaves signals to `serve_studio`, and ends comparisons before it waits for connections."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        await app.state.queue.close()
        await super().shutdown(sockets)


def open_socket(port: int) -> socket.socket:
    """Listen on loopback; port 0 takes any that is free.

    Raises
    ------
    InputError
        If the port is taken.
    """
    try:
        return socket.create_server((ADDRESS, port), backlog=128)
    except OSError as error:
        raise InputError(
            f"port {port}: {os.strerror(error.errno or 0)}; give another --port, or 0 for any"
        ) from error


def serve_studio(
    topology: Topology, *, port: int = 0, workers: int = 2, ready: Callable[[str], None] = lambda _url: None
) -> int:
    """Serve until a signal says to stop.

    Parameters
    ----------
    topology
        The cluster that sessions begin with.
    port
        The port of 127.0.0.1 to listen on; 0 takes any that is free.
    workers
        The number of processes that compare.
    ready
        Called with the address, token and all, once the server answers.

    Returns
    -------
    int
        The number of the signal.

    Raises
    ------
    InputError
        If the port is taken, or the cluster too large for the studio.
    """
    # Errors alone: the terminal is not for every stranger who sends garbage.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with open_socket(port) as listener:
        chosen = int(listener.getsockname()[1])
        token = secrets.token_urlsafe(32)
        app = make_app(topology, token=token, port=chosen, workers=workers)
        config = uvicorn.Config(
            app,
            http=StudioConnection,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=_END_S,
        )
        url = f"http://{ADDRESS}:{chosen}/#{token}"
        return asyncio.run(_serve(_Server(config), listener, lambda: ready(url)))


async def _serve(server: _Server, listener: socket.socket, ready: Callable[[], None]) -> int:
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        server.force_exit = server.should_exit
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGINT:
            loop.add_signal_handler(number, stop, number)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    await serving
    return received[0] if received else signal.SIGINT


def choose_workers() -> int:
    """Processes that compare on this machine: two, so that one can end while the other begins, or more."""
    return max(2, min(4, (os.cpu_count() or 2) // 2))
