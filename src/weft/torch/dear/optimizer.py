"""DeAR: an optimizer that sends gradients during the backward pass, and results during the next forward pass.

The all-reduce of data-parallel training is cut into its halves (Zhang et al., ICDCS 2023). Reduce-scatters
start while gradients are still being computed; `DeAR.step` lets the all-gathers follow; and before a module
runs again, a hook waits for what it needs and applies the update.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from weft.errors import FormatError, InputError
from weft.torch.dear.arguments import (
    MODES,
    check_choices,
    check_model,
    find_places,
    number_parameters,
    pack_groups,
)
from weft.torch.dear.bucket_channel import COLLECTIVES, OperationSpan
from weft.torch.dear.fusion_groups import POLICIES, decode_plan
from weft.torch.dear.gather_phase import GatherPhase
from weft.torch.dear.gradient_bucket import BucketStage
from weft.torch.dear.hooked_modules import find_units
from weft.torch.dear.hooks import Hooks
from weft.torch.dear.open_channel import broadcast_from_first, open_channel
from weft.torch.dear.partial_step import capture
from weft.torch.dear.reduce_phase import ReducePhase
from weft.torch.dear.replicas import Replicas
from weft.torch.dear.sharding import Shards
from weft.torch.dear.streams import make_clock
from weft.torch.dear.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime import Communicator
    from weft.topology import Topology
    from weft.torch.dear.bucket_channel import BucketChannel
    from weft.torch.dear.fusion_groups import FusionPlan
    from weft.training import Layer, Linear

_MEGABYTE: Final = 10**6
_KEY: Final = "weft"


class DeAR(torch.optim.Optimizer):
    """An optimizer for data-parallel training; every rank makes it, for the same model.

    Parameters and buffers of rank 0 are given to everybody. Then the training loop is the usual one, without
    DistributedDataParallel around the model. Between `step` and the next forward pass parameters are not up
    to date yet: modules wait for their own, `state_dict` of model and optimizer for all; before reading
    parameters in any other way, call `synchronize`.

    Tests run it on CPUs, over groups of weft and of gloo. On accelerators it takes a group of torch's own,
    such as NCCL's; what it does for them (streams, clocks, state on devices) was never run on one.

    Parameters
    ----------
    model
        What is trained; compiled afterwards, if at all.
    params
        As torch takes them: the model's parameters, or groups of them. Or the class of the optimizer, for all
        parameters of the model.
    optimizer_class
        Such as ``torch.optim.AdamW``; `options` are its own.
    group
        Who trains together: a process group of torch, by default all ranks, or a `weft.Communicator`.
    mode
        ``gradients``: averages are gathered, and every rank updates everything, with any optimizer that works
        parameter by parameter. ``parameters``: each rank updates its share, and results are gathered; the
        optimizer's state takes the memory only once in all, but it must work element by element.
    policy
        ``dear``; ``wfbp`` to all-reduce during the backward pass as DistributedDataParallel does; or ``auto``
        to take the one that the model of an iteration expects to be faster, with what it measures first.
    fusion_mb
        Gradients of so many megabytes travel together; None to choose, and to try neighbours.
    tune
        Whether neighbours of the chosen fusion are tried while training, some 60 steps in all.
    max_norm
        Clip the norm of all gradients in every step.
    plan, topology
        As for `weft.init`, of the ranks of the group.
    timeout
        Seconds for each operation.

    Raises
    ------
    InputError
        If a module is compiled already, a parameter is not the model's, or an optimizer cannot be cut.

    Examples
    --------
    ::

        torch.distributed.init_process_group("weft")
        optimizer = weft.torch.DeAR(model, torch.optim.SGD, lr=0.1, momentum=0.9)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            optimizer.step()
    """

    def __init__(
        self,
        model: torch.nn.Module,
        params: Iterable[Any] | type[torch.optim.Optimizer],
        optimizer_class: type[torch.optim.Optimizer] | None = None,
        *,
        group: torch.distributed.ProcessGroup | Communicator | None = None,
        mode: str = "gradients",
        policy: str = "auto",
        fusion_mb: float | None = None,
        tune: bool = True,
        max_norm: float | None = None,
        plan: Plan | str | Path | None = None,
        topology: Topology | str | None = None,
        timeout: float = 60.0,
        **options: Any,
    ) -> None:
        check_model(model)
        everything = isinstance(params, type)
        given = params if everything or isinstance(params, torch.optim.Optimizer) else optimizer_class
        optimizer_class = check_choices(given, mode, policy, fusion_mb)
        super().__init__(model.parameters() if everything else cast("Any", params), {})
        self._units = find_units(model)
        full = optimizer_class([dict(group) for group in self.param_groups], **options)
        self.defaults, self.param_groups = full.defaults, full.param_groups
        self._parameters, self._group_of = number_parameters(model, self.param_groups, self._units)
        trained = set(self._parameters.tensors)
        self._left_out = [one for g in self.param_groups for one in g["params"] if one not in trained]
        self._channel = open_channel(group, plan, topology, timeout)
        try:
            broadcast_from_first(self._channel, [*model.parameters(), *model.buffers()])
            self._sharded = mode == "parameters"
            self._shards: Shards | None = None
            self._inner = full
            if self._sharded:
                # Its own parameter is of no meaning: it is run on pieces, which change with the plan.
                self._inner = optimizer_class([torch.nn.Parameter(torch.empty(0))], **options)
                self._shards = Shards(self._channel, self._inner, self._parameters, self._group_of)
            self.state = self._inner.state
            self._exchange = ReducePhase(self._channel, self._parameters, again=not self._sharded)
            updater = self._shards or Replicas(self._inner, self._group_of)
            self._results = GatherPhase(self._exchange, updater, lambda: self.param_groups)
            policies = POLICIES if policy == "auto" else (policy,)
            self._pilot = Tuner(
                self._channel,
                self._parameters,
                self._units,
                policies=("dear",) if self._sharded else policies,
                threshold_bytes=None if fusion_mb is None else int(fusion_mb * _MEGABYTE),
                tune=tune,
            )
            self._clock = make_clock(tensor.device for tensor in self._parameters.tensors)
            self._max_norm = max_norm
            self._paused = False
            self._clipped = self._discarded = self._scaled = False
            self._listener: Callable[[OperationSpan], None] | None = None
            self._last_step = self._last_gradient = self._forward_over = 0.0
            self._channel.listener = self._hear
            self._arrange(self._pilot.first_plan())
            self._hooks = Hooks(model, self._parameters.tensors, self._units, self)
        except BaseException:
            self._channel.close()
            raise

    @property
    def channel(self) -> BucketChannel:
        """Who trains together."""
        return self._channel

    @property
    def fusion(self) -> FusionPlan:
        """Which parameters travel together, and how."""
        return self._exchange.plan

    @property
    def layers(self) -> tuple[Layer, ...] | None:
        """What the model of an iteration knows of the layers, in its order; None before it was measured."""
        return self._pilot.layers

    @property
    def costs(self) -> Linear | None:
        """What it knows of the collectives."""
        return self._pilot.costs

    @property
    def decision(self) -> str | None:
        """Why this policy was taken; None while that is being found out."""
        if self._sharded:
            return "dear: mode 'parameters' has no other policy"
        if self._pilot.choice is not None and self._pilot.chose:
            return self._pilot.choice.reason
        if self._pilot.measuring:
            return None
        return f"{self.fusion.policy}: as it was asked for, or as a checkpoint says"

    @property
    def expected_s(self) -> float | None:
        """Seconds of an iteration by the model, with the fusion that it chose; None before it did."""
        return None if self._pilot.choice is None else self._pilot.choice.timeline.seconds

    @property
    def tuning(self) -> bool:
        """Whether it still measures, or tries other fusions."""
        return self._pilot.measuring or self._pilot.tuning

    def observe(self, listener: Callable[[OperationSpan], None] | None) -> None:
        """Have a function called with every `OperationSpan`, from several threads; None for nobody."""
        self._listener = listener

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within this, backward passes add up gradients here and send nothing."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - as torch has it
        """Clear gradients; always to None, since what they lie in may be under way.

        Between backward and step this leaves out what the backward pass has computed, on every rank.
        """
        self._exchange.discard()
        super().zero_grad(set_to_none=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the results of this step go to everybody; modules apply them before they run again."""
        begun = time.perf_counter()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._tell_backward()
            self._finish_backward()
            if self._max_norm is not None and not self._clipped:
                self.clip_grad_norm_(self._max_norm)
            self._results.send(capture(self.param_groups))
            self._exchange.next_round()
            self._clipped = False
            self._steer()
        now = time.perf_counter()
        self._tell("step", begun, now)
        self._last_step = now
        return loss

    def synchronize(self) -> None:
        """Apply every update that is not applied yet; each rank for itself, at any time between steps."""
        self._results.finish_all()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale all gradients so that their norm is at most this; between backward and step, on every rank.

        Returns
        -------
        torch.Tensor
            The norm of the averaged gradients before.
        """
        with torch.no_grad():
            if self._discarded:
                return torch.tensor(float("inf"))
            self._finish_backward()
            self._exchange.wait_for_sums()
            norm = self._exchange.norm(norm_type)
            factor = max_norm / (float(norm) + 1e-6)
            if not factor >= 1:  # also where the norm is no number
                self._exchange.scale(factor)
            self._clipped = True
        return norm

    def unscale(self, factor: float) -> bool:
        """Multiply all gradients, for `weft.torch.GradScaler`; whether some are not finite on any rank.

        If so, this backward pass counts for nothing: a step that follows would have no gradients.
        """
        with torch.no_grad():
            self._finish_backward()
            self._exchange.wait_for_sums()
            broken = self._exchange.any_broken()
            if broken:
                self._exchange.next_round()
                self._discarded = True
            else:
                self._exchange.scale(factor)
        return broken

    @contextmanager
    def scaled(self) -> Iterator[None]:
        """Within this, `weft.torch.GradScaler` takes a step."""
        self._scaled = True
        try:
            yield
        finally:
            self._scaled = False

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by every GradScaler before a step: torch's own has changed gradients under way by then."""
        if not self._scaled:
            msg = "torch's GradScaler changes gradients that are under way; use weft.torch.GradScaler"
            raise InputError(msg)
        return False

    def state_dict(self) -> dict[str, Any]:
        """State as torch's optimizers have it; in mode ``parameters`` that of this rank's share.

        In both modes with the fusion plan, so that training goes on exactly as it would have.
        """
        self.synchronize()
        about: dict[str, Any] = {"mode": MODES[self._sharded], "fusion": self.fusion.encode()}
        if self._shards is None:
            found = super().state_dict()
        else:
            found = {"state": self._shards.local_state(), "param_groups": pack_groups(self.param_groups)}
            about |= {"rank": self._channel.rank, "size": self._channel.size, "cuts": self._shards.cuts}
        about["plan"] = self.fusion.digest
        return {**found, _KEY: about}

    def full_state_dict(self) -> dict[str, Any]:
        """State of all parameters, as the optimizer itself would have it; every rank calls this."""
        self.synchronize()
        if self._shards is None:
            return super().state_dict()
        place = find_places(self._parameters, self.param_groups)
        state = {place[number]: values for number, values in self._shards.gather_state().items()}
        return {"state": state, "param_groups": pack_groups(self.param_groups)}

    def load_state_dict(self, state_dict: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Take over a state; every rank calls this.

        Parameters
        ----------
        state_dict
            From `state_dict` of this rank, or `full_state_dict`, or an optimizer of the class itself. After a
            change of ranks, a list of what `state_dict` gave on all ranks, in mode ``parameters``.

        Raises
        ------
        FormatError
            If it is of other parameters, or of another rank.
        """
        from weft.torch.dear.checkpoint import merge

        self.synchronize()
        if isinstance(state_dict, list):
            state_dict = merge(state_dict, self._parameters, find_places(self._parameters, self.param_groups))
        about = state_dict.get(_KEY, {})
        if "fusion" in about:
            plan = decode_plan(about["fusion"], self._parameters)
            self._pilot.keep()
            self._arrange(self._pilot.allowed(plan))
        if self._shards is None:
            if "cuts" in about:
                msg = "it holds one rank's share (mode 'parameters'); save full_state_dict() for this mode"
                raise FormatError("checkpoint", msg)
            self._inner.load_state_dict(state_dict)
            self.param_groups, self.state = self._inner.param_groups, self._inner.state
            return
        for mine, loaded in zip(self.param_groups, state_dict["param_groups"], strict=True):
            mine.update({name: value for name, value in loaded.items() if name != "params"})
        if "cuts" in about:
            self._shards.load_local(state_dict["state"], about["cuts"])
        else:
            number = {
                place: number for number, place in find_places(self._parameters, self.param_groups).items()
            }
            self._inner.state.clear()
            self._shards.cut_state(
                {number[place]: values for place, values in state_dict["state"].items() if place in number}
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once DeAR works: its buckets are laid out by then.

        Raises
        ------
        InputError
            Always, after construction.
        """
        if hasattr(self, "_hooks"):
            msg = "DeAR cannot take further parameters; make another one, or give all groups at the start"
            raise InputError(msg)
        super().add_param_group(param_group)

    def close(self, *, apply: bool = True) -> None:
        """Take the hooks off the model and leave the other ranks.

        Parameters
        ----------
        apply
            Whether updates that are under way are waited for and applied first. After a rank was lost they
            cannot be: give False, and go back to a state that all ranks have.
        """
        try:
            if apply and self._channel.failure() is None:
                self.synchronize()
        finally:
            self._hooks.remove()
            if self._shards is not None:
                self._shards.close()
            self._channel.close()

    # What hooks call

    def gradient_ready(self, number: int) -> None:
        """A parameter's gradient is complete in this backward pass."""
        self._last_gradient = time.perf_counter()
        if not self._paused:
            self._discarded = False
            self._exchange.arrived(number)
            if self._pilot.measuring:
                self._pilot.ready(number)

    def before_unit(self, unit: int) -> None:
        """A module is about to run: its parameters must be up to date."""
        for bucket in self._needs[unit]:
            if bucket.stage is BucketStage.GATHERING:
                self._results.finish_from(bucket)
        if self._pilot.measuring:
            self._pilot.began(unit)

    def forward_began(self) -> None:
        """The model is about to run."""
        self._tell_backward()
        self._pilot.forward_began()

    def forward_ended(self, start: float, end: float) -> None:
        """The model has run."""
        self._forward_over = end
        self._pilot.forward_ended()
        self._tell("forward", start, end)

    # One step

    def _finish_backward(self) -> None:
        """Have everything sent that this backward pass has computed."""
        for parameter in self._left_out:
            if parameter.grad is not None and parameter.numel():
                shape = tuple(parameter.shape)
                msg = (
                    f"a parameter of shape {shape} did not require a gradient when DeAR was made, but has one"
                )
                raise InputError(f"{msg} now; make another DeAR when parameters are thawed")
        if self._shards is not None:
            self._shards.check_homes()
        self.synchronize()  # of modules that did not run since the last step
        since = time.perf_counter() - self._last_step if self._last_step else 0.0
        self._exchange.settle(since)

    def _steer(self) -> None:
        """Ask for another plan, at the end of a step."""
        if not self.tuning:
            return
        new = self._pilot.next_plan(self._exchange.outcome().seconds)
        if self._pilot.measuring or new is not None:
            self.synchronize()
        if new is None:
            return
        decided = not self._pilot.measuring and self._exchange.serial
        self._arrange(new)
        fallen_back = decided and self._pilot.chose and new.policy == "wfbp"
        if fallen_back and self._channel.rank == 0:
            warnings.warn(f"DeAR works as WFBP here: {self.decision}", UserWarning, stacklevel=4)

    def _arrange(self, plan: FusionPlan) -> None:
        """Lay everything out by a plan; nothing is under way."""
        self._exchange.arrange(plan)
        self._exchange.serial = self._pilot.measuring
        self._channel.clock = self._clock if self._pilot.measuring else time.perf_counter
        if self._shards is not None:
            self._shards.arrange(self._exchange.buckets)
        of = {slot.parameter: slot.bucket for slot in self._exchange.slots}
        self._needs = [
            list(dict.fromkeys(of[parameter] for parameter in unit.below if parameter in of))
            for unit in self._units
        ]

    def _hear(self, span: OperationSpan) -> None:
        if self._pilot.measuring and span.kind in COLLECTIVES:
            vote = span.group < 0
            buckets = self._exchange.buckets
            self._pilot.heard(span, self._exchange.vote_bytes if vote else buckets[span.group].size_bytes)
        if self._listener is not None:
            self._listener(span)

    def _tell_backward(self) -> None:
        """Tell of the latest backward pass, once."""
        if self._last_gradient > self._forward_over > 0:
            self._tell("backward", self._forward_over, self._last_gradient)
            self._forward_over = self._last_gradient

    def _tell(self, kind: str, start: float, end: float, group: int = -1) -> None:
        if self._listener is not None:
            self._listener(OperationSpan(kind, group, start, end))
