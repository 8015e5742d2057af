"""The workload of a user's model: its forward pass runs once, and the work of each layer is counted.

Every operation that torch executes is looked at: its FLOPs as `torch.utils.flop_counter` counts them, the
numbers that it reads and writes, and the module that it happens in. As everywhere in Weft a layer is a module
with parameters of its own, and what is computed until the next one begins belongs to it.

Backward does not run. It is taken to be twice the forward pass for products and convolutions (once, if the
layer reads the data itself), and one and a half times for the rest, as `weft.training.workloads` counts them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import flop_registry

from weft import limits
from weft.errors import InputError
from weft.torch.internals import DispatchMode, changes_inputs, family, storage, without_fused_kernels
from weft.training.workloads import Operator, Workload
from weft.user_script import UserFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WANTED: Final = "return (model, example_input), the input with samples along its first dimension"
"""What a function that is traced must do."""


def trace(make_model: str | Callable[[], Any]) -> Workload:
    """Count the work of a model.

    Parameters
    ----------
    make_model
        A function, or ``"script.py:function"``, that takes nothing and returns the model and an example of
        its input: a tensor, a tuple of arguments, or a dict of keyword arguments. The first dimension of the
        first tensor is the number of samples, and the workload's batch unless another is given. On
        the meta device nothing is computed, and large models are traced at once.

    Raises
    ------
    InputError
        If the script cannot be run, with the place of its own error, or does not return that.

    Examples
    --------
    >>> workload = trace(lambda: (torch.nn.Linear(8, 4), torch.zeros(16, 8)))
    >>> workload.batch, workload.parameters, workload.operators[0].forward(1, 4).flops
    (16, 36, 64)
    """
    if isinstance(make_model, str):
        return _trace(UserFunction.load(make_model))
    return _trace(UserFunction.of(make_model))


def _trace(maker: UserFunction) -> Workload:
    name = maker.name
    with maker.running(passing=()):
        made = maker.function()
    model, example = _unpack(made, name)
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        with maker.running(f"forward of the model of {name} failed", passing=()):
            values, named = _arguments(example)
            model(*values, **named)  # lazy modules have shapes from then on
    layers = _Layers(model)
    with maker.running(f"forward of the model of {name} failed", passing=()):
        layers.run(*_arguments(example))
    batch = _batch(example, name)
    summary = f"{type(model).__name__} of {name}"
    return Workload(summary, summary, layers.operators(batch), batch, f"traced: forward of {batch} samples")


def _unpack(made: Any, name: str) -> tuple[nn.Module, Any]:
    if isinstance(made, nn.Module):
        raise InputError(f"{name} returned a model alone, and its work depends on its input; {WANTED}")
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise InputError(f"{name} returned {type(made).__name__}; {WANTED}")
    return made


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def _batch(example: Any, name: str) -> int:
    values, named = _arguments(example)
    for value in (*values, *named.values()):
        if isinstance(value, torch.Tensor) and value.dim() and len(value):
            return limits.check(f"samples of the input of {name}", len(value), limits.MAX_BATCH)
    raise InputError(f"the example input of {name} has no tensor with samples; {WANTED}")


_Count: TypeAlias = Counter[Literal["flops", "elements", "weights", "kernels"]]
"""What some operations do in a forward pass over the example."""


@dataclass
class _Layer:
    """A module with parameters, and what was computed from its start to the next one's."""

    name: str
    tensors: tuple[int, ...]
    input_gradient: bool = False
    products: _Count = field(default_factory=Counter)
    rest: _Count = field(default_factory=Counter)

    def operators(self, batch: int) -> Iterator[Operator]:
        """Work per sample: products first, as the module itself, then the rest."""
        passes = 2 if self.input_gradient else 1
        products, rest = self.products, self.rest
        elements = round(products["elements"] / batch)
        yield Operator(
            self.name,
            self.tensors,
            forward_elements=elements,
            backward_elements=passes * elements,
            forward_weights=products["weights"],
            backward_weights=passes * products["weights"],
            kernels=(products["kernels"], passes * products["kernels"]),
            input_gradient=self.input_gradient,
            flops=round(products["flops"] / batch),
        )
        if rest["kernels"]:
            elements = round(rest["elements"] / batch)
            yield Operator(
                f"{self.name}.rest",
                forward_elements=elements,
                backward_elements=round(1.5 * elements),
                forward_weights=rest["weights"],
                backward_weights=2 * rest["weights"],
                kernels=(rest["kernels"], rest["kernels"]),
            )


class _Layers:
    """Layers of a model, found while it runs."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = {module: name for name, module in model.named_modules()}
        self._own = _own_tensors(model)
        self._layers: dict[nn.Module, _Layer] = {}
        self._called: set[nn.Module] = set()
        self._early = self._current = _Layer("before the first layer", ())

    def run(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Run the forward pass; what is computed is kept for `operators`."""
        handles = [module.register_forward_pre_hook(self._enter, with_kwargs=True) for module in self._names]
        weights = {storage(parameter) for parameter in self._model.parameters()}
        counter = _Counter(self._add, weights)
        try:
            # Fused kernels would hide their products from the counter.
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), without_fused_kernels(), counter:
                self._model(*arguments, **named)
        finally:
            for handle in handles:
                handle.remove()

    def operators(self, batch: int) -> tuple[Operator, ...]:
        """Operators per sample, in the order of the forward pass."""
        self._adopt()
        layers = [layer for layer in self._layers.values() if layer.tensors]
        if not layers:
            name = type(self._model).__name__
            raise InputError(f"{name} has no parameters that are trained; there is nothing to model")
        limits.check("layers of the model", len(layers), limits.MAX_LAYERS)
        layers[0].products.update(self._early.products)
        layers[0].rest.update(self._early.rest)
        return tuple(operator for layer in layers for operator in layer.operators(batch))

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._called.add(module)
        if self._own[module]:
            values = (*arguments, *named.values())
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            layer = self._layers.setdefault(module, _Layer(self._title(module), self._own[module]))
            layer.input_gradient |= any(tensor.requires_grad for tensor in tensors)
            self._current = layer

    def _title(self, module: nn.Module) -> str:
        return self._names[module] or type(module).__name__

    def _add(self, count: _Count, *, is_product: bool) -> None:
        (self._current.products if is_product else self._current.rest).update(count)

    def _adopt(self) -> None:
        """Give parameters of modules that were not called themselves to the nearest module around them."""
        around = {name: module for module, name in self._names.items()}
        for module, tensors in self._own.items():
            if not tensors or module in self._called:
                continue
            name = self._names[module]
            while name and around.get(name) not in self._layers:
                name = name.rpartition(".")[0]
            host = around.get(name)
            layer = self._layers[host] if host in self._layers else next(iter(self._layers.values()), None)
            if layer is None:
                layer = self._layers.setdefault(module, _Layer(self._title(module), ()))
            layer.tensors = (*layer.tensors, *tensors)


class _Counter(DispatchMode):  # type: ignore[misc]
    """Tells about every operation that does something."""

    def __init__(self, add: Callable[..., None], weights: set[int]) -> None:
        super().__init__()
        self._add, self._weights = add, weights

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs, outputs = list(_tensors((args, kwargs))), list(_tensors(result))
        places = {storage(tensor) for tensor in inputs}
        is_view = not changes_inputs(func) and all(storage(tensor) in places for tensor in outputs)
        if is_view or not outputs:
            return result
        formula = flop_registry.get(family(func))
        count: _Count = Counter({"kernels": 1})
        if formula is not None:
            count["flops"] = int(formula(*args, **kwargs, out_val=result))
        for tensor in (*inputs, *outputs):
            count["weights" if storage(tensor) in self._weights else "elements"] += tensor.numel()
        self._add(count, is_product=formula is not None)
        return result


def _own_tensors(model: nn.Module) -> dict[nn.Module, tuple[int, ...]]:
    """Numbers in each module's own trainable tensors; a shared one is that of the first module."""
    seen: set[nn.Parameter] = set()
    own: dict[nn.Module, tuple[int, ...]] = {}
    for module in model.modules():
        trained = [one for one in module.parameters(recurse=False) if one.requires_grad]
        fresh = [one for one in trained if one not in seen]
        seen.update(fresh)
        own[module] = tuple(parameter.numel() for parameter in fresh)
    return own


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict | list | tuple):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _tensors(value)
