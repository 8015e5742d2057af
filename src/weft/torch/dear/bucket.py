"""A fusion group's gradients, one after the other in one piece of memory."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import torch

from weft.errors import InputError

if TYPE_CHECKING:
    from weft.torch.dear.channels import Channel, Pending
    from weft.torch.dear.fusion import Group, Parameters


class Stage(Enum):
    """How far a bucket is."""

    OPEN = "takes gradients"
    REDUCING = "its gradients are being added up"
    GATHERING = "its results are under way to everybody"


class Slot:
    """Where one parameter's gradient lies."""

    __slots__ = ("bucket", "first", "here", "last", "name", "number", "parameter", "view")

    def __init__(
        self, bucket: Bucket, number: int, name: str, parameter: torch.nn.Parameter, first: int
    ) -> None:
        self.bucket, self.number, self.name, self.parameter = bucket, number, name, parameter
        self.first, self.last = first, first + parameter.numel()
        self.view = bucket.flat[self.first : self.last].view(parameter.shape)
        self.here = False


class Bucket:
    """Takes gradients as they become ready, and goes through the two halves of an all-reduce.

    Parameters
    ----------
    group
        Which parameters.
    number
        Of the group.
    """

    def __init__(self, channel: Channel, parameters: Parameters, group: Group, number: int) -> None:
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
        self.stage = Stage.OPEN
        self.missing = len(self.slots)
        self.reducing: Pending | None = None
        self.gathering: Pending | None = None
        self._share = 1.0 / channel.size
        self._version = 0

    def take(self, slot: Slot, *, again: bool) -> None:
        """Take a gradient that has just become ready, as this rank's share of the average.

        Parameters
        ----------
        again
            Whether what the bucket holds from the step before may be added to.
        """
        parameter, view = slot.parameter, slot.view
        gradient = parameter.grad
        if self.stage is not Stage.OPEN or slot.here or gradient is None:
            self._refuse(slot)
        if gradient is view:
            if not again:
                msg = f"the gradient of {slot.name} was not cleared: call zero_grad() before backward()"
                raise InputError(msg)
            view.mul_(self._share)
        elif gradient.layout is torch.strided:
            torch.mul(gradient.detach(), self._share, out=view)
            parameter.grad = view
        else:
            msg = f"the gradient of {slot.name} is sparse; make its layer without sparse=True"
            raise InputError(msg)
        slot.here = True
        self.missing -= 1

    def fill(self) -> None:
        """Take nothing for every gradient that did not come."""
        if self.missing:
            for slot in self.slots:
                if not slot.here:
                    slot.view.zero_()
            self.missing = 0

    def start(self, *, whole: bool) -> None:
        """Send what was taken."""
        self.stage = Stage.REDUCING
        self.reducing = self.cut.all_reduce(self.flat) if whole else self.cut.reduce(self.flat)
        self._version = self.flat._version

    def check_untouched(self) -> None:
        """Refuse to go on if somebody changed gradients that are under way."""
        if self.flat._version != self._version:
            name = self.slots[0].name
            msg = (
                f"gradients were changed in place after backward() (group {self.number}, {name}...), while "
                "they are under way to other ranks: clip with optimizer.clip_grad_norm_(), scale with "
                "weft.torch.GradScaler, and clear with zero_grad()"
            )
            raise InputError(msg)

    def start_gathering(self, flat: torch.Tensor, own: torch.Tensor) -> None:
        """Give everybody what this rank has."""
        self.stage = Stage.GATHERING
        self.gathering = self.cut.gather(flat, own)
        self._version = self.flat._version

    def touched(self) -> None:
        """Take note of a change of our own."""
        self._version = self.flat._version

    def wait(self) -> None:
        """Return once what was started is over."""
        if self.reducing is not None:
            self.reducing.wait()
        if self.gathering is not None:
            self.gathering.wait()

    def reopen(self) -> None:
        """Take gradients again."""
        self.stage = Stage.OPEN
        self.reducing = self.gathering = None
        self.missing = len(self.slots)
        for slot in self.slots:
            slot.here = False

    def _refuse(self, slot: Slot) -> NoReturn:
        if self.stage is Stage.GATHERING:
            msg = (
                f"{slot.name} was used before its update of the last step was applied: its module's forward "
                "was not called (torch.compile before DeAR, or a use of the weight elsewhere). Make DeAR "
                "first and compile later, or call optimizer.synchronize() before such a use"
            )
        else:
            msg = (
                f"a second gradient of {slot.name} came before step(): do all but the last backward() within "
                "optimizer.no_sync(), and checkpoint activations with use_reentrant=False"
            )
        raise InputError(msg)
