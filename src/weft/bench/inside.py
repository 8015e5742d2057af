"""Measuring inside a job that somebody else started: every rank measures, and all learn what all measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.bench.contestants.own import WeftRank
from weft.bench.player import Player

if TYPE_CHECKING:
    from weft.bench.channel import Message


class Here:
    """The job that this process is a rank of, as a contestant.

    Parameters
    ----------
    settings, timeout
        As for `weft.bench.contestants.own.WeftRank`.
    """

    name = "weft"

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        self._rank = WeftRank(settings, timeout)
        self._player = Player(self._rank)
        self._timeout = timeout
        self.versions = self._rank.versions()
        self.rank = self._rank.rank

    def do(self, order: Message) -> list[Message]:
        """Carry out an order here, as every rank does, and exchange the answers."""
        answer = msgspec.json.encode(self._player.do(order))
        parts = self._rank.roster.exchange(answer, timeout=self._timeout)
        return [msgspec.json.decode(part) for part in parts]

    def close(self) -> None:
        """Leave the job."""
        self._rank.close()
