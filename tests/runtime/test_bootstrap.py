"""Ranks meet over loopback, each in its process, whatever else knocks at the door."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from runtime.hostile import Job, hung_up, prove, read
from support.jobs import PATIENCE

from weft import limits
from weft.errors import InputError, LimitError, RuntimeFailure, TimedOut
from weft.runtime import Member, Place, join
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.members import LossVerdict, decode, host_identity


def frame_from(channel: handshake.FramedConnection) -> tuple[handshake.FrameKind, bytes]:
    """The next frame, waited for."""
    while (frame := channel.receive()) is None:
        assert select.select([channel], [], [], 30)[0]
    return frame


# --- ranks as they should be


def test_a_job_of_one_needs_nobody() -> None:
    with join(Place(0, 1), timeout=60) as plane:
        assert plane.exchange(b"mine") == [b"mine"]
        plane.barrier()
    assert (plane.rank, plane.size) == (0, 1)
    assert plane.members == (Member(0, socket.gethostname()[:64], os.getpid(), host_identity(), job_rank=0),)


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_meet_and_exchange_whatever_the_order_they_come_in(size: int) -> None:
    then = """
for round in range(3):
    parts = plane.exchange(bytes([plane.rank]) * plane.rank * (round + 1), 20)
    assert parts == [bytes([r]) * r * (round + 1) for r in range(plane.size)], parts
plane.barrier(20)
assert plane.exchange(b"x" * 65536, 20) == [b"x" * 65536] * plane.size
assert len({m.boot_id for m in plane.members}) == 1
"""
    with Job(size, then=then) as job:
        job.start(*range(size - 1, -1, -1))
        assert job.results() == {rank: {"done": True} for rank in range(size)}


def test_every_rank_gets_the_same_members() -> None:
    with Job(3) as job:
        job.start(0, 1, 2)
        pids = [[rank, process.pid] for rank, process in job.processes.items()]
        assert [job.wait_joined(rank) for rank in range(3)] == [{"joined": pids}] * 3


def test_a_job_can_meet_again_at_the_same_place() -> None:
    again = "plane.close()\nwith join(find_place(), timeout=20) as second:\n    second.barrier(20)"
    with Job(3, then=again) as job:
        job.start(0, 1, 2)
        assert job.results() == {rank: {"done": True} for rank in range(3)}


def test_rank_0_listens_on_loopback_only() -> None:
    with Job(2) as job:
        job.start(0)
        job.connect().close()
        listening = {
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path("/proc/net", name).read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{job.port:04X}")
        }
        assert listening == {f"0100007F:{job.port:04X}"}


# --- ranks that are missing


def test_absent_ranks_are_named_by_all_that_came() -> None:
    with Job(5, timeout=3) as job:
        job.start(0, 2, 3)
        for result in job.results().values():
            assert (result["error"], result["missing"]) == ("TimedOut", [1, 4])
            assert result["text"].startswith("join: Timed out waiting ")
            assert 0 < result["seconds"] <= 3


def test_an_absent_rank_0_is_named_with_the_place_that_was_tried() -> None:
    with Job(2) as job:
        late = r"join: Timed out waiting 300ms: rank 0 did not come within .* rank 1 tried"
        with pytest.raises(TimedOut, match=late) as caught:
            join(job.place(1), timeout=0.3)
        assert f"127.0.0.1:{job.port}: Connection refused" in str(caught.value)


def test_a_rank_that_dies_while_others_still_come_is_named_at_once() -> None:
    with Job(3, timeout=60) as job:
        job.start(0)
        connection, _, channel = prove(job, job.place(1))
        assert frame_from(channel)[0] is handshake.FrameKind.ADMITTED
        connection.close()
        result = job.result(0)
        assert (result["error"], result["rank"], result["op"]) == ("PeerLost", 1, "join")


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_during_an_exchange_is_named_by_all_others(victim: int) -> None:
    wait = f"import time\nif plane.rank == {victim}: time.sleep(60)\nplane.exchange(b'', 50)"
    with Job(4, then=wait) as job:
        job.start(0, 1, 2, 3)
        for rank in range(4):
            job.wait_joined(rank)
        job.processes[victim].send_signal(signal.SIGKILL)
        pid = job.processes[victim].pid
        for rank in {0, 1, 2, 3} - {victim}:
            result = job.result(rank)
            assert (result["error"], result["rank"], result["pid"]) == ("PeerLost", victim, pid)
            assert result["op"] == "exchange"


@pytest.mark.parametrize("late", [(2,), (0,), (1, 3)])
def test_ranks_that_do_not_come_to_a_barrier_are_named_by_all_others(late: tuple[int, ...]) -> None:
    wait = f"import time\nif plane.rank in {late}: time.sleep(30)\nplane.barrier(2)"
    with Job(4, then=wait) as job:
        job.start(0, 1, 2, 3)
        for rank in set(range(4)) - set(late):
            result = job.result(rank)
            assert (result["error"], result["missing"]) == ("TimedOut", list(late))
            assert 0 < result["seconds"] <= 2


def test_the_shortest_patience_decides_and_names_the_right_rank() -> None:
    wait = "import time\nif plane.rank == 2: time.sleep(30)\nplane.barrier([50, 2, 50][plane.rank])"
    with Job(3, then=wait) as job:
        job.start(0, 1, 2)
        assert [job.result(rank)["missing"] for rank in (0, 1)] == [[2], [2]]


def test_a_rank_0_that_comes_late_is_not_blamed_for_one_that_never_comes() -> None:
    wait = "time.sleep([2, 0, 30][plane.rank])\nplane.barrier(5)"
    with Job(3, then=wait) as job:
        job.start(0, 1, 2)
        assert [job.result(rank)["missing"] for rank in (0, 1)] == [[2], [2]]


def test_a_call_answered_just_in_time_does_not_end_the_next_one() -> None:
    # Rank 1's time is over before rank 0 comes, but rank 0 comes within its grace.
    wait = "time.sleep([0.7, 0][plane.rank])\nplane.barrier([20, 0.5][plane.rank])\nplane.barrier(20)"
    with Job(2, then=wait) as job:
        job.start(0, 1)
        assert job.results() == {0: {"done": True}, 1: {"done": True}}


def test_ranks_in_different_calls_are_told_so() -> None:
    differ = "plane.exchange(b'', 20) if plane.rank == 1 else plane.barrier(20)"
    with Job(3, then=differ) as job:
        job.start(0, 1, 2)
        for result in job.results().values():
            assert result["error"] == "RuntimeFailure"
            assert "rank 1 is in exchange while rank 0 is in barrier" in result["text"]


def test_a_control_plane_is_of_no_use_after_an_error_or_when_closed() -> None:
    twice = """
try:
    plane.barrier(2.5 if plane.rank else 20)
except WeftError as error:
    assert type(error).__name__ == "TimedOut", error
plane.barrier(20)
"""
    with Job(3, then=twice) as job:
        job.start(0, 1)
        job.start(2, then="import time; time.sleep(30)")
        for rank in (0, 1):
            text = "this control plane cannot be used any more: barrier: Timed out waiting [0-9]+ms: rank 2"
            assert re.search(text, job.result(rank)["text"])
    plane = join(Place(0, 1), timeout=60)
    plane.close()
    with pytest.raises(RuntimeFailure, match="cannot be used any more: it was closed"):
        plane.barrier()


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_wait_that_cannot_be_is_refused(timeout: float) -> None:
    with pytest.raises(InputError, match="timeout"):
        join(Place(0, 1), timeout=timeout)
    with pytest.raises(InputError, match="timeout"):
        join(Place(0, 1), timeout=60).barrier(timeout)


def test_a_payload_too_large_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(LimitError, match="bytes to exchange: 65,537 is more than the 65,536"):
        join(Place(0, 1), timeout=60).exchange(b"x" * 65537)


# --- places that cannot be


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            Place(0, 2, launcher="torchrun", address="127.0.0.1", port=1),
            "torchrun makes none; give every",
        ),
        (Place(0, 2, secret=b"x" * 32), r"set WEFT_ADDRESS \(.*\) and WEFT_PORT \("),
        (Place(0, 2, secret=b"x" * 32, address="192.0.2.1", port=4000), "no address of this machine"),
        (Place(0, 2, secret=b"x" * 32, address="no such host", port=4000), "WEFT_ADDRESS: no such host"),
    ],
)
def test_a_place_without_a_secret_or_meeting_point_says_what_to_set(place: Place, text: str) -> None:
    with pytest.raises(InputError, match=text):
        join(place, timeout=5)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place = Place(0, 2, secret=b"x" * 32, address="127.0.0.1", port=port)
        with pytest.raises(RuntimeFailure, match=f"cannot listen at 127.0.0.1:{port}: .*; set WEFT_PORT"):
            join(place, timeout=0.2)


# --- peers as they should not be: each is dropped, and the job starts all the same


def silent(job: Job) -> socket.socket:
    return job.connect()


def garbage(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
    return connection


def flood(job: Job) -> socket.socket:
    connection = job.connect()
    connection.setblocking(False)
    try:
        while True:
            connection.send(b"\0" * 65536)
    except (BlockingIOError, ConnectionError):
        connection.setblocking(True)
    return connection


def overheard(job: Job) -> bytes:
    """The hello of a true rank 1, as somebody may have recorded it."""
    return handshake.Hello.of(job.place(1)).sign(job.secret)


def truncated(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(overheard(job)[:-1])
    connection.shutdown(socket.SHUT_WR)
    return connection


def said() -> bytes:
    """What a true rank 1 says after its proof: its record."""
    record = msgspec.msgpack.encode(Member.here(1))
    return struct.pack("!H", len(record)) + record


def unsigned(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(handshake.Hello.of(job.place(1)).encode() + os.urandom(32))
    return connection


def wrong_secret(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(handshake.Hello.of(job.place(1)).sign(os.urandom(32)))
    return connection


def old_version(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(b"WEFT\0\1" + os.urandom(20))
    return connection


def forged(job: Job) -> socket.socket:
    """A hello that was overheard, and an answer that is made up."""
    connection = job.connect()
    connection.sendall(overheard(job))
    read(connection, handshake.CHALLENGE_BYTES)
    connection.sendall(os.urandom(32) + said())
    return connection


def reflected(job: Job) -> socket.socket:
    """Rank 0's own proof, sent back to it."""
    connection = job.connect()
    connection.sendall(overheard(job))
    proof = read(connection, handshake.CHALLENGE_BYTES)[32:]
    connection.sendall(proof + said())
    return connection


def replayed(job: Job) -> socket.socket:
    """A hello that rank 0 has heard before."""
    hello = overheard(job)
    with job.connect() as first:
        first.sendall(hello)
        read(first, handshake.CHALLENGE_BYTES)
    connection = job.connect()
    connection.sendall(hello)
    return connection


def long_record(job: Job) -> socket.socket:
    connection = job.connect()
    connection.sendall(overheard(job))
    read(connection, handshake.CHALLENGE_BYTES)
    connection.sendall(struct.pack("!32sH", os.urandom(32), 65535))
    return connection


HOSTILE = [
    silent,
    garbage,
    flood,
    truncated,
    unsigned,
    wrong_secret,
    old_version,
    forged,
    reflected,
    replayed,
    long_record,
]


@pytest.mark.parametrize("attack", HOSTILE, ids=lambda attack: attack.__name__)
def test_a_peer_without_the_secret_never_stalls_the_job(attack: Callable[[Job], socket.socket]) -> None:
    with Job(3) as job:
        job.start(0)
        peers = [attack(job) for _ in range(3)]
        job.start(1, 2)
        assert job.results() == {rank: {"done": True} for rank in range(3)}
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("attack", HOSTILE[1:], ids=lambda attack: attack.__name__)
def test_a_peer_without_the_secret_is_hung_up_on(attack: Callable[[Job], socket.socket]) -> None:
    with Job(2) as job:
        job.start(0)
        with attack(job) as peer:
            peer.settimeout(30)
            while read(peer, 4096):  # what rank 0 had said before
                pass
        assert job.processes[0].poll() is None


def test_a_silent_peer_is_hung_up_on_in_the_end() -> None:
    with Job(2) as job:
        job.start(0)
        with job.connect() as peer:
            assert hung_up(peer)


def drip(connection: socket.socket, byte: int) -> bool:
    """Send one byte, and wait a little; whether the other side has hung up."""
    try:
        connection.send(bytes([byte]))
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_peer_that_drips_is_hung_up_on_in_the_end() -> None:
    with Job(2) as job:
        job.start(0)
        with job.connect() as peer:
            hello = overheard(job)
            peer.settimeout(0.25)
            assert any(drip(peer, byte) for byte in hello[:-1])


def test_an_overheard_answer_admits_nobody_else() -> None:
    with Job(3) as job:
        job.start(0)
        first, answer, channel = prove(job, job.place(1))
        assert frame_from(channel)[0] is handshake.FrameKind.ADMITTED
        with job.connect() as replay:
            replay.sendall(handshake.Hello.of(job.place(2)).sign(job.secret))
            read(replay, handshake.CHALLENGE_BYTES)
            replay.sendall(answer)
            assert hung_up(replay)
        first.close()


def test_more_peers_than_there_is_room_for_cannot_keep_the_job_from_starting() -> None:
    with Job(3) as job:
        job.start(0)
        peers = [job.connect() for _ in range(3 * limits.MAX_PENDING_PEERS)]
        job.start(1, 2)
        assert job.results() == {rank: {"done": True} for rank in range(3)}
        for peer in peers:
            peer.close()


def test_a_rank_with_another_secret_is_told_so_at_its_deadline() -> None:
    with Job(2) as job:
        job.start(0)
        job.connect().close()
        with pytest.raises(TimedOut, match="hangs up: the secret may differ"):
            join(job.place(1, secret=os.urandom(32)), timeout=2 * PATIENCE)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"job": "other"}, "it belongs to another job: WEFT_JOB differs"),
        ({"size": 5}, "it counts 5 ranks, rank 0 counts 3"),
        ({"size": 5, "rank": 4}, "it counts 5 ranks, rank 0 counts 3"),
        ({"rank": 1}, "rank 1 is there already: host"),
    ],
)
def test_a_peer_that_knows_the_secret_but_has_no_place_is_told_why(
    changes: dict[str, object], text: str
) -> None:
    with Job(3) as job:
        job.start(0)
        connection, _, channel = prove(job, job.place(1))
        assert frame_from(channel)[0] is handshake.FrameKind.ADMITTED
        with pytest.raises(InputError, match=f"127.0.0.1:{job.port} refuses this process: {text}"):
            join(replace(job.place(2), **changes), timeout=20)  # type: ignore[arg-type]
        job.start(2)
        kind, _ = frame_from(channel)
        assert kind is handshake.FrameKind.WELCOME
        connection.close()
        assert [job.result(rank)["error"] for rank in (0, 2)] == ["PeerLost"] * 2


@pytest.mark.parametrize("record", [b"", b"\xc1", b"\x80", b"x" * 512])
def test_a_record_that_is_none_is_refused(record: bytes) -> None:
    with Job(2) as job:
        job.start(0)
        connection, _, channel = prove(job, job.place(1), record)
        kind, reason = frame_from(channel)
        assert kind is handshake.FrameKind.REFUSED
        assert b"cannot be read" in reason
        connection.close()
        job.start(1)
        assert job.results() == {0: {"done": True}, 1: {"done": True}}


def test_a_deadline_says_who_was_turned_away_and_why() -> None:
    with Job(2, timeout=3) as job:
        job.start(0)
        with garbage(job):
            text = job.result(0)["text"]
        assert "rank 1 did not come within 3 s; 1 connection turned away" in text
        assert "does not speak Weft's protocol" in text


# --- members that turn bad: an error, never a hang and never a large read


@pytest.mark.parametrize(
    ("bytes_sent", "text"),
    [
        (struct.pack("!BI", 5, 65537), "a frame of 65,537 bytes came, where at most 65,536 are expected"),
        (struct.pack("!BI", 5, 2**32 - 1), "a frame of 4,294,967,295 bytes came"),
        (struct.pack("!BI", 6, 4) + b"\0" * 36, "a frame was changed on its way"),
    ],
)
def test_a_frame_too_large_or_changed_ends_the_exchange(bytes_sent: bytes, text: str) -> None:
    with Job(2) as job:
        job.start(0)
        connection, _, channel = prove(job, job.place(1))
        assert [frame_from(channel)[0] for _ in range(2)] == [
            handshake.FrameKind.ADMITTED,
            handshake.FrameKind.WELCOME,
        ]
        connection.setblocking(True)
        connection.sendall(bytes_sent)
        result = job.result(0)
        assert result["error"] == "RuntimeFailure"
        assert text in result["text"]
        kind, verdict = frame_from(channel)
        assert kind is handshake.FrameKind.FAILED
        assert text in str(decode(verdict, LossVerdict, "rank 0").error())
        connection.close()


def test_an_impostor_at_rank_0s_place_learns_nothing_and_admits_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        place = Place(1, 2, address="127.0.0.1", port=impostor.getsockname()[1], secret=os.urandom(32))
        impostor.settimeout(0.01)
        pid = os.fork()
        if pid == 0:  # answers every hello with a proof that is none
            for _ in range(200):
                try:
                    with impostor.accept()[0] as victim:
                        read(victim, handshake.HELLO_BYTES)
                        victim.sendall(os.urandom(64))
                        read(victim, 1)
                except TimeoutError:
                    continue
            os._exit(0)
        try:
            with pytest.raises(TimedOut, match="the listener there does not know the job's secret"):
                join(place, timeout=1)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
