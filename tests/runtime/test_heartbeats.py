"""What a rank makes of the words that come over the connection for heartbeats, whatever they say."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from weft import _runtime

LEFT, LOST, FROZEN, CUT, NEWS = 2, 3, 4, 5, 8
TIMED_OUT, LAST_STATUS = 5, 9
NOTHING = (0, 0, -1, -1, 0, 0)
JOB_RANKS = 4
MARK = JOB_RANKS - 1
"""A rank whose loss is told last: once it is known, everything before it was heard."""

Tell = Callable[[bytes], None]


def word(
    kind: int,
    rank: int = 0,
    cut: tuple[int, int, int] = (-1, -1, 0),
    news: tuple[int, int, int, int, int, int] = NOTHING,
) -> bytes:
    """One word as heartbeats.hpp lays it out, with the checksum that fits.

    News are the communicator, what the teller does, the teller, whom it blames, the channel and the status.
    """
    said = struct.pack("=IiiiiiiIQQiiiII", kind, rank, *cut, 0, 0, 0, *news, 0)
    return said + struct.pack("=I", _runtime.crc32c(said))


@pytest.fixture
def host() -> Iterator[_runtime.Host]:
    """This machine's part of rank 0, alone on it."""
    made = _runtime.Host(0, 1, 1 << 20, crowded=True, readable=False)
    made.start_watch(30_000, 60_000, [0], JOB_RANKS)
    yield made
    made.close()


@pytest.fixture
def tell(host: _runtime.Host) -> Iterator[Tell]:
    """Says something as rank 1, and returns when all of it was heard."""
    near, far = socket.socketpair()
    with near, far:
        beats = _runtime.Heartbeats(host, [-1, near.fileno(), -1, -1], 30_000, 60_000)

        def say(data: bytes) -> None:
            far.sendall(data + word(LOST, MARK))
            deadline = time.monotonic() + 30
            while all(rank != MARK for rank, _ in host.losses()):
                assert time.monotonic() < deadline
                time.sleep(0.001)

        yield say
        beats.close()


def test_a_cut_between_two_ranks_is_heard_of(host: _runtime.Host, tell: Tell) -> None:
    tell(word(CUT, cut=(0, 2, 1)))
    assert host.cut == (0, 2, 1)


@pytest.mark.parametrize(
    "cut",
    [
        (0, JOB_RANKS, 0),
        (JOB_RANKS, JOB_RANKS + 1, 0),
        (2**31 - 2, 2**31 - 1, 0),
        (1, 1, 0),
        (2, 1, 0),
        (0, 1, -1),
    ],
)
def test_a_cut_between_ranks_that_the_job_does_not_have_is_ignored(
    host: _runtime.Host, tell: Tell, cut: tuple[int, int, int]
) -> None:
    tell(word(CUT, cut=cut))
    assert host.cut is None


def test_losses_are_heard_of_and_those_of_unknown_ranks_ignored(host: _runtime.Host, tell: Tell) -> None:
    tell(word(LOST, -1) + word(FROZEN, 2) + word(LOST, JOB_RANKS) + word(LOST, 2**31 - 1))
    assert host.losses() == [(2, True), (MARK, False)]


def test_a_word_that_was_changed_on_its_way_is_dropped(host: _runtime.Host, tell: Tell) -> None:
    changed = bytearray(word(LOST, 2))
    changed[4] = 1
    tell(bytes(changed))
    assert host.losses() == [(MARK, False)]


def test_news_of_a_rank_replace_what_it_said_before(host: _runtime.Host, tell: Tell) -> None:
    assert host.news(1, 3) is None
    first = word(NEWS, news=(7, 11, 1, 2, 3, 0))
    tell(first + word(NEWS, news=(7, 11, 1, 3, 3, TIMED_OUT)))
    assert host.news(1, 3) == (7, 3, TIMED_OUT)
    assert host.news(1, 0) is None


@pytest.mark.parametrize(
    "news",
    [
        (7, 11, 2, 3, 0, 0),  # rank 1 does not speak for rank 2
        (7, 11, 0, 3, 0, 0),  # nor for this rank
        (7, 11, -1, 3, 0, 0),
        (7, 11, JOB_RANKS, 3, 0, 0),
        (7, 11, 1, JOB_RANKS, 0, 0),
        (7, 11, 1, -2, 0, 0),
        (7, 11, 1, 3, -1, 0),
        (7, 11, 1, 3, _runtime.CHANNELS, 0),
        (7, 11, 1, 3, 2**31 - 1, 0),
        (7, 11, 1, 3, 0, LAST_STATUS + 1),
    ],
)
def test_news_that_cannot_be_are_ignored(
    host: _runtime.Host, tell: Tell, news: tuple[int, int, int, int, int, int]
) -> None:
    tell(word(NEWS, news=news))
    assert all(
        host.news(rank, channel) is None for rank in range(JOB_RANKS) for channel in range(_runtime.CHANNELS)
    )
