"""Soak tests on real processes: they find nothing in the runtime, and what is wrong on purpose they find."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.errors import RuntimeFailure
from weft.soak import Settings, SoakOutcome, run
from weft.soak.random_operations import choose_algorithm, make_episode

WEFT = Path(sys.executable).with_name("weft")
BROKEN = Path(__file__).with_name("broken_worker.py")


def soak(
    fault: str | None = None, *, ranks: int = 2, seconds: float = 0.1, timeout: float = 20.0, **more: object
) -> SoakOutcome:
    settings = Settings(ranks=ranks, seconds=seconds, timeout=timeout, **{"seed": 3, **more})
    if fault is None:
        return run(settings, lambda _: None)
    return run(settings, lambda _: None, command=(sys.executable, str(BROKEN), fault))


def find_episode(ranks: int, ending: str) -> int:
    """Number of an episode that ends so."""
    settings = Settings(ranks=ranks, seed=3, seconds=1.0)
    return next(
        number
        for number in range(100)
        if make_episode(settings, number, choose_algorithm(settings, number)).ending == ending
    )


@pytest.mark.parametrize(
    ("ranks", "transport"),
    [(3, "auto"), (2, "tcp"), (2, "copy"), pytest.param(2, "auto", marks=pytest.mark.slow)],
)
def test_a_few_episodes_find_nothing(ranks: int, transport: str) -> None:
    seen: list[int] = []
    settings = Settings(
        ranks=ranks,
        seed=ranks,
        seconds=90.0,
        episodes=3,
        transport=transport,
        timeout=60.0,
        kills=transport == "auto",
    )
    outcome = run(settings, lambda tally: seen.append(tally.operations.total()))
    assert outcome.failure is None, outcome.to_dict()
    assert outcome.tally.episodes == 3
    assert outcome.tally.operations.total() > 100
    assert outcome.tally.operations["all_reduce"] > 20
    assert seen == sorted(seen)


def test_killed_ranks_are_named_by_all_others_and_started_again() -> None:
    outcome = soak(ranks=3, start=find_episode(3, "kill"), timeout=60.0)
    assert outcome.failure is None, outcome.to_dict()
    assert (outcome.tally.kills, len(outcome.tally.losses)) == (1, 2)
    assert min(outcome.tally.losses) > 0


def test_a_result_that_is_wrong_in_one_bit_is_found() -> None:
    outcome = soak("flip_a_bit", seconds=90.0, timeout=60.0, kills=False)
    failure = outcome.failure
    assert failure is not None
    assert failure.kind == "wrong"
    assert re.match(r"rank 1: 1 elements are wrong after all_reduce of \d+ x \w+", failure.text)
    assert (
        outcome.repeat
        == f"weft soak --seconds 90 --ranks 2 --seed 3 --start {failure.episode} --timeout 60 --no-kills"
    )


def test_an_operation_that_hangs_is_found_by_its_deadline() -> None:
    outcome = soak("sleep", seconds=200.0, timeout=4.0, kills=False)
    failure = outcome.failure
    assert failure is not None
    assert failure.kind == "hang"
    assert "rank 1 did not come within 4 s" in failure.text
    assert "reduce of" in failure.steps[1]
    assert outcome.tally.seconds < 100  # it sleeps for much longer


def test_a_rank_that_crashes_is_found() -> None:
    outcome = soak("crash", seconds=90.0, timeout=60.0, kills=False)
    assert outcome.failure is not None
    assert outcome.failure.kind == "crash"
    assert "rank 0: ended with SIGSEGV" in outcome.failure.text


def test_survivors_that_name_the_wrong_rank_are_found() -> None:
    outcome = soak("blame_another", ranks=3, start=find_episode(3, "kill"), timeout=60.0)
    assert outcome.failure is not None
    assert outcome.failure.kind == "wrong"
    assert re.search(r"rank \d \(pid \d+\) was killed, but this was said: .*was lost", outcome.failure.text)


def test_descriptors_that_are_left_open_are_found() -> None:
    outcome = soak("leak", seconds=90.0, episodes=12, kills=False, timeout=60.0)
    assert outcome.failure is not None
    assert outcome.failure.kind == "leak"
    assert "descriptors grew by" in outcome.failure.text


def test_a_worker_that_cannot_start_is_an_error() -> None:
    with pytest.raises(RuntimeFailure, match="rank 0 did not start; it said: no such thing"):
        run(
            Settings(ranks=2, seed=1, seconds=1.0),
            lambda _: None,
            command=(sys.executable, "-c", "raise SystemExit('no such thing')"),
        )


def children_of(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_test_that_is_stopped_leaves_no_process(number: signal.Signals) -> None:
    command = ["env", "--default-signal=INT,TERM", WEFT, "soak", "--seconds", "60", "--ranks", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as test:
        children: set[int] = set()
        deadline = time.monotonic() + 60
        while len(children) < 3 and time.monotonic() < deadline:  # two ranks and the guard
            time.sleep(0.05)
            children = children_of(test.pid)
        test.send_signal(number)
        _, err = test.communicate(timeout=60)
    assert len(children) == 3
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    assert test.returncode == codes[number], err
    for _ in range(3000):
        left = [pid for pid in children if Path(f"/proc/{pid}").exists() and is_running(pid)]
        if not left:
            return
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    pytest.fail(f"left behind: {left}")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_the_command_prints_one_document() -> None:
    words = [WEFT, "soak", "--seconds", "0.1", "--ranks", "2", "--seed", "5", "--no-kills", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["failure"] is None
    assert document["settings"]["seed"] == 5
    assert document["episodes"] == 1
    assert document["operations"]["all_reduce"] > 0
