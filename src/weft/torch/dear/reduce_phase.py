"""From gradients that become ready to sums that everybody has: what DeAR sends, and in which order.

Buckets start in the order of the plan and never in the order in which they happen to be full: that may differ
between ranks. What did not come by the end of the backward pass is sent as zeros. A vote, one small sum per
step, says which parameters got a gradient on any rank, so that one that nobody used stays as it is.
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
    from weft.torch.dear.bucket_channel import BucketChannel, Pending
    from weft.torch.dear.fusion_groups import FusionPlan, Parameters
    from weft.torch.dear.gradient_bucket import Slot

_HEAD: Final = 1  # seconds of the latest iteration, then one number per parameter


@dataclass(frozen=True)
class VoteResult:
    """What all ranks know after a vote.

    Parameters
    ----------
    seconds
        Of the latest iteration, mean of all ranks.
    unused
        Numbers of parameters that no rank has a gradient of.
    """

    seconds: float
    unused: frozenset[int]


class ReducePhase:
    """The buckets of a plan, and how far they are.

    Parameters
    ----------
    channel
        Who takes part.
    parameters
        What is trained.
    again
        Whether a gradient that was not cleared is added to, as torch does; not where buckets do not hold all
        of the average at the end.
    """

    def __init__(self, channel: BucketChannel, parameters: Parameters, *, again: bool) -> None:
        self.channel, self.parameters = channel, parameters
        self.buckets: list[GradientBucket] = []
        self.slots: list[Slot] = []
        self.serial = False
        self._again = again
        self._next = 0
        self._settled = False
        self._vote: tuple[torch.Tensor, Pending] | None = None
        self._outcome: VoteResult | None = None

    @property
    def plan(self) -> FusionPlan:
        """What the buckets are made by."""
        return self._plan

    def arrange(self, plan: FusionPlan) -> None:
        """Take another plan; nothing may be under way, and every rank does this at the same time."""
        what = f"{plan.digest} {self.parameters.signature} {self._again}"
        mark = torch.tensor([int(hashlib.sha256(what.encode()).hexdigest()[:12], 16)])
        table = self.channel.gather_rows(mark)
        if (other := (table != mark).any(1).nonzero()).numel():
            raise DesyncError(int(other[0]), "DeAR: agreeing on a fusion plan")
        kept = {slot.number: slot.view.clone() for slot in self.slots if slot.parameter.grad is slot.view}
        self.buckets = []  # before the new ones, so that their memory can be used again
        self.slots = []
        self._plan = plan
        self.buckets = [
            GradientBucket(self.channel, self.parameters, group, number, again=self._again)
            for number, group in enumerate(plan.groups)
        ]
        self.slots = sorted((slot for b in self.buckets for slot in b.slots), key=lambda slot: slot.number)
        for number, grad in kept.items():
            self.parameters.tensors[number].grad = grad
        self._next = 0
        self._settled = False

    def arrived(self, number: int) -> None:
        """A parameter's gradient is ready; called within the backward pass."""
        self.channel.check()
        slot = self.slots[number]
        bucket = slot.bucket
        bucket.take(slot)
        if bucket.missing:
            return
        if self.serial:
            bucket.collect()
        else:
            self._start_full()

    def settle(self, seconds: float) -> None:
        """Send what is left, and vote; at the end of the backward pass, as often as one likes.

        Parameters
        ----------
        seconds
            That the latest iteration took here.
        """
        if self._settled:
            return
        self.channel.check()
        for bucket in self.buckets:
            bucket.fill()
        here = [float(slot.here) for slot in self.slots]
        if self.serial:
            for bucket in self.buckets:
                bucket.start(whole=self.plan.policy == "wfbp")
                bucket.wait()
        else:
            self._start_full()
        ballot = torch.tensor([seconds / self.channel.size, *here])
        self._vote, self._outcome = (ballot, self.channel.sum(ballot)), None
        self._settled = True
        for bucket in self.buckets:
            bucket.check_untouched()
        if not any(here) and len(self.outcome().unused) == len(self.slots):
            self.wait_for_sums()
            self.next_round()
            msg = "step() without gradients on any rank: call backward() first"
            raise InputError(msg)

    def outcome(self) -> VoteResult:
        """What the ranks voted for."""
        if self._outcome is None:
            assert self._vote is not None
            ballot, pending = self._vote
            pending.wait()
            unused = (ballot[_HEAD:] == 0).nonzero().flatten().tolist()
            self._outcome = VoteResult(float(ballot[0]), frozenset(unused))
        return self._outcome

    def wait_for_sums(self) -> None:
        """Return once this rank has the sums of what it owns."""
        begun = time.perf_counter()
        for bucket in self.buckets:
            if bucket.reducing is not None:
                bucket.reducing.wait()
        self.channel.report("wait", -1, begun, time.perf_counter())

    def own_parts(self) -> list[tuple[GradientBucket, torch.Tensor]]:
        """Of each bucket what this rank owns, without what only fills it up."""
        whole = self.plan.policy == "wfbp"
        found = []
        for bucket in self.buckets:
            mine = bucket.cut.mine
            own = bucket.flat[mine] if whole else bucket.cut.own(bucket.flat)
            real = max(0, min(mine.stop, bucket.elements) - mine.start)
            found.append((bucket, own[:real]))
        return found

    @property
    def vote_bytes(self) -> int:
        """Size of a vote."""
        return 4 * (_HEAD + len(self.slots))

    def norm(self, kind: float) -> torch.Tensor:
        """Norm of all averaged gradients, once the sums are there; every rank asks."""
        own = [
            torch.linalg.vector_norm(part, kind, dtype=torch.float64)
            for _, part in self.own_parts()
            if part.numel()
        ]
        parts = _to_host(own) if own else torch.zeros(1, dtype=torch.float64)
        everybody = self.channel.gather_rows(torch.linalg.vector_norm(parts, kind).reshape(1))
        norm: torch.Tensor = torch.linalg.vector_norm(everybody, kind).float()
        return norm

    def any_broken(self) -> bool:
        """Whether some sum on some rank is not finite; every rank asks."""
        whole = _to_host([part.isfinite().all() for _, part in self.own_parts()])
        mine = float(not bool(whole.all()))
        return bool(self.channel.gather_rows(torch.tensor([mine])).any())

    def scale(self, factor: float) -> None:
        """Multiply every sum, once it is there."""
        for bucket in self.buckets:
            part = bucket.flat if self.plan.policy == "wfbp" else bucket.cut.own(bucket.flat)
            part.mul_(factor)
            bucket.touched()

    def next_round(self) -> None:
        """Take gradients again, in every bucket that is not under way to everybody."""
        self._next = 0
        self._settled = False
        for bucket in self.buckets:
            if bucket.stage is not BucketStage.GATHERING:
                bucket.reopen()

    def discard(self) -> None:
        """Forget what was taken and sent since the last step; every rank does so at the same time."""
        if any(bucket.stage is BucketStage.REDUCING or bucket.holds for bucket in self.buckets):
            self.wait_for_sums()
            self.next_round()

    def _start_full(self) -> None:
        whole = self.plan.policy == "wfbp"
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self.buckets[self._next].start(whole=whole)
            self._next += 1


def _to_host(numbers: list[torch.Tensor]) -> torch.Tensor:
    """Single numbers, wherever they are, in one row on the CPU: an accelerator is waited for once."""
    together = numbers[0].device
    return torch.stack([number.to(together) for number in numbers]).cpu()
