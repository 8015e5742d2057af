"""The first half of a step: gradients are put into buckets and reduced while the backward pass runs.

Buckets start in the order of the plan and never in the order in which they happen to be full, which may
differ between ranks. A gradient that is missing at the end of the backward pass is sent as zeros. A vote, one
small sum per step, says which parameters got a gradient on any rank, so that a parameter that no rank used
stays as it is.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from weft.errors import DesyncError, InputError
from weft.torch.dear.gradient_bucket import BucketStage, GradientBucket

if TYPE_CHECKING:
    from weft.torch.dear.bucket_channel import BucketChannel, StartedOperation
    from weft.torch.dear.fusion_plan import FusionPlan, Parameters
    from weft.torch.dear.gradient_bucket import Slot

_HEAD: Final = 1  # seconds of the latest iteration, then one number per parameter


@dataclass(frozen=True)
class VoteResult:
    """The result of a vote, the same on all ranks.

    Parameters
    ----------
    seconds
        The time of the latest iteration, mean of all ranks.
    unused
        The numbers of the parameters that no rank has a gradient of.
    """

    seconds: float
    unused: frozenset[int]


class ReducePhase:
    """The buckets of a fusion plan, and their reduction.

    Parameters
    ----------
    channel
        The ranks that take part, and how buckets are sent.
    parameters
        The parameters that are trained.
    accumulates
        Whether a gradient that was not cleared is added to, as torch does; not possible where a bucket has
        only a part of the averages at the end.
    """

    plan: FusionPlan
    """The fusion plan that the buckets are made by."""

    def __init__(self, channel: BucketChannel, parameters: Parameters, *, accumulates: bool) -> None:
        self.channel, self.parameters = channel, parameters
        self.buckets: list[GradientBucket] = []
        self.slots: list[Slot] = []
        self.serial = False
        self._accumulates = accumulates
        self._next = 0
        self._finished = False
        self._last_finish = 0.0
        self._vote: StartedOperation | None = None
        self._vote_result: VoteResult | None = None

    def arrange(self, plan: FusionPlan) -> None:
        """Make the buckets of another plan; no operation may be running, and every rank calls this."""
        what = f"{plan.digest} {self.parameters.signature} {self._accumulates}"
        mark = torch.tensor([int(hashlib.sha256(what.encode()).hexdigest()[:12], 16)])
        table = self.channel.gather_rows(mark)
        if (other := (table != mark).any(1).nonzero()).numel():
            raise DesyncError(int(other[0]), "DeAR: agreeing on a fusion plan")
        kept = {slot.number: slot.view.clone() for slot in self.slots if slot.parameter.grad is slot.view}
        self.buckets = []  # before the new ones, so that their memory can be used again
        self.slots = []
        self.plan = plan
        self.buckets = [
            GradientBucket(self.channel, self.parameters, group, number, accumulates=self._accumulates)
            for number, group in enumerate(plan.groups)
        ]
        self.slots = sorted((slot for b in self.buckets for slot in b.slots), key=lambda slot: slot.number)
        for number, grad in kept.items():
            self.parameters.tensors[number].grad = grad
        self._vote = None
        self._ballot = torch.ones(_HEAD + len(self.slots))
        self._start_vote = self.channel.repeated_sum(self._ballot)
        self._next = 0
        self._finished = False

    def take(self, number: int) -> None:
        """Put a gradient into its bucket, within the backward pass; start buckets that are full."""
        slot = self.slots[number]
        bucket = slot.bucket
        bucket.take(slot)
        if bucket.missing:
            return
        self.channel.check()
        if self.serial:
            bucket.collect()
        else:
            self._start_full()

    def finish_backward(self) -> None:
        """Start the remaining buckets and the vote, after the backward pass; further calls do nothing."""
        if self._finished:
            return
        self.channel.check()
        before, self._last_finish = self._last_finish, time.perf_counter()
        seconds = self._last_finish - before if before else 0.0
        complete = not any(bucket.missing for bucket in self.buckets)
        for bucket in self.buckets:
            bucket.fill()
        if self.serial:
            for bucket in self.buckets:
                bucket.start(whole=self.plan.policy == "wfbp")
                bucket.wait()
        else:
            self._start_full()
        if self._vote is not None:
            self._vote.wait()  # of a step that was left out
        ballot = self._ballot.numpy()
        ballot[_HEAD:] = 1.0 if complete else [slot.here for slot in self.slots]
        ballot[0] = seconds / self.channel.size
        is_empty = not complete and not ballot[_HEAD:].any()
        self._vote, self._vote_result = self._start_vote(), None
        self._finished = True
        for bucket in self.buckets:
            bucket.check_untouched()
        if is_empty and len(self.vote_result().unused) == len(self.slots):
            self.wait_for_sums()
            self.next_round()
            raise InputError("step() without gradients on any rank: call backward() first")

    def vote_result(self) -> VoteResult:
        """Return the result of the vote, once it is there."""
        if self._vote_result is None:
            assert self._vote is not None
            self._vote.wait()
            self._vote = None
            votes = self._ballot.numpy()
            unused = () if votes[_HEAD:].all() else (votes[_HEAD:] == 0).nonzero()[0].tolist()
            self._vote_result = VoteResult(float(votes[0]), frozenset(unused))
        return self._vote_result

    def wait_for_sums(self) -> None:
        """Return once this rank has the averages of its own part of every bucket."""
        with self.channel.timed("wait"):
            for bucket in self.buckets:
                if bucket.reducing is not None:
                    bucket.reducing.wait()

    def own_parts(self) -> list[torch.Tensor]:
        """Return this rank's own part of each bucket, without padding."""
        whole = self.plan.policy == "wfbp"
        found = []
        for bucket in self.buckets:
            mine = bucket.cut.mine
            own = bucket.flat[mine] if whole else bucket.cut.own(bucket.flat)
            found.append(own[: max(0, min(mine.stop, bucket.elements) - mine.start)])
        return found

    @property
    def vote_bytes(self) -> int:
        """The size of a vote."""
        return 4 * (_HEAD + len(self.slots))

    def norm(self, kind: float) -> torch.Tensor:
        """Return the norm of all averaged gradients, after `wait_for_sums`; every rank calls this."""
        filled = [part for part in self.own_parts() if part.numel()]
        own = [torch.linalg.vector_norm(part, kind, dtype=torch.float64) for part in filled]
        parts = _to_host(own) if own else torch.zeros(1, dtype=torch.float64)
        norms = self.channel.gather_rows(torch.linalg.vector_norm(parts, kind).reshape(1))
        norm: torch.Tensor = torch.linalg.vector_norm(norms, kind).float()
        return norm

    def any_broken(self) -> bool:
        """Return whether an average on any rank is not finite; every rank calls this."""
        whole = _to_host([part.isfinite().all() for part in self.own_parts()])
        mine = float(not bool(whole.all()))
        return bool(self.channel.gather_rows(torch.tensor([mine])).any())

    def scale(self, factor: float) -> None:
        """Multiply all averages, after `wait_for_sums`."""
        for bucket in self.buckets:
            part = bucket.flat if self.plan.policy == "wfbp" else bucket.cut.own(bucket.flat)
            part.mul_(factor)
            bucket.touched()

    def next_round(self) -> None:
        """Open every bucket that is not being gathered for the gradients of the next step."""
        self._next = 0
        self._finished = False
        for bucket in self.buckets:
            if bucket.stage is not BucketStage.GATHERING:
                bucket.reopen()

    def discard(self) -> None:
        """Drop the gradients of this step; every rank calls this at the same time."""
        if any(bucket.stage is BucketStage.REDUCING or bucket.holds for bucket in self.buckets):
            self.wait_for_sums()
            self.next_round()

    def _start_full(self) -> None:
        whole = self.plan.policy == "wfbp"
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self.buckets[self._next].start(whole=whole)
            self._next += 1


def _to_host(numbers: list[torch.Tensor]) -> torch.Tensor:
    """Return single numbers from any device in one row on the CPU: an accelerator is waited for once."""
    device = numbers[0].device
    return torch.stack([number.to(device) for number in numbers]).cpu()
