"""The table of everything that the studio answers: its routes and its OpenAPI description come from it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from weft import _core
from weft.reporting.section_kinds import Section, table_section, text_section, words_section
from weft.studio.api_bodies import (
    ClusterBody,
    ClusterState,
    CompareBody,
    ComparisonEvent,
    EditBody,
    Problem,
    StudioChoices,
    StudioCounts,
)

_JSON: Final = "application/json"
_HTML: Final = "text/html"
_LINES: Final = "application/x-ndjson"
_COLUMNS: Final = 44


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One row of the table.

    Parameters
    ----------
    method, path
        The method and the path of its requests.
    handler
        Name of the method of `StudioApi`, or of a page.
    summary
        What the route does, in one sentence.
    body
        The type of the body of a request; None if requests have no body.
    answer
        The type of the body of a successful answer; None if it has no body, or one without a type.
    status, media_type
        The status and the media type of a successful answer.
    public
        Whether requests need no token, as those for pages without data.
    """

    method: str
    path: str
    handler: str
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    media_type: str = _JSON
    public: bool = False


_SESSION: Final = "/api/sessions/{session}"
ROUTES: Final = (
    ApiRoute("GET", "/", "show_page", "The page.", media_type=_HTML, public=True),
    ApiRoute("GET", "/api", "show_api_page", "This description.", media_type=_HTML, public=True),
    ApiRoute("GET", "/openapi.json", "show_openapi", "This description as OpenAPI 3.1.", public=True),
    ApiRoute("GET", "/api/choices", "choices", "What can be chosen, and bounds.", answer=StudioChoices),
    ApiRoute("GET", "/api/counts", "counts", "What became of comparisons.", answer=StudioCounts),
    ApiRoute(
        "POST", "/api/sessions", "open_session", "Begin with a cluster.", ClusterBody, ClusterState, 201
    ),
    ApiRoute("GET", _SESSION, "show_session", "The cluster as it is now.", answer=ClusterState),
    ApiRoute("DELETE", _SESSION, "close_session", "End a session.", status=204),
    ApiRoute(
        "PUT", f"{_SESSION}/cluster", "replace_cluster", "Take another cluster, without edits; cancels a "
        "comparison that runs.", ClusterBody, ClusterState,
    ),
    ApiRoute(
        "GET", f"{_SESSION}/cluster.toml", "save_cluster", "The cluster as a file.",
        media_type="application/toml",
    ),
    ApiRoute(
        "POST", f"{_SESSION}/edits", "add_edit", "Cut, slow or add a cable; cancels a comparison that runs.",
        EditBody, ClusterState,
    ),
    ApiRoute(
        "DELETE", f"{_SESSION}/edits/last", "undo_edit", "Take the last edit back; cancels a comparison that "
        "runs.", answer=ClusterState,
    ),
    ApiRoute(
        "POST", f"{_SESSION}/comparisons", "compare", "Compare algorithms; the answer is a line of JSON for "
        "each event as it comes. A newer comparison of the session cancels an older one.",
        CompareBody, ComparisonEvent, media_type=_LINES,
    ),
    ApiRoute(
        "DELETE", f"{_SESSION}/comparisons", "cancel_comparison", "Stop the comparison that runs.", status=204
    ),
)  # fmt: skip

_PROBLEMS: Final = {
    400: "HTTP is malformed, or the cluster, edit or choice makes no sense",
    401: "the token is missing or wrong",
    403: "the request comes from another site, or is for another host",
    404: "there is no such address or session",
    405: "the address does not take this method",
    408: "the body did not arrive in time",
    409: "there is nothing to take back",
    413: "the body is too large",
    415: "the body is not declared as JSON by its Content-Type",
    422: "the body is no JSON, or not of the type that is described",
    429: "too many requests, sessions, or comparisons that wait; try again",
    500: "there is a bug in Weft; the terminal of the studio shows more",
    503: "reading, changing or drawing the cluster takes too long",
}
"""Statuses of problems; any route may answer with those that its requests can cause."""


def make_openapi() -> dict[str, Any]:
    """Describe the table as OpenAPI 3.1, with schemas of the types that check bodies."""
    kinds = {kind for route in ROUTES for kind in (route.body, route.answer) if kind is not None}
    order = sorted(kinds | {Problem}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(order, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        schema["description"] = " ".join(schema["description"].replace("``", "`").split())
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "weft studio",
            "version": _core.version(),
            "description": "Edits of a cluster, and comparisons on it: on loopback, with a token.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.status != 204:
        answer["content"] = {route.media_type: _schema(route.answer)}
    causes = "; ".join(f"{status}: {text}" for status, text in _PROBLEMS.items())
    problem = {"description": causes, "content": {_JSON: _schema(Problem)}}
    found: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "security": [] if route.public else [{"token": []}],
        "responses": {str(route.status): answer, "default": problem},
    }
    if "{session}" in route.path:
        found["parameters"] = [
            {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: _schema(route.body)}}
    return found


def _schema(kind: type[msgspec.Struct] | None) -> dict[str, Any]:
    return {} if kind is None else {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}


def _format_schema(schema: dict[str, Any]) -> str:
    """Write what the schema is for, and below it the fields as JSON."""
    fields = {name: value for name, value in schema.items() if name not in ("title", "description")}
    words = textwrap.fill(schema["description"], _COLUMNS)
    return f"{words}\n\n{msgspec.json.format(msgspec.json.encode(fields), indent=1).decode()}"


def make_api_document() -> dict[str, Any]:
    """The same for people: a document as reports have it, so that the page of a report shows it."""
    described = make_openapi()
    rows = [
        (
            f"{route.method} {route.path}",
            route.summary,
            route.body.__name__ if route.body else "-",
            f"{route.status} {route.answer.__name__ if route.answer else ''}",
        )
        for route in ROUTES
    ]
    problems = [(str(status), text) for status, text in _PROBLEMS.items()]
    schemas: list[Section] = [
        text_section(name, _format_schema(schema))
        for name, schema in described["components"]["schemas"].items()
    ]
    words = (
        "Every request but those for pages carries the header Authorization: Bearer TOKEN, with the token "
        "that stands behind # in the address that weft studio printed. Bodies are JSON, with Content-Type: "
        "application/json. /openapi.json has the same description for programs."
    )
    return {
        "version": 1,
        "title": "API of weft studio",
        "made_by": f"weft {_core.version()}",
        "sections": [
            words_section("Requests", [words]),
            table_section("Routes", ("request", "what it does", "body", "answer"), rows, left=4),
            table_section("Problems", ("status", "when"), problems, left=2),
            *schemas,
        ],
    }
