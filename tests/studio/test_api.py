"""Requests to a real studio: who is answered, what is refused and how, and what becomes of comparisons."""

from __future__ import annotations

import ast
import http.client
import json
import re
import socket
import time
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.studio import Studio

import weft
import weft.studio

LONG = {"size": "1GiB", "algorithms": ["forest", "direct", "bucket"], "time_limit": 60}
"""On `SLOW` this takes seconds at least."""
SLOW = "torus:16x16"


def is_problem(document: Any) -> bool:
    assert set(document) == {"error", "what_to_do"}
    return all(isinstance(text, str) and text for text in document.values())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_request_without_the_token_or_from_elsewhere_is_refused(
    studio: Studio, headers: dict[str, str | None], status: int
) -> None:
    for method, path in (("POST", "/api/sessions"), ("GET", "/api/counts"), ("GET", "/nothing")):
        answer = studio.ask(method, path, {} if method == "POST" else None, headers=headers)
        assert answer.status == status
        assert is_problem(answer.document)
        assert studio.token.encode() not in answer.body


def test_a_page_is_not_shown_under_another_name(studio: Studio) -> None:
    answer = studio.ask("GET", "/", headers={"Host": f"evil.example:{studio.port}", "Authorization": None})
    assert answer.status == 403
    assert studio.ask("GET", "/", headers={"Authorization": None}).status == 200


def test_the_studio_listens_on_loopback_alone(studio: Studio) -> None:
    with socket.socket() as other:
        other.settimeout(10)
        assert other.connect_ex(("127.0.0.2", studio.port)) != 0


@pytest.mark.parametrize("path", ["/", "/api", "/openapi.json", "/api/choices", "/nothing"])
def test_every_answer_forbids_to_keep_frame_or_sniff_it(studio: Studio, path: str) -> None:
    headers = studio.ask("GET", path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 422),
        (b"[]", 422),
        (b'{"topolgy": "ring:4"}', 422),
        (b'{"topology": 4}', 422),
        (b'{"topology": ""}', 422),
        (b'{"topology": "ring:4", "file": {"name": "a", "text": ""}}', 400),
        (b'{"topology": "nothing:4"}', 400),
        (b'{"topology": "/etc/passwd"}', 400),
        (b'{"topology": "pyproject.toml"}', 400),
        (b'{"topology": "torus:128x128"}', 400),
        (b'{"file": {"name": "a.toml", "text": "ranks = "}}', 400),
        (b'{"file": {"name": "a.toml", "text": "' + b"x" * (1 << 20) + b'"}}', 413),
    ],
)
def test_a_malformed_request_gets_a_problem_as_json(studio: Studio, body: bytes, status: int) -> None:
    answer = studio.ask("POST", "/api/sessions", body)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert is_problem(answer.document)


@pytest.mark.parametrize("spec", ["fullmesh:2000", "torus:256x256", "switch:60000", "dgx-h100:8000"])
def test_a_cluster_that_is_too_large_is_refused_before_it_is_built(studio: Studio, spec: str) -> None:
    """What says so is the bound of what is built, which names the spec; a whole one has another message."""
    answer = studio.ask("POST", "/api/sessions", {"topology": spec})
    assert answer.status == 400
    assert answer.document["error"].startswith(f"{spec}: ")
    assert "of a cluster in the studio" in answer.document["error"]


def test_a_file_of_few_lines_and_many_cables_is_refused_before_it_is_built(studio: Studio) -> None:
    cable = '{src = 0, dst = 1, bandwidth = "1GB/s", latency = "1us", duplex = true, count = 1000000}'
    file = {"name": "many.toml", "text": f"ranks = 2\nlinks = [{cable}]\n"}
    answer = studio.ask("POST", "/api/sessions", {"file": file})
    assert answer.status == 400
    assert "many.toml: links of a cluster in the studio: 2,000,000 is more" in answer.document["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("PATCH", "/api/sessions", 405),
        ("GET", "/api/sessions/nothing", 404),
        ("DELETE", "/api/sessions/nothing/edits/last", 404),
    ],
)
def test_an_address_that_is_not_there_is_a_problem(
    studio: Studio, method: str, path: str, status: int
) -> None:
    answer = studio.ask(method, path)
    assert answer.status == status
    assert is_problem(answer.document)


def test_a_body_that_is_no_json_by_its_type_is_refused(studio: Studio) -> None:
    answer = studio.ask("POST", "/api/sessions", b"{}", headers={"Content-Type": "text/plain"})
    assert (answer.status, is_problem(answer.document)) == (415, True)


def statuses_in_the_source() -> set[int]:
    """Statuses of all problems that the modules of the studio make."""
    found = {405}  # of Starlette itself, for a method that no route of the path has
    for module in Path(weft.studio.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(call, ast.Call):
                name = (
                    call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                )
                place = {"StudioRefusal": 0, "_answer": 0, "problem_response": 1}.get(name)
                given = None if place is None or len(call.args) <= place else call.args[place]
                if isinstance(given, ast.Constant):
                    found.add(given.value)
    return found


def test_every_status_of_a_problem_is_described(studio: Studio) -> None:
    used = statuses_in_the_source()
    assert {400, 405, 408, 415, 429, 500, 503} <= used
    described = studio.ask("GET", "/openapi.json").document
    for methods in described["paths"].values():
        for operation in methods.values():
            words = operation["responses"]["default"]["description"]
            assert {int(status) for status in re.findall(r"(?:^|; )([0-9]{3}): ", words)} == used


@pytest.mark.parametrize(
    "sent", [b"garbage\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"\x16\x03\x01\r\n\r\n"]
)
def test_what_is_no_http_gets_a_problem_as_json(studio: Studio, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", studio.port), timeout=30) as stranger:
        stranger.sendall(sent)
        found = b""
        while part := stranger.recv(65536):
            found += part
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_problem(json.loads(body))


@pytest.mark.parametrize(
    "edit",
    [
        {"action": "cut", "a": "0", "b": "2"},
        {"action": "cut", "a": "0", "b": "99"},
        {"action": "cut", "a": "0", "b": "1", "factor": 0.5},
        {"action": "slow", "a": "0", "b": "1"},
        {"action": "slow", "a": "0", "b": "1", "bandwidth": "many"},
        {"action": "slow", "a": "0", "b": "1", "factor": 2},
        {"action": "slow", "a": "0", "b": "1", "factor": 0},
        {"action": "add", "a": "0", "b": "2", "bandwidth": "1GB/s"},
        {"action": "add", "a": "0", "b": "0", "bandwidth": "1GB/s", "latency": "1us"},
        {"action": "burn", "a": "0", "b": "1"},
    ],
)
def test_an_edit_that_cannot_be_leaves_the_cluster_as_it_is(studio: Studio, edit: dict[str, Any]) -> None:
    path = studio.open("ring:4")
    answer = studio.ask("POST", f"{path}/edits", edit)
    assert answer.status in (400, 422)
    assert is_problem(answer.document)
    state = studio.ask("GET", path).document
    assert (state["links"], state["edits"]) == (8, [])
    assert studio.ask("DELETE", path).status == 204


def test_edits_change_the_cluster_that_is_compared_and_saved(studio: Studio) -> None:
    path = studio.open("ring:4@bw=10GB/s,lat=1us")
    for edit in (
        {"action": "cut", "a": "0", "b": "1"},
        {"action": "slow", "a": "1", "b": "2", "bandwidth": "5GB/s"},
        {"action": "slow", "a": "2", "b": "3", "factor": 0.25},
        {"action": "add", "a": "0", "b": "2", "bandwidth": "20GB/s", "latency": "3us"},
    ):
        assert studio.ask("POST", f"{path}/edits", edit).status == 200
    saved = tomllib.loads(studio.ask("GET", f"{path}/cluster.toml").body.decode())
    expected = weft.load_topology("ring:4@bw=10GB/s,lat=1us+fail=0-1+speed=1-2:5GB/s,2-3:2.5GB/s")
    assert saved["name"].endswith("with 4 edits")
    assert len(saved["links"]) == expected.links // 2 + 1
    body = {"size": "1MiB", "algorithms": ["ring"]}
    events = studio.ask("POST", f"{path}/comparisons", body).events
    assert [one["event"] for one in events] == ["accepted", "rows", "done"]
    for left in (3, 2):
        assert len(studio.ask("DELETE", f"{path}/edits/last").document["edits"]) == left
    studio.ask("DELETE", f"{path}/edits/last")
    state = studio.ask("DELETE", f"{path}/edits/last").document
    assert (state["name"], state["links"]) == ("ring:4@bw=10GB/s,lat=1us", 8)
    assert studio.ask("DELETE", f"{path}/edits/last").status == 409
    studio.ask("DELETE", path)


def read_and_close(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_a_cluster_is_shown_with_its_own_edits_while_it_is_edited(studio: Studio) -> None:
    """The cluster is large, so that drawing it takes longer than everything else."""
    path = studio.open("torus:32x32")
    for _ in range(4):
        edit = {"action": "slow", "a": "0", "b": "1", "bandwidth": "1GB/s"}
        asked = [studio.send("POST", f"{path}/edits", edit), studio.send("GET", path)]
        for status, state in map(read_and_close, asked):
            assert status == 200
            assert state["name"] == "torus:32x32" + "+speed=0-1:1GB/s" * len(state["edits"])
    studio.ask("DELETE", path)


def test_one_edit_is_taken_back_once_although_two_ask_at_the_same_time(studio: Studio) -> None:
    path = studio.open("torus:32x32")
    studio.ask("POST", f"{path}/edits", {"action": "cut", "a": "0", "b": "1"})
    asked = [studio.send("DELETE", f"{path}/edits/last") for _ in range(2)]
    assert sorted(status for status, _ in map(read_and_close, asked)) == [200, 409]
    studio.ask("DELETE", path)


def test_a_comparison_is_that_of_weft_compare(studio: Studio) -> None:
    path = studio.open("torus:4x4")
    studio.ask("POST", f"{path}/edits", {"action": "slow", "a": "0", "b": "1", "bandwidth": "1GB/s"})
    events = studio.ask("POST", f"{path}/comparisons", {"size": "1MiB"}).events
    result = events[-1]["result"]
    expected = weft.compare("torus:4x4+speed=0-1:1GB/s", "1MiB")
    assert result["topology"] == expected.topology.name
    assert {row["algorithm"]: row["seconds"] for row in result["results"]} == {
        row.algorithm: row.seconds for row in expected.results
    }
    rows = [one for one in events if one["event"] == "rows"]
    assert [one["tried"] for one in rows] == list(range(1, len(rows) + 1))
    assert [section["kind"] for section in events[-1]["document"]["sections"]][:2] == ["bars", "fabric"]
    studio.ask("DELETE", path)


def test_names_as_long_as_can_be_make_a_small_answer_and_are_compared(studio: Studio) -> None:
    names = [f"{letter}{'x' * 4000}" for letter in "ab"]
    cable = '{src = "%s", dst = "%s", bandwidth = "1GB/s", latency = "1us", duplex = true}'
    ends = [("0", "s0"), ("1", "s1"), *[("s0", "s1")] * 1000]
    text = (
        f"ranks = 2\nswitches = 2\nswitch_names = {json.dumps(names)}\n"
        f"links = [{', '.join(cable % pair for pair in ends)}]\n"
    )
    answer = studio.ask("POST", "/api/sessions", {"file": {"name": "a.toml", "text": text}})
    assert answer.status == 201
    assert len(answer.body) < 500_000
    assert answer.document["node_names"] == ["0", "1", "s0", "s1"]
    path = f"/api/sessions/{answer.document['session']}"
    edited = studio.ask(
        "POST", f"{path}/edits", {"action": "slow", "a": names[0], "b": names[1], "factor": 0.5}
    )
    assert edited.status == 200
    assert len(edited.document["edits"][0]) < 200
    events = studio.ask("POST", f"{path}/comparisons", {"size": "1KiB", "algorithms": ["ring"]}).events
    assert events[-1]["event"] == "done"
    studio.ask("DELETE", path)


def test_an_algorithm_is_a_name_and_never_a_file(studio: Studio, tmp_path: Any) -> None:
    script = tmp_path / "mine.py"
    script.write_text("raise SystemExit(5)\n")
    path = studio.open("ring:4")
    for name in (f"{script}:function", str(script), "nothing"):
        answer = studio.ask("POST", f"{path}/comparisons", {"algorithms": [name]})
        assert (answer.status, is_problem(answer.document)) == (400, True)
    studio.ask("DELETE", path)


def test_an_algorithm_that_does_not_apply_is_an_error_of_the_comparison(studio: Studio) -> None:
    path = studio.open("ring:6")
    events = studio.ask("POST", f"{path}/comparisons", {"algorithms": ["swing"]}).events
    assert events[-1]["event"] == "error"
    assert "power of two" in events[-1]["error"]
    studio.ask("DELETE", path)


@pytest.mark.parametrize("how", ["edit", "undo", "cluster", "delete", "newer", "close", "leave"])
def test_a_running_comparison_is_cancelled(studio: Studio, how: str) -> None:
    path = studio.open(SLOW)
    studio.ask("POST", f"{path}/edits", {"action": "slow", "a": "0", "b": "1", "factor": 0.5})
    before = studio.settle()["cancelled"]
    connection = studio.send("POST", f"{path}/comparisons", LONG)
    stream = connection.getresponse()
    assert json.loads(stream.readline())["event"] == "accepted"
    while not studio.counts()["running"]:
        time.sleep(0.01)
    match how:
        case "edit":
            studio.ask("POST", f"{path}/edits", {"action": "cut", "a": "0", "b": "1"})
        case "undo":
            studio.ask("DELETE", f"{path}/edits/last")
        case "cluster":
            studio.ask("PUT", f"{path}/cluster", {"topology": "ring:4"})
        case "delete":
            studio.ask("DELETE", f"{path}/comparisons")
        case "newer":
            studio.ask("POST", f"{path}/comparisons", {"size": "1KiB", "algorithms": ["recursive_doubling"]})
        case "close":
            studio.ask("DELETE", path)
        case "leave":
            connection.close()
            stream.close()
    if how != "leave":
        last = json.loads(stream.read().splitlines()[-1])
        assert last["event"] == "cancelled"
        assert last["reason"]
        connection.close()
    assert studio.settle()["cancelled"] == before + 1
    # The worker is there for the next one.
    after = studio.open("ring:4")
    assert studio.ask("POST", f"{after}/comparisons", {"size": "1KiB"}).events[-1]["event"] == "done"
    for one in (path, after):
        studio.ask("DELETE", one)


def test_the_description_is_openapi_with_schemas_that_hold(studio: Studio) -> None:
    described = studio.ask("GET", "/openapi.json").document
    assert described["openapi"] == "3.1.0"
    schemas = described["components"]["schemas"]
    texts = json.dumps(described)
    assert all(f"#/components/schemas/{name}" in texts for name in schemas)

    def check(name: str, document: Any) -> None:
        jsonschema.validate(
            document, {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
        )

    path = studio.open("ring:4")
    check("ClusterState", studio.ask("GET", path).document)
    check("StudioChoices", studio.ask("GET", "/api/choices").document)
    check("StudioCounts", studio.counts())
    check("Problem", studio.ask("GET", "/nothing").document)
    for event in studio.ask("POST", f"{path}/comparisons", {"size": "1KiB"}).events:
        check("ComparisonEvent", event)
    with pytest.raises(jsonschema.ValidationError):
        check("EditBody", {"action": "burn", "a": "0", "b": "1"})
    studio.ask("DELETE", path)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /api/counts HTTP/1.1\r\nHost: 127.0.0.1",
        (
            b"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        ),
    ],
    ids=["head", "body"],
)
def test_a_request_that_never_ends_is_not_waited_for(studio: Studio, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", studio.port), timeout=60) as slow:
        slow.sendall(sent % (studio.port, studio.token.encode()) if b"%d" in sent else sent)
        found = b""
        while b"}" not in found and (part := slow.recv(65536)):
            found += part
    assert found == b"" or found.startswith(b"HTTP/1.1 408 ")
