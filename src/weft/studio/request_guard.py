"""Checks of every request before it reaches the studio: where it goes, where it comes from, and its token.

A page of another site may send requests to loopback from the browser of whoever runs the studio. It cannot
know the token; besides, its requests carry its own ``Origin``, and one that resolves its own name to
127.0.0.1 (DNS rebinding) is found out by ``Host``. The token is compared in constant time and stands in a
header only, so that it is in no address, log or ``Referer``.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from weft import limits
from weft.studio.api_bodies import Problem, StudioRefusal

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer. A page brings a policy of its own, which takes the place of this one."""


def problem_response(problem: Problem, status: int) -> Response:
    """Make the answer to a request that fails."""
    again = {"retry-after": "1"} if status == 429 else {}
    return Response(msgspec.json.encode(problem), status, again, "application/json")


class RequestGuard:
    """Lets requests pass that come from the studio's own page, or from a program that has the token.

    Parameters
    ----------
    app
        The application that answers the requests that pass.
    token
        The secret that every request carries, except those for `public` paths.
    port
        The port of the studio; requests are for this port of 127.0.0.1 or localhost.
    public
        Paths of pages without data, which a browser opens before it can send a token. They are not counted
        as requests that are being answered, so that nobody without the token can use these up.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, public: Collection[str]) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._public = frozenset(public)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            self._check(scope)
        except StudioRefusal as refused:
            await problem_response(refused.problem, refused.status)(scope, receive, send_safely)
            return
        if scope["path"] in self._public:
            await self._app(scope, receive, send_safely)
            return
        self._active += 1
        try:
            await self._app(scope, receive, send_safely)
        finally:
            self._active -= 1

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        hosts = [value.decode("latin-1").lower() for value in headers.get(b"host", [])]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise StudioRefusal(
                403, "this Host is not the studio's", "Open the address that weft studio printed."
            )
        origins = [value.decode("latin-1") for value in headers.get(b"origin", [])]
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            raise StudioRefusal(
                403, "requests of other sites are not answered", "Use the page of the studio."
            )
        site = headers.get(b"sec-fetch-site", [b"none"])
        if scope["path"] in self._public:
            return
        if any(one not in (b"same-origin", b"none") for one in site):
            raise StudioRefusal(
                403, "requests of other sites are not answered", "Use the page of the studio."
            )
        shown = headers.get(b"authorization", [b""])
        if len(shown) != 1 or not hmac.compare_digest(shown[0], self._expected):
            text = "Send the header Authorization: Bearer TOKEN; the token stands in the printed address."
            raise StudioRefusal(401, "the token is missing or wrong", text)
        if self._active >= limits.MAX_STUDIO_REQUESTS:
            text = f"{self._active} requests are being answered, which is the most"
            raise StudioRefusal(429, text, "Try again in a second.")
