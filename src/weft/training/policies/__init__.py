"""The list of policies: how a data-parallel job arranges its collectives around what it computes.

A policy turns layers into a `weft.training.task_graph.Graph`. A new one is one module with a `build` and one
line here. Beside them stand lines: times that no arrangement of a kind can beat, whatever its fusion, so that
a policy is never praised for more than there is to gain.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError, look_up
from weft.training.iteration import ideal_dear, ideal_wfbp, placed_dear, placed_wfbp
from weft.training.layers import backward_seconds, check_layers, forward_seconds, total_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.training.costs import Costs
    from weft.training.layers import Layer
    from weft.training.task_graph import Graph

_KNOWN_ELSEWHERE: Final = {
    "fsdp": 3,
    "fsdp2": 3,
    "fully-sharded": 3,
    "zero2": 2,
    "zero-2": 2,
    "zero3": 3,
    "zero-3": 3,
    "deepspeed": 2,
}
"""Names that other systems have for stages of ZeRO."""

_COMMON: Final = ("layers", "iterations", "costs")


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of the registry.

    Parameters
    ----------
    name
        Its module under `weft.training.policies`, with hyphens for underscores.
    line
        Name in `LINES` of the time that it cannot beat.
    summary
        One line for people.
    """

    name: str
    line: str
    summary: str

    @property
    def options(self) -> dict[str, Any]:
        """What can be set besides the layers, with defaults.

        Examples
        --------
        >>> find("dear").options
        {'threshold_bytes': 26214400, 'prefetch': 1, 'tied_last': False}
        """
        parameters = self._signature().items()
        return {name: parameter.default for name, parameter in parameters if name not in _COMMON}

    @property
    def needs_costs(self) -> bool:
        """Whether it decides by what collectives cost."""
        return "costs" in self._signature()

    def build(
        self,
        layers: Sequence[Layer],
        *,
        iterations: int | None = None,
        costs: Costs | None = None,
        **options: Any,
    ) -> Graph:
        """Build the graph of some iterations.

        Parameters
        ----------
        layers
            In the order of the forward pass.
        iterations
            How many, at least 2; by default as many as the policy needs until times repeat.
        costs
            Of the collectives, for a policy that decides by them; others leave them unread.
        options
            Some of `options`.

        Raises
        ------
        InputError
            If an option is unknown, or costs are needed and not given.

        Examples
        --------
        >>> from weft.training import Layer
        >>> len(find("wfbp").build([Layer("a", 1000, 0.1, 0.2)], iterations=2).tasks)
        8
        """
        self.check_options(options)
        if self.needs_costs:
            if costs is None:
                raise InputError(f"policy {self.name} decides by what collectives cost; give costs")
            options["costs"] = costs
        if iterations is not None:
            options["iterations"] = iterations
        graph: Graph = self._module().build(layers, **options)
        return graph

    def check_options(self, names: Iterable[str]) -> None:
        """Raise an `InputError` if there is no option of one of these names."""
        unknown = [name for name in names if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            raise InputError(f"policy {self.name} has no option {unknown[0]!r}; its options: {known}")

    def _module(self) -> Any:
        return import_module(f"weft.training.policies.{self.name.replace('-', '_')}")

    def _signature(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self._module().build).parameters)


@dataclass(frozen=True, slots=True)
class PolicyBound:
    """A time that no arrangement of its kind can beat.

    Parameters
    ----------
    name
        For people.
    seconds
        Gives it for layers and costs. Exchanges between layers are left out, so the line is low where a model
        has any.
    summary
        One line for people.
    """

    name: str
    seconds: Callable[[Sequence[Layer], Costs], float]
    summary: str


def ideal_overlap(layers: Sequence[Layer], costs: Costs) -> float:
    """Seconds that no all-reduces can beat even where they reach into the next iteration.

    Examples
    --------
    >>> from weft.training import Layer, Linear
    >>> ideal_overlap([Layer("a", 1000, 1.0, 2.0)], Linear.ring(2, alpha_s=2.0, beta_s_per_byte=0.0))
    4.0
    """
    check_layers(layers)
    computing = forward_seconds(layers) + backward_seconds(layers)
    return max(computing, costs.all_reduce(total_bytes(layers)))


LINES: Final[dict[str, PolicyBound]] = {
    line.name: line
    for line in (
        PolicyBound(
            "ideal-wfbp", ideal_wfbp, "one all-reduce that overlaps the backward pass from its start"
        ),
        PolicyBound(
            "ideal-dear", ideal_dear, "one reduce-scatter behind backward, one all-gather behind forward"
        ),
        PolicyBound("ideal-overlap", ideal_overlap, "one all-reduce that overlaps the whole iteration"),
        PolicyBound("placed-wfbp", placed_wfbp, "ideal-wfbp, but no gradient is sent before it is computed"),
        PolicyBound("placed-dear", placed_dear, "ideal-dear, but layers compute where they do"),
    )
}

POLICIES: Final[dict[str, Policy]] = {
    line.name: line
    for line in (
        Policy("serial", "ideal-wfbp", "no overlap: backward, then all-reduces, then the next forward"),
        Policy("wfbp", "ideal-wfbp", "all-reduces behind the backward pass, of every tensor unless fused"),
        Policy("ddp", "ideal-wfbp", "PyTorch's buckets (by default 25 MiB, the first 1 MiB) behind backward"),
        Policy("horovod", "ideal-wfbp", "what is ready in a cycle is fused (by default 1 ms, up to 128 MiB)"),
        Policy("mg-wfbp", "ideal-wfbp", "gradients merged where latency saved outweighs waiting"),
        Policy("bytescheduler", "ideal-overlap", "parts (by default 4 MB), first layers first, no barrier"),
        Policy("gradient-first", "ideal-overlap", "gradients of weights before those of inputs, no barrier"),
        Policy("zero", "ideal-dear", "gradients spread over the ranks (stage 2), or parameters too (3)"),
        Policy("dear", "ideal-dear", "reduce-scatters behind backward, all-gathers behind the next forward"),
    )
}


def find(name: str) -> Policy:
    """Give the policy of a name.

    Raises
    ------
    InputError
        If there is none of that name; says which are close, and which there are.

    Examples
    --------
    >>> find("dear").line
    'ideal-dear'
    """
    if name.lower() in _KNOWN_ELSEWHERE:
        stage, options = _KNOWN_ELSEWHERE[name.lower()], find("zero").options
        msg = f"there is no policy {name!r}: what it does is policy zero with stage {stage}"
        known = ", ".join(options)
        raise InputError(f"{msg} (--policy zero --option stage={stage}); options of zero: {known}")
    return look_up("policy", name, POLICIES)
