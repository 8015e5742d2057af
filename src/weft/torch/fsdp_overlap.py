"""The collectives of a model under FSDP2, started as its hooks ask for them and waited for later.

FSDP2 takes functions for its all-gathers and reduce-scatters. Those here start the operation and return: an
all-gather is waited for by FSDP2 itself before it copies the parameters out, and a reduce-scatter at the end
of the backward pass, unless FSDP2 looks at the result before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch.distributed.fsdp import FSDPModule

from weft.errors import InputError
from weft.torch.fsdp_internals import (
    FSDPAllGather,
    FSDPReduceScatter,
    can_reduce_later,
    discard_gather,
    is_current,
)
from weft.torch.internals import (
    all_gather_single,
    at_end_of_backward,
    current_backward,
    reduce_scatter_single,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import distributed as dist

_MOST_AHEAD: Final = 64


class FSDPOverlap:
    """What `overlap_fsdp` returns: the collectives of a model that run behind its computing.

    Parameters
    ----------
    model, optimizer, ahead, in_flight
        As for `overlap_fsdp`.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, ahead: int, in_flight: int
    ) -> None:
        if not isinstance(model, FSDPModule):
            raise InputError("overlap_fsdp: the model is no unit of FSDP2; call fully_shard(model) before")
        for name, number in (("ahead", ahead), ("in_flight", in_flight)):
            if not 1 <= number <= _MOST_AHEAD:
                raise InputError(f"overlap_fsdp: {name} {number!r}; expected 1 to {_MOST_AHEAD} units")
        self._ahead, self._in_flight = ahead, in_flight
        self._order: list[Any] = []
        self._is_known = False
        self._gathered: list[Any] = []
        self._reducing: deque[dist.Work] = deque()
        self._backward: int | None = None
        self._handles: list[Any] = [
            optimizer.register_step_post_hook(lambda *_: self._gather_first()),
            model.register_forward_pre_hook(lambda *_: self._check_unchanged(), prepend=True),
            model.register_forward_hook(lambda *_: self._learn_order()),
            # torch has no types for this one.
            cast("Any", model).register_load_state_dict_pre_hook(lambda *_: self.discard()),
        ]
        for unit in model.modules():
            if isinstance(unit, FSDPModule):
                unit.set_custom_all_gather(_AllGather())
                unit.set_custom_reduce_scatter(_ReduceScatter(self, unit))
                self._handles.append(unit.register_forward_pre_hook(self._note))

    @property
    def gathered(self) -> list[torch.nn.Module]:
        """The units that are gathered for the next forward pass, in the order in which it needs them."""
        return list(self._gathered)

    def discard(self) -> None:
        """Drop what was gathered ahead, so that parameters may be changed; every rank calls this.

        Between a step and the next forward pass, call this before a change of parameters other than by
        ``load_state_dict`` of the model. Without it the forward pass refuses to run with old parameters.
        """
        gathered, self._gathered = self._gathered, []
        for unit in gathered:
            discard_gather(unit)

    def close(self) -> None:
        """Gather nothing ahead any more, across the step."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.discard()

    def reduce_later(self, work: dist.Work) -> None:
        """Let a reduce-scatter run behind the backward pass, which ends when all of them have."""
        number = current_backward()
        if number != self._backward:
            # Those of a pass that was broken off were started before: their errors are raised elsewhere.
            self._reducing.clear()
            self._backward = number
            at_end_of_backward(self._finish_backward)
        self._reducing.append(work)
        while len(self._reducing) > self._in_flight:
            self._reducing.popleft().wait()

    def _finish_backward(self) -> None:
        self._backward = None
        while self._reducing:
            self._reducing.popleft().wait()

    def _note(self, unit: torch.nn.Module, _: Any) -> None:
        """Take note of the place of a unit in the first forward pass."""
        if not self._is_known and unit not in self._order:
            self._order.append(unit)

    def _learn_order(self) -> None:
        """Tell every unit which units come after it and before it."""
        if self._is_known:
            return
        self._is_known = True
        for place, unit in enumerate(self._order):
            unit.set_modules_to_forward_prefetch(self._order[place + 1 : place + 1 + self._ahead])
            before = self._order[max(0, place - self._ahead) : place]
            if before:
                unit.set_modules_to_backward_prefetch(before[::-1])

    def _gather_first(self) -> None:
        """Start to gather the units that the next forward pass runs first."""
        if not self._is_known:
            return
        for unit in self._order[: 1 + self._ahead]:
            unit.unshard(async_op=True)
            self._gathered.append(unit)

    def _check_unchanged(self) -> None:
        """Refuse to run with parameters as they were before the user has changed them."""
        gathered, self._gathered = self._gathered, []
        if not all(is_current(unit) for unit in gathered):
            what = "parameters were changed between step() and forward, while they are gathered"
            raise InputError(f"{what}; call discard() of overlap_fsdp before, on every rank")


class _AllGather(FSDPAllGather):  # type: ignore[misc]
    """An all-gather that FSDP2 waits for before it uses the parameters, and not at once."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        del async_op
        return all_gather_single(output_tensor, input_tensor, group=group, async_op=True)


class _ReduceScatter(FSDPReduceScatter):  # type: ignore[misc]
    """A reduce-scatter that ends by the end of the backward pass, or before FSDP2 looks at its result."""

    def __init__(self, overlap: FSDPOverlap, unit: FSDPModule) -> None:
        self._overlap, self._unit = overlap, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        del async_op
        work = reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=True)
        if current_backward() is not None and can_reduce_later(self._unit, op, output_tensor.dtype):
            self._overlap.reduce_later(work)
        else:
            work.wait()
        return work
