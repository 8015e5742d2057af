"""Connections for data: what a rank says when another one refuses, does not answer, or comes late."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.transport.tcp_connections import (
    LOOPBACK,
    DataListener,
    ListenAddress,
    PeerConnection,
    connect_peers,
    find_unsent_bytes,
    open_data_listener,
)

PEER = PeerConnection(0, 0)
"""As rank 1 sees it."""


@pytest.fixture
def listener() -> Iterator[DataListener]:
    with open_data_listener(LOOPBACK, [], 5.0) as made:
        yield made


def test_two_ranks_connect_once_for_each_purpose(listener: DataListener) -> None:
    with open_data_listener(LOOPBACK, [], 5.0) as other:
        addresses = [listener.listens_at, other.listens_at]
        found: dict[PeerConnection, socket.socket] = {}
        purposes = (-1, 0, 1)

        def call() -> None:
            found.update(
                connect_peers(1, other, addresses, {PeerConnection(0, one): None for one in purposes}, 20.0)
            )

        caller = threading.Thread(target=call)
        caller.start()
        accepted = connect_peers(
            0, listener, addresses, {PeerConnection(1, one): None for one in purposes}, 20.0
        )
        caller.join()
        assert found.keys() == {PeerConnection(0, one) for one in purposes}
        for purpose in purposes:
            ends = found[PeerConnection(0, purpose)], accepted[PeerConnection(1, purpose)]
            assert ends[0].getpeername() == ends[1].getsockname()
            for end in ends:
                end.close()


def test_a_rank_that_refuses_for_a_while_cannot_be_reached(listener: DataListener) -> None:
    with socket.create_server((LOOPBACK, 0)) as closed:
        port = closed.getsockname()[1]
    addresses = [ListenAddress(LOOPBACK, port, bytes(32)), listener.listens_at]
    with pytest.raises(RuntimeFailure, match=f"rank 0 from .* at .*:{port} cannot be reached: .*refused"):
        connect_peers(1, listener, addresses, {PEER: None}, 30.0)


def test_a_rank_whose_queue_is_full_is_only_late(listener: DataListener) -> None:
    with socket.create_server((LOOPBACK, 0), backlog=0) as full, ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        addresses = [ListenAddress(LOOPBACK, full.getsockname()[1], bytes(32)), listener.listens_at]
        late = r"connect: Timed out waiting 1800ms: rank 0 did not come within 1\.8 s; .*: no answer"
        with pytest.raises(TimedOut, match=late):
            connect_peers(1, listener, addresses, {PEER: None}, 1.8)


def test_an_impostor_that_listens_is_never_connected(listener: DataListener) -> None:
    with open_data_listener(LOOPBACK, [], 5.0) as impostor:
        forged = ListenAddress(LOOPBACK, impostor.listens_at.port, bytes(32))  # not the impostor's token
        addresses = [forged, listener.listens_at]
        over = threading.Event()

        def serve() -> None:
            while not over.wait(0.01):
                assert impostor.serve() == []

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(TimedOut, match="the secret may differ"):
            connect_peers(1, listener, addresses, {PEER: None}, 2.5)
        over.set()
        server.join()
        assert "it does not know the job's secret" in (impostor.describe() or "")


@pytest.mark.parametrize(("said", "size"), [(None, 128 << 10), ("16KiB", 16 << 10), ("1MB", 1_000_000)])
def test_what_waits_in_a_socket_is_bounded_as_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, said: str | None, size: int
) -> None:
    monkeypatch.delenv("WEFT_UNSENT", raising=False)
    if said is not None:
        monkeypatch.setenv("WEFT_UNSENT", said)
    assert find_unsent_bytes() == size


@pytest.mark.parametrize("said", ["", "much", "1KiB", "1TiB", "-5"])
def test_a_bound_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("WEFT_UNSENT", said)
    with pytest.raises(InputError, match="WEFT_UNSENT"):
        find_unsent_bytes()
