"""Bytes to all ranks over collectives, of any length; too many are refused on all ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from weft.errors import LimitError
from weft.runtime import byte_exchange
from weft.runtime.byte_exchange import broadcast_bytes, exchange_bytes

PAYLOADS = [b"", b"a", b"four", b"x" * 4097]


class Words:
    """The collectives of one of several ranks, each of which is a thread."""

    def __init__(self, rank: int, rows: list[Any], together: threading.Barrier) -> None:
        self.rank, self._rows, self._together = rank, rows, together

    def gather_words(self, words: Any) -> Any:
        self._rows[self.rank] = words
        self._together.wait(20)
        table = np.stack(self._rows)
        self._together.wait(20)
        return table

    def broadcast_words(self, words: Any) -> Any:
        return self.gather_words(words)[0]


def on_all_ranks(call: Callable[[Words, bytes], Any], payloads: list[bytes]) -> list[Any]:
    rows: list[Any] = [None] * len(payloads)
    together = threading.Barrier(len(payloads))
    with ThreadPoolExecutor(len(payloads)) as pool:
        tasks = [
            pool.submit(call, Words(rank, rows, together), payload) for rank, payload in enumerate(payloads)
        ]
        return [task.exception() or task.result() for task in tasks]


def test_every_rank_gets_the_bytes_of_all_ranks() -> None:
    assert on_all_ranks(exchange_bytes, PAYLOADS) == [PAYLOADS] * len(PAYLOADS)


@pytest.mark.parametrize("first", PAYLOADS)
def test_every_rank_gets_the_bytes_of_rank_0(first: bytes) -> None:
    assert on_all_ranks(broadcast_bytes, [first, b"ignored", b""]) == [first] * 3


def test_too_many_bytes_are_refused_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_exchange, "_MAX_BYTES", 8)
    for call, payloads in ((exchange_bytes, [b"", b"x" * 9]), (broadcast_bytes, [b"x" * 9, b""])):
        found = on_all_ranks(call, payloads)
        assert [type(one) for one in found] == [LimitError, LimitError]
