"""Measure inside a job that is running already: every rank measures, and all exchange their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.bench.peers.weft_peer import WeftRank
from weft.bench.rank_tasks import RankTasks
from weft.runtime.byte_exchange import CommunicatorWords, exchange_bytes

if TYPE_CHECKING:
    from weft.bench.control_messages import Message


class OwnJob:
    """The job that this process is a rank of, as a peer to measure.

    Parameters
    ----------
    settings, timeout
        As for `weft.bench.peers.weft_peer.WeftRank`.
    """

    name = "weft"

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        self._rank = WeftRank(settings, timeout)
        self._tasks = RankTasks(self._rank)
        self.versions = self._rank.versions()
        self.rank = self._rank.rank

    def do(self, order: Message) -> list[Message]:
        """Carry out an order here, as every rank does, and exchange the answers."""
        answer = msgspec.json.encode(self._tasks.do(order))
        told = exchange_bytes(CommunicatorWords(self._rank.communicator, "bench answers"), answer)
        return [msgspec.json.decode(part) for part in told]

    def close(self) -> None:
        """Leave the job."""
        self._rank.close()
