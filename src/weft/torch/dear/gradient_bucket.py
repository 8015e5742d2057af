"""Buckets: the gradients of a fusion group in one contiguous buffer."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

import torch

from weft.errors import InputError
from weft.torch.dear.streams import Streams
from weft.torch.internals import copy_all

if TYPE_CHECKING:
    from weft.torch.dear.bucket_channel import BucketChannel, StartedOperation
    from weft.torch.dear.fusion_plan import FusionGroup, Parameters

_DENSE: Final = torch.strided


class BucketStage(Enum):
    """The stage of a bucket within a step."""

    OPEN = "takes gradients"
    REDUCING = "its gradients are being added up"
    GATHERING = "its results are being sent to all ranks"


class Slot:
    """The place of one parameter's gradient in a bucket."""

    __slots__ = ("bucket", "first", "here", "last", "name", "number", "parameter", "view")

    def __init__(
        self, bucket: GradientBucket, number: int, name: str, parameter: torch.nn.Parameter, first: int
    ) -> None:
        self.bucket, self.number, self.name, self.parameter = bucket, number, name, parameter
        self.first, self.last = first, first + parameter.numel()
        self.view = bucket.flat[self.first : self.last].view(parameter.shape)
        self.here = False


class GradientBucket:
    """A bucket, which takes gradients as they become ready and goes through the two halves of an all-reduce.

    Parameters
    ----------
    channel
        How the bucket is sent.
    parameters
        All parameters that are trained.
    group, number
        The fusion group, and its number in the plan.
    accumulates
        Whether a gradient that was not cleared is added to, as torch does.
    """

    def __init__(
        self,
        channel: BucketChannel,
        parameters: Parameters,
        group: FusionGroup,
        number: int,
        *,
        accumulates: bool,
    ) -> None:
        tensors = [parameters.tensors[member] for member in group.members]
        self.number, self.size_bytes = number, group.size_bytes
        self.elements = sum(tensor.numel() for tensor in tensors)
        self.cut = channel.cut(self.elements, tensors[0].dtype, tensors[0].device, number)
        self.flat = channel.buffer(self.cut.padded, tensors[0])
        self.slots: list[Slot] = []
        first = 0
        for member, tensor in zip(group.members, tensors, strict=True):
            self.slots.append(Slot(self, member, parameters.names[member], tensor, first))
            first += tensor.numel()
        # A CPU has no streams, and looking for them would cost as much as taking a gradient does.
        self._streams = None if self.flat.device.type == "cpu" else Streams(self.flat.device)
        self.stage = BucketStage.OPEN
        self.missing = len(self.slots)
        self.reducing: StartedOperation | None = None
        self.gathering: StartedOperation | None = None
        self._accumulates = accumulates
        self._collected = False
        self._version = 0

    def take(self, slot: Slot) -> None:
        """Take note of a gradient that is ready; it is looked at and copied when all of the bucket are.

        This runs once for each parameter and step, so it only counts: to look at a gradient from Python costs
        more than all else here.
        """
        if self.stage is not BucketStage.OPEN or self._collected:
            self._refuse(slot)
        if self._streams is not None:
            self._streams.note()
        if not slot.here:
            slot.here = True
            self.missing -= 1

    def fill(self) -> None:
        """Give up gradients that are missing, except those that were accumulated before."""
        for slot in self.slots if self.missing else ():
            gradient = slot.parameter.grad
            if gradient is not None and (self._accumulates or gradient is not slot.view):
                slot.here = True
        self.missing = 0

    def start(self, *, whole: bool) -> None:
        """Start to reduce the gradients."""
        if self._collected:
            self.check_untouched()
        else:
            self.collect()
        self.stage = BucketStage.REDUCING
        self.reducing = self.cut.all_reduce(self.flat) if whole else self.cut.reduce(self.flat)
        self._version = self.flat._version

    def collect(self) -> None:
        """Copy the gradients into the bucket; each ``grad`` becomes a view of it and must not be changed."""
        if self._streams is not None:
            self._streams.join()
        if torch.is_grad_enabled():  # within a backward pass whose gradients can be differentiated
            with torch.no_grad():
                self._copy()
        else:
            self._copy()
        self._collected = True
        self._version = self.flat._version

    def _copy(self) -> None:
        moved, into, given = [], [], []
        for slot in self.slots:
            view = slot.view
            if not slot.here:
                view.zero_()
                continue
            parameter = slot.parameter
            gradient = parameter.grad
            if gradient is view and self._accumulates:
                continue
            if gradient is None or gradient is view or gradient.layout is not _DENSE:
                self._refuse_gradient(slot)
            moved.append(parameter)
            into.append(view)
            given.append(gradient)
        if moved:
            copy_all(into, given)
            for parameter, view in zip(moved, into, strict=True):
                parameter.grad = view

    def check_untouched(self) -> None:
        """Refuse to go on if the user has changed gradients that are being sent."""
        if self.flat._version != self._version:
            name = self.slots[0].name
            msg = (
                f"gradients were changed in place after backward() (group {self.number}, {name}...), while "
                "they are under way to other ranks: clip with optimizer.clip_grad_norm_(), scale with "
                "weft.torch.GradScaler, and clear with zero_grad()"
            )
            raise InputError(msg)

    def start_gathering(self, flat: torch.Tensor, own: torch.Tensor | None = None) -> None:
        """Start to send this rank's part to all ranks; by default its averages."""
        self.stage = BucketStage.GATHERING
        self.gathering = self.cut.gather(flat, own)
        self._version = self.flat._version

    def touched(self) -> None:
        """Take note that DeAR itself has changed the gradients."""
        self._version = self.flat._version

    def wait(self) -> None:
        """Return once the reduction and the gather that were started are over."""
        if self.reducing is not None:
            self.reducing.wait()
        if self.gathering is not None:
            self.gathering.wait()

    @property
    def holds(self) -> bool:
        """Whether some gradients of this step are in it."""
        return self.stage is BucketStage.OPEN and self.missing < len(self.slots)

    def is_done(self) -> bool:
        """Return whether `wait` would return at once."""
        operation = self.gathering or self.reducing
        return operation is None or operation.is_done()

    def reopen(self) -> None:
        """Open the bucket for the gradients of the next step."""
        self.stage = BucketStage.OPEN
        self._collected = False
        self.reducing = self.gathering = None
        self.missing = len(self.slots)
        for slot in self.slots:
            slot.here = False

    def _refuse_gradient(self, slot: Slot) -> NoReturn:
        gradient = slot.parameter.grad
        if gradient is None:
            msg = f"the gradient of {slot.name} was cleared within the backward pass"
            raise InputError(f"{msg}; if its weight is used without its module, call synchronize() before")
        if gradient is slot.view:
            raise InputError(
                f"the gradient of {slot.name} was not cleared: call zero_grad() before backward()"
            )
        raise InputError(f"the gradient of {slot.name} is sparse; make its layer without sparse=True")

    def _refuse(self, slot: Slot) -> NoReturn:
        if self.stage is BucketStage.GATHERING:
            msg = (
                f"{slot.name} was used before its update of the last step was applied: its module's forward "
                "was not called (torch.compile before DeAR, or a use of the weight elsewhere). Make DeAR "
                "first and compile later, or call optimizer.synchronize() before such a use"
            )
        else:
            msg = (
                f"a second gradient of {slot.name} came before step(): do all but the last backward() within "
                "optimizer.no_sync(), checkpoint activations with use_reentrant=False, and leave out a batch "
                "with optimizer.zero_grad()"
            )
        raise InputError(msg)
