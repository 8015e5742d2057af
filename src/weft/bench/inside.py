"""Measuring inside a job that somebody else started: every rank measures, and all learn what all measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from weft.bench.peers.weft_peer import WeftRank
from weft.bench.rank_tasks import RankTasks

if TYPE_CHECKING:
    from weft.bench.control_messages import Message


_ANSWER_BYTES: Final = 4096
"""Room for the longest answer: a few numbers, an algorithm's name and a digest."""


class OwnJob:
    """The job that this process is a rank of, as a contestant.

    Parameters
    ----------
    settings, timeout
        As for `weft.bench.peers.weft_peer.WeftRank`.
    """

    name = "weft"

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        self._rank = WeftRank(settings, timeout)
        self._player = RankTasks(self._rank)
        self.versions = self._rank.versions()
        self.rank = self._rank.rank

    def do(self, order: Message) -> list[Message]:
        """Carry out an order here, as every rank does, and exchange the answers."""
        answer = msgspec.json.encode(self._player.do(order)).ljust(_ANSWER_BYTES)
        sent = np.frombuffer(answer, np.int32)
        parts = self._rank.communicator.all_gather(sent).reshape(-1, sent.size)
        return [msgspec.json.decode(part.tobytes()) for part in parts]

    def close(self) -> None:
        """Leave the job."""
        self._rank.close()
