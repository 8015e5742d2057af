"""DeAR: an optimizer that reduces gradients during the backward pass and gathers during the next forward.

The all-reduce of data-parallel training is cut into its halves (Zhang et al., ICDCS 2023). Reduce-scatters
start while gradients are still being computed (`weft.torch.dear.reduce_phase`); `DeAR.step` starts the
all-gathers; and before a module runs again, a hook waits for those that it needs and applies the update
(`weft.torch.dear.gather_phase`).
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from weft.errors import FormatError, InputError
from weft.runtime.resources import close_on_error
from weft.torch.dear.arguments import MODES, check_choices, check_model, number_parameters
from weft.torch.dear.bucket_channel import COMMUNICATION, OperationSpan
from weft.torch.dear.fusion_plan import POLICIES, decode_plan
from weft.torch.dear.gather_phase import GatherPhase
from weft.torch.dear.gradient_bucket import BucketStage
from weft.torch.dear.hooks import Hooks, find_hooked_modules
from weft.torch.dear.open_channel import broadcast_from_first, open_channel
from weft.torch.dear.partial_step import Replicas, capture
from weft.torch.dear.reduce_phase import ReducePhase
from weft.torch.dear.sharding import Shards, find_places, merge_shares, pack_groups
from weft.torch.dear.streams import make_clock
from weft.torch.dear.tuner import Tuner
from weft.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime import Communicator
    from weft.topology import Topology
    from weft.torch.dear.bucket_channel import BucketChannel
    from weft.torch.dear.fusion_plan import FusionPlan
    from weft.training import Layer, Linear

_KEY: Final = "weft"
_log: Final = logging.getLogger("weft.torch")


class DeAR(torch.optim.Optimizer):
    """An optimizer for data-parallel training; every rank makes it, for the same model.

    Parameters and buffers of rank 0 are sent to all ranks. Then the training loop is the usual one, without
    DistributedDataParallel around the model. Between `step` and the next forward pass parameters are not up
    to date yet: modules wait for their own, `state_dict` of model and optimizer for all; before reading
    parameters in any other way, call `synchronize`.

    Tests run it on CPUs, over groups of weft and of gloo. On accelerators it takes a group of torch's own,
    such as NCCL's; what it does for them (streams, clocks, state on devices) was never run on one.

    Parameters
    ----------
    model
        The model that is trained; compile it afterwards, if at all.
    params
        As torch takes them: the model's parameters, or groups of them. Or the class of the optimizer, for all
        parameters of the model.
    optimizer_class
        Such as ``torch.optim.AdamW``; `options` are its own.
    group
        The ranks that train together: a process group of torch, by default all ranks, or a
        `weft.Communicator`.
    mode
        ``gradients``: averages are gathered, and every rank updates everything, with any optimizer that works
        parameter by parameter. ``parameters``: each rank updates its share, and results are gathered; the
        optimizer's state takes the memory only once in all, but it must work element by element.
    policy
        ``dear``; ``wfbp`` to all-reduce during the backward pass as DistributedDataParallel does; or ``auto``
        to take the one that the model of an iteration expects to be faster, with what it measures first.
    fusion
        Bytes of gradients that travel together, such as ``"25MB"``; None to choose, and to try neighbours.
    tune
        Whether both policies, and neighbours of the chosen fusion, are tried while training, some 80 steps
        in all.
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
        fusion: str | int | None = None,
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
        optimizer_class = check_choices(given, mode, policy, fusion)
        super().__init__(model.parameters() if everything else cast("Any", params), {})
        self._modules = find_hooked_modules(model)
        full = optimizer_class([dict(group) for group in self.param_groups], **options)
        self.defaults, self.param_groups = full.defaults, full.param_groups
        self._parameters, self._group_of = number_parameters(model, self.param_groups, self._modules)
        trained = set(self._parameters.tensors)
        self._left_out = [one for g in self.param_groups for one in g["params"] if one not in trained]
        self._clock = make_clock(tensor.device for tensor in self._parameters.tensors)
        self._max_norm = max_norm
        self._paused = self._clipped = self._discarded = self._scaled = False
        self._listener: Callable[[OperationSpan], None] | None = None
        self._last_gradient = self._forward_begun = self._forward_over = 0.0
        self._optimizer: torch.optim.Optimizer = full
        self._shards: Shards | None = None
        self._channel = open_channel(group, plan, topology, timeout)
        with close_on_error(self._channel):
            broadcast_from_first(self._channel, [*model.parameters(), *model.buffers()])
            if mode == "parameters":
                # Its own parameter is of no meaning: it is run on pieces, which change with the plan.
                self._optimizer = optimizer_class([torch.nn.Parameter(torch.empty(0))], **options)
                self._shards = Shards(self._channel, self._optimizer, self._parameters, self._group_of)
            self.state = self._optimizer.state
            self._start(policy, None if fusion is None else parse_size(fusion), tune=tune)
            self._hooks = Hooks(model, self._parameters.tensors, self._modules, self)

    def _start(self, policy: str, threshold_bytes: int | None, *, tune: bool) -> None:
        """Make the phases of a step and the tuner, and lay out buckets by its first plan."""
        self._reduce_phase = ReducePhase(self._channel, self._parameters, accumulates=self._shards is None)
        updater = self._shards or Replicas(self._optimizer, self._group_of)
        self._gather_phase = GatherPhase(self._reduce_phase, updater, lambda: self.param_groups)
        policies = POLICIES if policy == "auto" else (policy,)
        self._tuner = Tuner(
            self._channel,
            self._parameters,
            self._modules,
            policies=policies if self._shards is None else ("dear",),
            threshold_bytes=threshold_bytes,
            tune=tune,
        )
        self._arrange(self._tuner.first_plan())

    @property
    def channel(self) -> BucketChannel:
        """The ranks that train together."""
        return self._channel

    @property
    def fusion(self) -> FusionPlan:
        """The fusion plan in use: which parameters travel together, and how."""
        return self._reduce_phase.plan

    @property
    def layers(self) -> tuple[Layer, ...] | None:
        """The measured layers, in the order of the model; None before they were measured."""
        return self._tuner.layers

    @property
    def costs(self) -> Linear | None:
        """The measured costs of the collectives; None before they were measured."""
        return self._tuner.costs

    @property
    def decision(self) -> str | None:
        """The reason for the policy in use; None while DeAR still measures, or tries the policies."""
        if self._shards is not None:
            return "dear: mode 'parameters' has no other policy"
        if self._tuner.deciding:
            return None
        if self._tuner.choice is not None and self._tuner.chooses_policy:
            return self._tuner.choice.reason
        if self._tuner.measuring:
            return None
        return f"{self.fusion.policy}: as it was asked for, or as a checkpoint says"

    @property
    def expected_s(self) -> float | None:
        """The predicted seconds of an iteration with the chosen fusion; None before it was chosen."""
        return None if self._tuner.choice is None else self._tuner.choice.timeline.seconds

    @property
    def tuning(self) -> bool:
        """Whether DeAR still measures, or tries other fusions."""
        return self._tuner.measuring or self._tuner.tuning

    def observe(self, listener: Callable[[OperationSpan], None] | None) -> None:
        """Call a function with every `OperationSpan`, from several threads; None to call nothing."""
        self._listener = listener
        self._listen()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate the gradients of backward passes within this context locally, and send nothing."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - as torch has it
        """Clear gradients; always to None, since the buckets that they lie in may be being sent.

        Between backward and step this leaves out what the backward pass has computed, on every rank.
        """
        self._reduce_phase.discard()
        super().zero_grad(set_to_none=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Start to send the results of this step to all ranks; modules apply them before they run again."""
        begun = time.perf_counter()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._report_backward()
            self._finish_backward()
            if self._max_norm is not None and not self._clipped:
                self.clip_grad_norm_(self._max_norm)
            self._gather_phase.send(capture(self.param_groups))
            self._reduce_phase.next_round()
            self._clipped = False
            self._tune_fusion()
        self._channel.report("step", -1, begun, time.perf_counter())
        return loss

    def synchronize(self) -> None:
        """Wait for every update that is not applied yet and apply it; allowed at any time between steps."""
        self._gather_phase.finish_all()

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
            self._reduce_phase.wait_for_sums()
            norm = self._reduce_phase.norm(norm_type)
            factor = max_norm / (float(norm) + 1e-6)
            if not factor >= 1:  # also where the norm is no number
                self._reduce_phase.scale(factor)
            self._clipped = True
        return norm

    def unscale(self, factor: float) -> bool:
        """Multiply all gradients, for `weft.torch.GradScaler`; whether some are not finite on any rank.

        If so, this backward pass counts for nothing: a step that follows would have no gradients.
        """
        with torch.no_grad():
            self._finish_backward()
            self._reduce_phase.wait_for_sums()
            broken = self._reduce_phase.any_broken()
            if broken:
                self._reduce_phase.next_round()
                self._discarded = True
            else:
                self._reduce_phase.scale(factor)
        return broken

    @contextmanager
    def scaled(self) -> Iterator[None]:
        """Allow `weft.torch.GradScaler` to take a step within this context."""
        self._scaled = True
        try:
            yield
        finally:
            self._scaled = False

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Refuse torch's GradScaler, which asks this after it has changed gradients that are being sent."""
        if not self._scaled:
            msg = "torch's GradScaler changes gradients that are under way; use weft.torch.GradScaler"
            raise InputError(msg)
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the state as torch's optimizers do; in mode ``parameters`` that of this rank's share.

        In both modes it has the fusion plan, so that training continues exactly as it would have.
        """
        self.synchronize()
        about: dict[str, Any] = {"mode": MODES[self._shards is not None], "fusion": self.fusion.encode()}
        if self._shards is None:
            found = super().state_dict()
        else:
            found = {"state": self._shards.local_state(), "param_groups": pack_groups(self.param_groups)}
            about |= {"rank": self._channel.rank, "size": self._channel.size, "cuts": self._shards.cuts}
        about["plan"] = self.fusion.digest
        return {**found, _KEY: about}

    def full_state_dict(self) -> dict[str, Any]:
        """Return the state of all parameters as the user's optimizer would; every rank calls this."""
        self.synchronize()
        if self._shards is None:
            return super().state_dict()
        place = find_places(self._parameters, self.param_groups)
        state = {place[number]: values for number, values in self._shards.gather_state().items()}
        return {"state": state, "param_groups": pack_groups(self.param_groups)}

    def load_state_dict(self, state_dict: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Load a state; every rank calls this.

        Parameters
        ----------
        state_dict
            The result of `state_dict` of this rank, of `full_state_dict`, or of an optimizer of the class
            itself. After a change of ranks, in mode ``parameters``, a list of the results of `state_dict` of
            all ranks.

        Raises
        ------
        FormatError
            If it is of other parameters, or of another rank.
        """
        self.synchronize()
        places = find_places(self._parameters, self.param_groups)
        if isinstance(state_dict, list):
            state_dict = merge_shares(state_dict, self._parameters, places)
        about = state_dict.get(_KEY, {})
        if "fusion" in about:
            plan = decode_plan(about["fusion"], self._parameters)
            self._tuner.stop()
            self._arrange(self._tuner.allowed(plan))
        if self._shards is None:
            if "cuts" in about:
                msg = "it holds one rank's share (mode 'parameters'); save full_state_dict() for this mode"
                raise FormatError("checkpoint", msg)
            self._optimizer.load_state_dict(state_dict)
            self.param_groups, self.state = self._optimizer.param_groups, self._optimizer.state
            return
        for mine, loaded in zip(self.param_groups, state_dict["param_groups"], strict=True):
            mine.update({name: value for name, value in loaded.items() if name != "params"})
        if "cuts" in about:
            self._shards.load_local(state_dict["state"], about["cuts"])
        else:
            self._shards.load_full(state_dict["state"], places)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse further parameters after construction, when the buckets are laid out.

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
        """Remove the hooks from the model and close the connections to the other ranks.

        Parameters
        ----------
        apply
            Whether updates that are being sent are waited for and applied first. After a rank was lost they
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

    # The methods that hooks call

    def gradient_ready(self, number: int) -> None:
        """Put a gradient that is complete in this backward pass into its bucket."""
        if self._channel.listener is not None:
            self._last_gradient = time.perf_counter()
        if not self._paused:
            self._discarded = False
            self._reduce_phase.take(number)
            if self._tuner.measuring:
                self._tuner.gradient_ready(number)

    def before_module(self, module: int) -> None:
        """Wait for the gathers of a module's parameters and apply the updates, before the module runs."""
        for bucket in self._needs[module]:
            if bucket.stage is BucketStage.GATHERING:
                self._gather_phase.finish_from(bucket)
        if self._tuner.measuring:
            self._tuner.module_began(module)

    def forward_began(self) -> None:
        """Take note that the model is about to run."""
        self._forward_begun = time.perf_counter()
        self._report_backward()
        self._tuner.forward_began()

    def forward_ended(self) -> None:
        """Take note that the model has run."""
        self._forward_over = time.perf_counter()
        self._tuner.forward_ended()
        self._channel.report("forward", -1, self._forward_begun, self._forward_over)

    # One step

    def _finish_backward(self) -> None:
        """Start to reduce all gradients that this backward pass has computed."""
        for parameter in self._left_out:
            if parameter.grad is not None and parameter.numel():
                what = f"a parameter of shape {tuple(parameter.shape)}"
                msg = f"{what} did not require a gradient when DeAR was made, but has one now"
                raise InputError(f"{msg}; make another DeAR when parameters are thawed")
        if self._shards is not None:
            self._shards.check_addresses()
        self.synchronize()  # of modules that did not run since the last step
        self._reduce_phase.finish_backward()

    def _tune_fusion(self) -> None:
        """Take another fusion plan at the end of a step, if the tuner has one."""
        if not self.tuning:
            return
        was_deciding = self._tuner.deciding
        new = self._tuner.next_plan(self._reduce_phase.vote_result().seconds)
        if self._tuner.measuring or new is not None:
            self.synchronize()
        if new is not None:
            self._arrange(new)
        decided = was_deciding and not self._tuner.deciding
        if decided and self.fusion.policy == "wfbp" and self._channel.rank == 0:
            _log.warning("DeAR works as WFBP here: %s", (self.decision or "").removeprefix("wfbp: "))

    def _arrange(self, plan: FusionPlan) -> None:
        """Lay out the buckets by a plan; no operation may be running."""
        self._reduce_phase.arrange(plan)
        self._gather_phase.arrange()
        self._reduce_phase.serial = self._tuner.measuring
        self._listen()
        self._channel.clock = self._clock if self._tuner.measuring else time.perf_counter
        if self._shards is not None:
            self._shards.arrange(self._reduce_phase.buckets)
        of = {slot.parameter: slot.bucket for slot in self._reduce_phase.slots}
        self._needs = [
            list(dict.fromkeys(of[parameter] for parameter in module.below if parameter in of))
            for module in self._modules
        ]

    def _listen(self) -> None:
        """Have operations timed while somebody wants to know."""
        wanted = self._tuner.measuring or self._listener is not None
        self._channel.listener = self._on_span if wanted else None

    def _on_span(self, span: OperationSpan) -> None:
        if self._tuner.measuring and span.kind in COMMUNICATION:
            phase = self._reduce_phase
            size = phase.vote_bytes if span.group < 0 else phase.buckets[span.group].size_bytes
            self._tuner.add_sample(span, size)
        if self._listener is not None:
            self._listener(span)

    def _report_backward(self) -> None:
        """Report the latest backward pass, once."""
        if self._last_gradient > self._forward_over > 0:
            self._channel.report("backward", -1, self._forward_over, self._last_gradient)
            self._forward_over = self._last_gradient
