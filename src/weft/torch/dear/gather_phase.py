"""From averages that each rank has a part of to parameters that all have: the second half of a step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from weft.torch.dear.gradient_bucket import BucketStage
from weft.torch.dear.sharding import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.dear.gradient_bucket import GradientBucket
    from weft.torch.dear.partial_step import Captured
    from weft.torch.dear.reduce_phase import ReducePhase
    from weft.torch.dear.replicas import Replicas


class GatherPhase:
    """Sends what this rank has, waits for what others have, and has parameters updated.

    Parameters
    ----------
    exchange
        Whose buckets.
    updater
        Who updates: everything with gathered gradients, or this rank's share before parameters are gathered.
    groups
        The optimizer's groups of parameters, whose options its step may change.
    """

    def __init__(
        self, exchange: ReducePhase, updater: Replicas | Shards, groups: Callable[[], list[dict[str, Any]]]
    ) -> None:
        self._exchange, self._updater, self._groups = exchange, updater, groups
        self._shards = updater if isinstance(updater, Shards) else None
        self._captured: Captured = []

    def send(self, captured: Captured) -> None:
        """Let the results of a step go to everybody, to be applied with these options."""
        self._captured = captured
        exchange, channel = self._exchange, self._exchange.channel
        if exchange.plan.policy == "wfbp":
            self._finish(exchange.buckets)
            return
        if self._shards is None and not channel.ordered:
            exchange.wait_for_sums()
        for bucket in self._in_order():
            if self._shards is None:
                bucket.start_gathering(bucket.flat)
                continue
            begun = time.perf_counter()
            assert bucket.reducing is not None
            bucket.reducing.wait()
            channel.report("wait", bucket.number, begun, time.perf_counter())
            self._apply([bucket])
            self._shards.start_gathering(bucket)

    def finish_all(self) -> None:
        """Apply all that is under way."""
        self._finish([bucket for bucket in self._in_order() if bucket.stage is BucketStage.GATHERING])

    def finish_from(self, bucket: GradientBucket) -> None:
        """Apply the results of a bucket that is needed now, and of those after it that have come as well."""
        order = self._in_order()
        come = [bucket]
        for other in order[order.index(bucket) + 1 :]:
            if other.stage is not BucketStage.GATHERING or not other.is_done():
                break
            come.append(other)
        self._finish(come)

    def _in_order(self) -> list[GradientBucket]:
        """Buckets as the forward pass needs them."""
        return [self._exchange.buckets[number] for number in self._exchange.plan.gathering]

    def _finish(self, buckets: Sequence[GradientBucket]) -> None:
        """Wait for the results of buckets, and apply them, as many at a time as have come.

        One call of the optimizer costs as much as a small bucket on its way.
        """
        place = 0
        while place < len(buckets):
            come = [buckets[place]]
            begun = time.perf_counter()
            come[0].wait()
            self._exchange.channel.report("wait", come[0].number, begun, time.perf_counter())
            place += 1
            while place < len(buckets) and buckets[place].is_done():
                buckets[place].wait()
                come.append(buckets[place])
                place += 1
            self._apply_results(come)

    def _apply_results(self, buckets: Sequence[GradientBucket]) -> None:
        if self._shards is None:
            for bucket in buckets:
                if not self._exchange.channel.counts:
                    bucket.check_untouched()
            self._apply(buckets)
        for bucket in buckets:
            bucket.reopen()

    def _apply(self, buckets: Sequence[GradientBucket]) -> None:
        """Update the parameters of buckets, or this rank's pieces of them."""
        report = self._exchange.channel.report
        asked = time.perf_counter()
        unused = self._exchange.outcome().unused
        begun = time.perf_counter()
        report("wait", -1, asked, begun)
        changed = self._updater.update(buckets, self._captured, unused)
        for number, news in changed.items():
            self._groups()[number].update(news)
        report("update", buckets[0].number, begun, time.perf_counter())
