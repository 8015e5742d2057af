"""A rank that is lost while its job starts is named by all others, in every phase, and soon.

`benchmarks/runtime/starts.py` has all ranks, phases and transports.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from functools import partial
from pathlib import Path

import pytest
from support.flooded import start, waiting_job
from support.floods import Flood, await_flood, end_flood, flooding
from support.hosts import make_network
from support.jobs import end, finish, start_ranks
from support.starts import Death, die

import weft
from weft.runtime.bootstrap.handshake import Hello

JOBS = Path(__file__).with_name("jobs")

SOON_S = 15.0
"""Milliseconds as a rule; much less than the deadlines, and enough for a busy machine."""
LATE_S = 60.0
"""The deadlines where a rank is to be named at once."""


def start_here(
    folder: Path, source: str, words: tuple[str, ...], variables: dict[str, str]
) -> list[subprocess.Popen[str]]:
    return start_ranks(folder, 4, source, *words, variables=variables, stdin=subprocess.PIPE)


@pytest.mark.parametrize(
    ("transport", "victim", "phase"),
    [
        ("tcp", 2, "admitted"),
        ("tcp", 1, "cards told"),
        ("auto", 2, "attach"),
        ("tcp", 3, "attached"),
        ("tcp", 0, "lines"),
        ("tcp", 2, "last line"),
        ("auto", 0, "barrier"),
    ],
)
def test_a_rank_killed_during_the_start_is_named_at_once(transport: str, victim: int, phase: str) -> None:
    ending = die(start_here, Death(victim, phase, "SIGKILL", transport, join_s=LATE_S, connect_s=LATE_S))
    assert ending.died
    assert ending.wrong == []
    assert ending.seconds < SOON_S


@pytest.mark.namespaces
def test_a_rank_killed_between_hosts_is_named_at_once() -> None:
    with make_network(2) as network:

        def start_there(
            folder: Path, source: str, words: tuple[str, ...], variables: dict[str, str]
        ) -> list[subprocess.Popen[str]]:
            return network.start(folder, 2, source, *words, variables=variables, stdin=subprocess.PIPE)

        ending = die(start_there, Death(3, "lines", "SIGKILL", "auto", join_s=LATE_S, connect_s=LATE_S))
    assert ending.died
    assert ending.wrong == []
    assert ending.seconds < SOON_S


@pytest.mark.parametrize(("victim", "phase"), [(1, "last line"), (0, "attached")])
def test_a_rank_frozen_while_connecting_is_named_at_the_deadline(victim: int, phase: str) -> None:
    ending = die(start_here, Death(victim, phase, "SIGSTOP", "tcp", join_s=LATE_S, connect_s=3.0))
    assert ending.died
    assert ending.wrong == []
    assert ending.seconds < 3.0 + 2.0 + SOON_S


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e9])
def test_a_time_for_connecting_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(weft.InputError, match="connect_timeout"):
        weft.init(connect_timeout=seconds)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_start_without_enough_descriptors_says_so_on_all_ranks(tmp_path: Path, transport: str) -> None:
    ranks = start_ranks(tmp_path, 3, JOBS / "starved.py", transport, stdin=subprocess.PIPE)
    try:
        started = []
        for more_files in range(2, 16):
            said = []
            for rank in ranks:
                assert rank.stdin is not None
                rank.stdin.write(f"{more_files}\n")
                rank.stdin.flush()
            for rank in ranks:
                assert rank.stdout is not None
                said.append(json.loads(rank.stdout.readline()))
            assert {one["left"] for one in said} == {0}, said
            started.append(not any(one["error"] for one in said))
            if started[-1]:
                continue
            for rank, one in enumerate(said):
                assert one["error"] == ("RuntimeFailure" if rank == 1 else "PeerLost"), said
                assert rank == 1 or one["text"].startswith("rank 1 (host "), said
                assert "Too many open files; " in one["text"], said
                assert "'ulimit -n'" in one["text"], said
        assert started == sorted(started)
        assert {*started} == {False, True}
    finally:
        for rank in ranks:
            end(rank)


def test_a_flood_of_unauthenticated_peers_does_not_keep_a_job_from_starting(tmp_path: Path) -> None:
    secret = secrets.token_bytes(32)
    flood = Flood(1000, 1000, 60.0, Hello.make(1, 4, "test").sign(secret), enough=500)
    with (
        waiting_job(4, tmp_path, secret, hold_s=0.5, files=256) as ranks,
        flooding(flood, tmp_path) as process,
    ):
        started = start(ranks, partial(await_flood, process))
        made = end_flood(process)
    assert started["seconds"] is not None, started
    assert min(made["silent"], made["speaking"]) >= 500, made


DIFFERENT = JOBS / "starts_different.py"


@pytest.mark.parametrize(("odd", "others"), [("tcp", "auto"), ("auto", "tcp"), ("copy", "auto")])
def test_ranks_of_different_transports_are_told_at_once(tmp_path: Path, odd: str, others: str) -> None:
    for rank, (code, output) in enumerate(finish(start_ranks(tmp_path, 3, DIFFERENT, odd, others))):
        assert code == 0, output
        seconds, message = output.strip().split(maxsplit=1)
        assert float(seconds) < SOON_S
        other, theirs, mine = (0, others, odd) if rank == 1 else (1, odd, others)
        assert message == (
            f"rank {other} uses transport {theirs!r}, rank {rank} {mine!r}; give all ranks the same"
        )
