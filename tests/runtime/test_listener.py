"""Members get through the accept loop whatever else connects, and the rest costs a bounded amount."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, islice
from pathlib import Path

import pytest

from weft import limits
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.dialer import Dialer, Refused, RetryPauses
from weft.runtime.bootstrap.handshake import (
    FrameKind,
    Gone,
    Hello,
    ProtocolError,
)
from weft.runtime.bootstrap.listener import (
    Applicant,
    Listener,
    let_idle,
    open_socket,
)

SECRET = bytes(range(32))
LOOPBACK = "127.0.0.1"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener([open_socket(socket.AF_INET, (LOOPBACK, 0))], SECRET, 100) as made:
        yield made


def address(listener: Listener) -> tuple[str, int]:
    found: tuple[str, int] = listener.sockets[0].getsockname()
    return found


LEAST_TURNS = 5
"""Of serving: on a busy machine this process may be held up for longer than it serves."""


def serve(listener: Listener, seconds: float = 0.05) -> list[Applicant]:
    """Serve for a while, or for some turns if that is longer; who has come."""
    found = []
    until = time.monotonic() + seconds
    poll = select.poll()  # which takes no descriptor
    poll.register(listener, select.POLLIN)
    for turn in count():
        left = until - time.monotonic()
        if left <= 0 and turn >= LEAST_TURNS:
            return found
        poll.poll(1000 * listener.wait_s(max(left, 0.001)))
        found += listener.serve()
    raise AssertionError


def serve_until_pending(listener: Listener, number: int, seconds: float = 60) -> int:
    """Serve until so many peers are pending; a busy machine takes longer. Return how many there are."""
    until = time.monotonic() + seconds
    while listener.pending != number and time.monotonic() < until:
        serve(listener)
    return listener.pending


def connect(listener: Listener, words: bytes = b"") -> socket.socket:
    connection = socket.create_connection(address(listener), 10)
    connection.settimeout(10)
    if words:
        connection.send(words)
    return connection


def call(listener: Listener, rank: int = 1) -> Dialer:
    return Dialer((socket.AF_INET, address(listener)), SECRET, Hello.make(rank, 2, "job"), b"me", 100)


def meet(listener: Listener, members: int, disturb: Iterator[object] | None = None) -> float:
    """Have so many members come and be admitted, each trying again as a rank does; seconds."""
    began = time.monotonic()
    calls: dict[int, Dialer | None] = dict.fromkeys(range(members))
    pauses = {rank: RetryPauses() for rank in calls}
    due = dict.fromkeys(calls, 0.0)
    while calls:
        assert time.monotonic() < began + 100, f"{len(calls)} members are still outside"
        next(disturb or iter(()), None)
        for applicant in serve(listener, 0.001):
            applicant.admit(b"in").close()
        for rank, attempt in list(calls.items()):
            try:
                if attempt is None:
                    if time.monotonic() < due[rank]:
                        continue
                    attempt = calls[rank] = call(listener, rank)
                if attempt.advance() is None:
                    continue
            except (ProtocolError, Gone, OSError):
                due[rank] = time.monotonic() + pauses[rank].after(attempt)
                calls[rank] = None
            else:
                del calls[rank]
            if attempt is not None:
                attempt.close()
    return time.monotonic() - began


def silent_crowd(listener: Listener, each: int, stack: ExitStack) -> Iterator[None]:
    """So many more silent connections at each step."""
    while True:
        for _ in range(each):
            stack.enter_context(connect(listener))
        yield


def test_a_member_is_admitted_and_both_ends_can_talk(listener: Listener) -> None:
    caller = call(listener)
    caller.advance()
    assert serve(listener) == []
    assert caller.advance() is None
    (applicant,) = serve(listener)
    assert (applicant.hello.rank, applicant.hello.number, applicant.record) == (1, 2, b"me")
    channel = applicant.admit(b"welcome")
    admitted = caller.advance()
    assert admitted is not None
    assert admitted[1] == b"welcome"
    channel.queue(FrameKind.EXCHANGE, b"more")
    channel.flush()
    assert admitted[0].receive() == (FrameKind.EXCHANGE, b"more")
    # What is closed here ends like any connection, and not by a reset that could overtake the last frame.
    assert channel.connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == bytes(8)
    channel.close()
    caller.close()


def test_a_member_without_a_place_is_told_why(listener: Listener) -> None:
    caller = call(listener)
    caller.advance()
    assert serve(listener) == []
    assert caller.advance() is None
    (applicant,) = serve(listener)
    listener.turn_away(applicant, "there is no room")
    with pytest.raises(Refused, match="there is no room"):
        caller.advance()
    assert listener.describe() == "1 connection turned away, the last because there is no room"
    caller.close()


def test_members_get_in_while_silent_connections_never_stop(listener: Listener) -> None:
    with ExitStack() as stack:
        crowd = silent_crowd(listener, 5, stack)
        for _ in range(40):
            next(crowd)
        meet(listener, 10, crowd)
        serve(listener, 0.1)
        assert listener.pending <= limits.MAX_PENDING_PEERS


def test_more_members_than_places_all_get_in(listener: Listener) -> None:
    meet(listener, 3 * limits.MAX_PENDING_PEERS)
    assert listener.pending == 0


def test_a_peer_with_a_good_hello_keeps_its_place(listener: Listener) -> None:
    hello = Hello.make(1, 2, "job")
    with ExitStack() as stack:
        member = stack.enter_context(connect(listener, hello.sign(SECRET)))
        serve(listener)
        crowd = silent_crowd(listener, 2 * limits.MAX_PENDING_PEERS, stack)
        for _ in range(3):
            next(crowd)
            serve(listener, 0.02)
        serve(listener, 1.2)  # by now the kernel has handed the silent ones over
        challenge = member.recv(handshake.CHALLENGE_BYTES)
        member.send(handshake.read_challenge(SECRET, hello, challenge).answer(b""))
        (applicant,) = serve(listener)
        assert applicant.hello == hello
        applicant.channel.close()


def test_recorded_hellos_take_no_place_twice_and_give_way_to_members(listener: Listener) -> None:
    recorded = [Hello.make(1, 2, "job").sign(SECRET) for _ in range(2 * limits.MAX_PENDING_PEERS)]
    with ExitStack() as stack:
        for hello in (*recorded, *recorded):
            stack.enter_context(connect(listener, hello))
        meet(listener, 3)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "it does not speak Weft's protocol"),
        (b"W", "it left before it had proven itself"),
        (b"WEFT\0\1", "it speaks another version of the protocol"),
        (Hello.make(1, 2, "job").sign(bytes(32)), "it does not know the job's secret"),
        (Hello.make(1, 2, "job").sign(SECRET)[:-1], "it left before it had proven itself"),
    ],
    ids=[
        "another protocol",
        "one byte",
        "another version",
        "another secret",
        "without the last byte",
    ],  # some are random
)
def test_what_is_no_hello_ends_the_connection_at_once(listener: Listener, words: bytes, reason: str) -> None:
    with connect(listener, words) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert serve(listener) == []
        assert listener.pending == 0
        assert f"1 connection turned away, the last because {reason}" in (listener.describe() or "")


def test_little_is_read_from_a_peer_that_proves_nothing(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[int, int] = {}
    receive = socket.socket.recv

    def note(self: socket.socket, wanted: int, *flags: int) -> bytes:
        data = receive(self, wanted, *flags)
        read[self.fileno()] = read.get(self.fileno(), 0) + len(data)
        return data

    hello = Hello.make(1, 2, "job").sign(SECRET)
    with connect(listener, hello + b"\0" * 32 + b"\2\0" + b"\0" * 60_000):
        monkeypatch.setattr(socket.socket, "recv", note)
        assert serve(listener) == []
    assert listener.pending == 0
    assert max(read.values()) <= limits.MAX_UNPROVEN_BYTES


def open_files() -> set[int]:
    """Descriptors of this process."""
    found = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    return {number for number in found if Path("/proc/self/fd", str(number)).exists()}


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Allow this process only so many more open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = open_files()
    # The limit is on numbers, of which the free ones are taken from below.
    free = (number for number in count() if number not in used)
    number = next(islice(free, more, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_when_descriptors_run_out_silent_connections_give_theirs(listener: Listener) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(listener))
        with few_descriptors(5):
            serve(listener, 1.3)
            assert 0 < listener.pending <= 5
            assert "Too many open files" in (listener.describe() or "")
        serve(listener, 0.1)
        with few_descriptors(3):
            meet(listener, 2)


def test_without_any_descriptor_accepting_pauses_and_goes_on_later(listener: Listener) -> None:
    with connect(listener, b"W"):
        with few_descriptors(0):
            began = time.process_time()
            assert serve(listener, 0.5) == []
            assert time.process_time() - began < 0.25  # it does not spin
            assert listener.pending == 0
        assert serve_until_pending(listener, 1) == 1


def test_unauthenticated_peers_get_a_share_of_the_descriptors_only() -> None:
    listening = open_socket(socket.AF_INET, (LOOPBACK, 0))
    with few_descriptors(41):
        listener = Listener([listening], SECRET, 100)  # itself takes one
    with listener, ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connect(listener, b"W"))
        assert serve_until_pending(listener, 10) == 10
        serve(listener)
        assert listener.pending == 10


def test_a_socket_that_nobody_serves_keeps_few_connections_and_admits_members_later() -> None:
    listening = open_socket(socket.AF_INET, (LOOPBACK, 0))
    let_idle(listening)
    before = len(open_files())
    with ExitStack() as stack:
        for number in range(200):
            peer = stack.enter_context(socket.socket())
            peer.setblocking(False)
            peer.connect_ex(listening.getsockname())
            if number % 2:
                with suppress(OSError):  # the queue is full
                    peer.send(b"x" * 1000)
        assert len(open_files()) == before + 200
        with Listener([listening], SECRET, 100) as listener:
            serve(listener, 0.1)
            assert listener.pending < limits.MAX_PENDING_PEERS
            meet(listener, 2)


def test_a_closed_listener_leaves_nothing_open() -> None:
    before = open_files()
    with Listener([open_socket(socket.AF_INET, (LOOPBACK, 0))], SECRET, 100) as listener:
        peers = [connect(listener, b"W") for _ in range(3)]
        serve(listener)
        assert listener.pending == 3
    for peer in peers:
        peer.close()
    assert open_files() == before
