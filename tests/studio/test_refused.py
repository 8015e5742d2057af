"""Refusals reach whoever is refused, also one whose request has not been read to its end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from support.measured import measure_within
from support.studio import PATIENCE_S, Studio, start_studio

from weft import limits

BODY = b'{"topology": "ring:4"}' + b" " * 300_000
"""More than the buffers of a connection take in before the other side reads."""


def connect(studio: Studio) -> socket.socket:
    return socket.create_connection(("127.0.0.1", studio.port), timeout=PATIENCE_S)


def head_of(studio: Studio, length: int, *, token: str | None = None) -> bytes:
    return (
        f"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:{studio.port}\r\nConnection: close\r\n"
        f"Authorization: Bearer {token or studio.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def send(clients: Sequence[socket.socket], head: bytes, body: bytes, how: str) -> None:
    """Send a request of each client at once; or their heads, and their bodies in pieces that come later."""
    if how == "at once":
        for client in clients:
            client.sendall(head + body)
        return
    for client in clients:
        client.sendall(head)
    size = -(-len(body) // 8)
    for start in range(0, len(body), size):
        time.sleep(0.1)
        for client in clients:
            client.sendall(body[start : start + size])


def send_slowly(client: socket.socket, piece: bytes, *, pause_s: float) -> None:
    """Send more and more until the studio has had enough."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        client.sendall(piece)
        time.sleep(pause_s)


def read_problem(client: socket.socket) -> int:
    """Read until the studio has closed; the status of the problem that was all it sent."""
    found = b""
    while part := client.recv(65536):
        found += part
    head, _, body = found.partition(b"\r\n\r\n")
    assert set(json.loads(body)) == {"error", "what_to_do"}
    return int(head.split(b" ")[1])


def await_status(studio: Studio, status: int) -> None:
    """Wait until the studio answers so: it takes in what was sent when it comes to it."""
    deadline = time.monotonic() + PATIENCE_S
    while studio.ask("GET", "/api/counts").status != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def as_many_connections_as_can_be(studio: Studio) -> Iterator[None]:
    with ExitStack() as opened:
        for _ in range(limits.MAX_STUDIO_CONNECTIONS):
            opened.enter_context(connect(studio))
        await_status(studio, 429)
        yield


@contextmanager
def as_many_requests_as_can_be(studio: Studio) -> Iterator[None]:
    """Requests whose bodies do not end."""
    with ExitStack() as opened:
        for _ in range(limits.MAX_STUDIO_REQUESTS):
            opened.enter_context(connect(studio)).sendall(head_of(studio, 100) + b"{")
        await_status(studio, 429)
        yield


Fill = Callable[[Studio], AbstractContextManager[None]]


@pytest.fixture
def empty(studio: Studio) -> Studio:
    """A studio that has seen the end of what other tests have opened."""
    await_status(studio, 200)
    return studio


@pytest.mark.parametrize("how", ["at once", "in pieces"])
@pytest.mark.parametrize("fill", [as_many_connections_as_can_be, as_many_requests_as_can_be])
def test_a_request_too_many_can_be_sent_whole_and_reads_its_whole_answer(
    empty: Studio, fill: Fill, how: str
) -> None:
    with fill(empty), ExitStack() as opened:
        clients = [opened.enter_context(connect(empty)) for _ in range(5)]
        time.sleep(0.3)  # The studio has answered before anything is sent, if it does not wait for that.
        send(clients, head_of(empty, len(BODY)), BODY, how)
        assert [read_problem(client) for client in clients] == [429] * len(clients)


@pytest.mark.parametrize("how", ["at once", "in pieces"])
@pytest.mark.parametrize(
    ("length", "token", "status"), [(3 << 20, None, 413), (300_000, "wrong", 401)], ids=["large", "unknown"]
)
def test_a_request_that_is_refused_before_its_end_reads_its_whole_answer(
    empty: Studio, length: int, token: str | None, status: int, how: str
) -> None:
    for _ in range(3):
        with connect(empty) as client:
            send([client], head_of(empty, length, token=token), b"x" * length, how)
            assert read_problem(client) == status


def test_what_is_no_http_can_be_sent_whole_and_reads_its_whole_answer(empty: Studio) -> None:
    for _ in range(3):
        with connect(empty) as client:
            send([client], b"garbage\r\n\r\n", BODY, "in pieces")
            assert read_problem(client) == 400


def test_a_refused_client_is_not_listened_to_for_ever(empty: Studio) -> None:
    """One sends without end, the other hardly: the first is cut off by bytes, the second by time."""
    head = head_of(empty, 1 << 40, token="wrong")
    with connect(empty) as slow, connect(empty) as endless:
        slow.sendall(head)
        assert read_problem(slow) == 401
        endless.sendall(head)
        with pytest.raises(ConnectionError):
            send_slowly(endless, b"x" * (1 << 20), pause_s=0)
        with pytest.raises(ConnectionError):
            send_slowly(slow, b"x", pause_s=0.2)


def count_files(studio: Studio) -> int:
    """Open files of the studio, sockets among them."""
    return len(list(Path(f"/proc/{studio.process.pid}/fd").iterdir()))


def test_clients_that_never_read_keep_nobody_out_and_are_cut_off(empty: Studio) -> None:
    """They ask for the page once, twice, and so on: answers wait in kernels, in the studio, or to be made."""
    request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{empty.port}\r\n\r\n".encode()
    before = count_files(empty)
    with ExitStack() as opened:
        for number in range(limits.MAX_STUDIO_REQUESTS):
            silent = opened.enter_context(socket.socket())
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", empty.port))
            silent.sendall((number + 1) * request)
        await_status(empty, 200)
        assert count_files(empty) > before  # they are all still there
        deadline = time.monotonic() + PATIENCE_S
        while count_files(empty) > before:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert empty.ask("GET", "/").status == 200


def test_a_comparison_that_nobody_reads_is_cancelled(empty: Studio) -> None:
    """Its document is larger than the buffers of the connection; the client leaves it there."""
    path = empty.open("torus:8x8")
    body = b'{"size": "64MiB"}'
    head = head_of(empty, len(body)).replace(b"/api/sessions", f"{path}/comparisons".encode())
    before = empty.settle()
    files = count_files(empty)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", empty.port))
        silent.sendall(head + body)
        deadline = time.monotonic() + PATIENCE_S
        while empty.counts()["accepted"] == before["accepted"] or count_files(empty) > files:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        found = empty.settle()
        assert found["accepted"] == found["finished"] + found["cancelled"] + found["failed"]
    empty.ask("DELETE", path)


def test_the_studio_ends_although_a_refused_client_stays_and_says_nothing_of_others() -> None:
    def stop() -> float:
        with start_studio("ring:4") as studio, connect(studio) as refused, connect(studio) as leaving:
            refused.sendall(head_of(studio, 100, token="wrong"))
            assert read_problem(refused) == 401
            leaving.sendall(head_of(studio, 100) + b"{")
            time.sleep(0.3)
            leaving.close()
            time.sleep(0.3)
            began = time.monotonic()
            assert studio.stop() == (0, "Ctrl-C ends it.\n")
            return time.monotonic() - began

    # The studio waits for answers for 5 s.
    measure_within(stop, lambda seconds: [f"it took {seconds:.1f} s to end"] if seconds >= 4 else [])
