"""The second half of a step: averages are gathered, waited for before they are needed, and applied.

`DeAR.step` starts the gathers (`GatherPhase.send`). A module that is about to run waits for those of its own
parameters (`GatherPhase.finish_from`), and `DeAR.synchronize` for all of them (`GatherPhase.finish_all`).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from weft.torch.dear.gradient_bucket import BucketStage
from weft.torch.dear.sharding import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.dear.gradient_bucket import GradientBucket
    from weft.torch.dear.partial_step import Captured, Replicas
    from weft.torch.dear.reduce_phase import ReducePhase


class GatherPhase:
    """The gathers of all buckets, and the updates of the parameters.

    Parameters
    ----------
    reduce_phase
        The first half of the step, which has the buckets.
    updater
        Updates all parameters with gathered gradients, or this rank's share before parameters are gathered.
    groups
        Returns the optimizer's groups of parameters, whose options its step may change.
    """

    def __init__(
        self,
        reduce_phase: ReducePhase,
        updater: Replicas | Shards,
        groups: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._reduce_phase, self._updater, self._groups = reduce_phase, updater, groups
        self._shards = updater if isinstance(updater, Shards) else None
        self._captured: Captured = []
        self._in_order: list[GradientBucket] = []
        self._places: dict[GradientBucket, int] = {}

    def arrange(self) -> None:
        """Take the buckets of another fusion plan, in the order in which the forward pass needs them."""
        phase = self._reduce_phase
        self._in_order = [phase.buckets[number] for number in phase.plan.gathering]
        self._places = {bucket: place for place, bucket in enumerate(self._in_order)}

    def send(self, captured: Captured) -> None:
        """Start to gather the results of a step, which are applied with these options."""
        self._captured = captured
        reduce_phase, channel = self._reduce_phase, self._reduce_phase.channel
        if reduce_phase.plan.policy == "wfbp":
            self._finish(reduce_phase.buckets)
            return
        if self._shards is None:
            if not channel.ordered:
                reduce_phase.wait_for_sums()
            with channel.together():
                for bucket in self._in_order:
                    bucket.start_gathering(bucket.flat)
            return
        for bucket in self._in_order:
            with channel.timed("wait", bucket.number):
                bucket.wait()
            self._apply([bucket])
            self._shards.start_gathering(bucket)

    def finish_all(self) -> None:
        """Wait for all gathers, and apply their results."""
        self._finish([bucket for bucket in self._in_order if bucket.stage is BucketStage.GATHERING])

    def finish_from(self, bucket: GradientBucket) -> None:
        """Wait for a bucket that is needed now, and apply it with those after it that are complete too."""
        complete = [bucket]
        for other in islice(self._in_order, self._places[bucket] + 1, None):
            if other.stage is not BucketStage.GATHERING or not other.is_done():
                break
            complete.append(other)
        self._finish(complete)

    def _finish(self, buckets: Sequence[GradientBucket]) -> None:
        """Wait for the gathers of buckets, and apply as many results at a time as are complete.

        One call of the optimizer costs as much as sending a small bucket.
        """
        place = 0
        while place < len(buckets):
            first = place
            with self._reduce_phase.channel.timed("wait", buckets[first].number):
                buckets[first].wait()
            place += 1
            while place < len(buckets) and buckets[place].is_done():
                buckets[place].wait()
                place += 1
            self._apply_results(buckets[first:place])

    def _apply_results(self, buckets: Sequence[GradientBucket]) -> None:
        if self._shards is None:
            for bucket in buckets:
                if not self._reduce_phase.channel.counts:
                    bucket.check_untouched()
            self._apply(buckets)
        for bucket in buckets:
            bucket.reopen()

    def _apply(self, buckets: Sequence[GradientBucket]) -> None:
        """Update the parameters of buckets, or this rank's pieces of them."""
        channel = self._reduce_phase.channel
        with channel.timed("wait"):
            unused = self._reduce_phase.vote_result().unused
        with channel.timed("update", buckets[0].number):
            changed = self._updater.update(buckets, self._captured, unused)
        for number, options in changed.items():
            self._groups()[number].update(options)
