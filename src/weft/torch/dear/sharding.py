"""Parameters mode: each rank updates its share of the parameters, and updated parameters are gathered.

The parameters of a bucket lie in one buffer, as their gradients do. A rank's share of it consists of
`ParameterPiece`s, each a run of elements of one parameter; the optimizer keeps its state for these alone, so
it must work element by element. The state in full, by parameter, is put together from the pieces of all
ranks, and cut anew for another plan. Checkpoints are of this rank's pieces, or of the state in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch
from torch.utils.weak import WeakIdKeyDictionary

from weft.errors import FormatError, InputError
from weft.torch.dear.partial_step import update

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weft.torch.dear.bucket_channel import BucketChannel
    from weft.torch.dear.fusion_plan import Parameters
    from weft.torch.dear.gradient_bucket import GradientBucket
    from weft.torch.dear.partial_step import Captured

ELEMENTWISE: Final = (
    torch.optim.SGD,
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.Adamax,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)


SCALARS: Final = ("step", "mu_product")
"""State that these optimizers keep once per parameter; all other state has the parameter's shape."""

_owned_parameters: Any = WeakIdKeyDictionary()
"""Parameters that lie in the memory of a DeAR."""


@dataclass(frozen=True, eq=False)
class ParameterPiece:
    """Elements ``first`` to ``last`` of a parameter, which this rank updates."""

    number: int
    first: int
    last: int
    tensor: torch.nn.Parameter


class _BucketParameters:
    """The buffer of a bucket's parameters, and this rank's pieces of it."""

    def __init__(self, channel: BucketChannel, bucket: GradientBucket) -> None:
        self.flat = channel.buffer(bucket.cut.padded, bucket.flat)
        for slot in bucket.slots:
            view = self.flat[slot.first : slot.last].view(slot.parameter.shape)
            view.copy_(slot.parameter.data)
            slot.parameter.data = view
        self.addresses = [(slot.parameter, slot.parameter.data_ptr()) for slot in bucket.slots]
        own, first = bucket.cut.own(bucket.flat), bucket.cut.mine.start
        self.pieces: list[ParameterPiece] = []
        for slot in bucket.slots:
            start, end = max(slot.first, first), min(slot.last, bucket.cut.mine.stop)
            if start < end:
                tensor = torch.nn.Parameter(self.flat[start:end], requires_grad=False)
                tensor.grad = own[start - first : end - first]
                self.pieces.append(ParameterPiece(slot.number, start - slot.first, end - slot.first, tensor))


class Shards:
    """All pieces of this rank, and the optimizer's state for them.

    Parameters
    ----------
    channel
        The ranks that take part.
    optimizer
        The user's optimizer; its own parameters are of no meaning.
    parameters
        The parameters that are trained.
    group_of
        The group of parameters that each parameter belongs to.
    """

    def __init__(
        self,
        channel: BucketChannel,
        optimizer: torch.optim.Optimizer,
        parameters: Parameters,
        group_of: Sequence[int],
    ) -> None:
        self._channel, self._optimizer, self._parameters = channel, optimizer, parameters
        self._group_of = group_of
        if any(tensor in _owned_parameters for tensor in parameters.tensors):
            msg = "a parameter belongs to another DeAR of mode 'parameters' already; close that one first"
            raise InputError(msg)
        for tensor in parameters.tensors:
            _owned_parameters[tensor] = True
        self._buckets: list[_BucketParameters] = []

    @property
    def pieces(self) -> list[ParameterPiece]:
        """All pieces of this rank."""
        return [piece for bucket in self._buckets for piece in bucket.pieces]

    def check_addresses(self) -> None:
        """Refuse to go on if a parameter was moved out of its bucket's buffer."""
        for bucket in self._buckets:
            for parameter, address in bucket.addresses:
                if parameter.data_ptr() != address:
                    shape = tuple(parameter.shape)
                    msg = f"a parameter of shape {shape} was moved in memory after DeAR was made"
                    raise InputError(f"{msg} (.to(), .data = ...); move it before, or use mode='gradients'")

    @property
    def cuts(self) -> list[list[int]]:
        """The number of the parameter, first and last element of each piece of this rank."""
        return [[piece.number, piece.first, piece.last] for piece in self.pieces]

    def close(self) -> None:
        """Release the parameters for another DeAR."""
        for tensor in self._parameters.tensors:
            _owned_parameters.pop(tensor, None)

    def arrange(self, buckets: Sequence[GradientBucket]) -> None:
        """Cut the parameters as these buckets are; every rank calls this at the same time."""
        state = self.gather_state() if self._buckets else {}
        old = self._buckets  # parameters lie in it until they have moved
        self._buckets = [_BucketParameters(self._channel, bucket) for bucket in buckets]
        del old
        self._optimizer.state.clear()
        self.cut_state(state)

    def update(
        self, buckets: Sequence[GradientBucket], captured: Captured, unused: Collection[int]
    ) -> dict[int, dict[str, Any]]:
        """Update this rank's pieces of some buckets; return the options that the optimizer changed."""
        part: dict[int, list[torch.nn.Parameter]] = {}
        for bucket in buckets:
            for piece in self._buckets[bucket.number].pieces:
                if piece.number not in unused:
                    part.setdefault(self._group_of[piece.number], []).append(piece.tensor)
        return update(self._optimizer, list(part.items()), captured) if part else {}

    def start_gathering(self, bucket: GradientBucket) -> None:
        """Start to send the parameters that this rank has updated to all ranks."""
        flat = self._buckets[bucket.number].flat
        bucket.start_gathering(flat, flat[bucket.cut.mine])

    def gather_state(self) -> dict[int, dict[str, Any]]:
        """Return the state of every parameter in full, on every rank; every rank calls this."""
        mine = {piece.number: kept for piece in self.pieces if (kept := self._describe(piece))}
        known: dict[int, dict[str, _Value]] = {}
        for row in self._channel.collect(msgspec.json.encode(mine)):
            for number, described in msgspec.json.decode(row, type=dict[int, dict[str, _Value]]).items():
                known.setdefault(number, {}).update(described)
        found: dict[int, dict[str, Any]] = {number: {} for number in sorted(known)}
        for number, values in sorted(known.items()):
            for name, value in sorted(values.items()):
                if value.value is None:
                    found[number][name] = self._put_together(number, name, value)
                else:
                    found[number][name] = value.scalar(self._parameters.tensors[number].device)
        return found

    def cut_state(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Keep the parts of a state in full that belong to this rank's pieces."""
        for piece in self.pieces:
            values = state.get(piece.number)
            if values:
                whole = self._parameters.tensors[piece.number].numel()
                self._optimizer.state[piece.tensor] = {
                    name: _cut_value(name, value, piece, whole) for name, value in values.items()
                }

    def load_full(self, state: Mapping[int, Mapping[str, Any]], places: Mapping[int, int]) -> None:
        """Replace the state by that of all parameters, which is given by their places in a checkpoint."""
        self._optimizer.state.clear()
        self.cut_state({number: state[place] for number, place in places.items() if place in state})

    def local_state(self) -> dict[int, dict[str, Any]]:
        """Return the state of this rank's pieces, by their place in `cuts`."""
        return {
            place: dict(self._optimizer.state[piece.tensor])
            for place, piece in enumerate(self.pieces)
            if piece.tensor in self._optimizer.state
        }

    def load_local(self, state: Mapping[int, Mapping[str, Any]], cuts: Any) -> None:
        """Replace the state by a result of `local_state`.

        Raises
        ------
        FormatError
            If it is of other pieces.
        """
        if cuts != self.cuts:
            msg = (
                "it holds another rank's share, or that of another cut; load what full_state_dict() gave, or "
                "a list of the checkpoints of all ranks"
            )
            raise FormatError("checkpoint", msg)
        self._optimizer.state.clear()
        for place, values in state.items():
            piece = self.pieces[int(place)]
            for name, value in values.items():
                _check_size(name, value, piece.last - piece.first)
            self._optimizer.state[piece.tensor] = {
                name: _at(piece, name, value.clone()) if isinstance(value, torch.Tensor) else value
                for name, value in values.items()
            }

    def _describe(self, piece: ParameterPiece) -> dict[str, _Value]:
        """Return what the optimizer keeps for a piece, without the elements."""
        found = {}
        for name, value in self._optimizer.state.get(piece.tensor, {}).items():
            if isinstance(value, torch.Tensor) and value.shape == (piece.last - piece.first,):
                found[name] = _Value(str(value.dtype))
            elif isinstance(value, torch.Tensor) and value.numel() == 1:
                found[name] = _Value(str(value.dtype), value.item(), beside=value.device.type != "cpu")
            elif isinstance(value, bool | int | float):
                found[name] = _Value("", value, tensor=False)
            elif value is not None:  # None is made when it is first needed, as the momentum of SGD is
                msg = f"the optimizer keeps {name!r} of a form that cannot be cut: use mode='gradients'"
                raise InputError(msg)
        return found

    def _put_together(self, number: int, name: str, value: _Value) -> torch.Tensor:
        """Return one tensor of a parameter's state: a sum of all ranks, each with 0 outside its pieces."""
        parameter = self._parameters.tensors[number]
        dtype = getattr(torch, value.dtype.removeprefix("torch."))
        whole = torch.zeros(parameter.numel(), dtype=dtype, device=parameter.device)
        for piece in self.pieces:
            if piece.number == number and name in self._optimizer.state.get(piece.tensor, {}):
                whole[piece.first : piece.last] = self._optimizer.state[piece.tensor][name]
        self._channel.sum(whole).wait()
        return whole.view(parameter.shape)


class _Value(msgspec.Struct, omit_defaults=True):
    """A tensor of the state with one element per element of the parameter, or a single number.

    Optimizers keep their count of steps on the CPU, unless they are fused or capturable: `beside` says that
    a number lies where its parameter does.
    """

    dtype: str
    value: float | int | bool | None = None
    tensor: bool = True
    beside: bool = False

    def scalar(self, device: torch.device) -> Any:
        if not self.tensor:
            return self.value
        dtype = getattr(torch, self.dtype.removeprefix("torch."))
        return torch.tensor(self.value, dtype=dtype, device=device if self.beside else None)


def _cut_value(name: str, value: Any, piece: ParameterPiece, whole: int) -> Any:
    _check_size(name, value, whole)
    if not isinstance(value, torch.Tensor):
        return value
    part = value if name in SCALARS else value.reshape(-1)[piece.first : piece.last]
    return _at(piece, name, part.clone())


def _at(piece: ParameterPiece, name: str, value: torch.Tensor) -> torch.Tensor:
    """Move state of a checkpoint to the device of its piece; a number that was on the CPU stays there."""
    stays = name in SCALARS and value.device.type == "cpu"
    return value if stays else value.to(piece.tensor.device)


def _check_size(name: str, value: Any, elements: int) -> None:
    """Refuse a tensor of another parameter's state."""
    if isinstance(value, torch.Tensor) and value.numel() != (1 if name in SCALARS else elements):
        msg = f"{name!r} has {value.numel()} elements; expected {elements}: it is of another model"
        raise FormatError("checkpoint", msg)


def find_places(parameters: Parameters, groups: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Return the place of each parameter in a state as torch writes it, counted through all groups."""
    ordered = [one for group in groups for one in group["params"]]
    place = {one: number for number, one in enumerate(ordered)}
    return {number: place[one] for number, one in enumerate(parameters.tensors)}


def pack_groups(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return groups of parameters as torch writes them: with places instead of tensors."""
    packed, count = [], 0
    for group in groups:
        size = len(group["params"])
        packed.append({**group, "params": list(range(count, count + size))})
        count += size
    return packed


def merge_shares(
    checkpoints: Sequence[dict[str, Any]], parameters: Parameters, places: Mapping[int, int]
) -> dict[str, Any]:
    """Merge the results of `DeAR.state_dict` on all ranks, in mode ``parameters``, into a state in full.

    Parameters
    ----------
    checkpoints
        The checkpoints of all ranks, in any order.
    parameters
        The parameters that are trained.
    places
        The place of each of them in a state as torch writes it.

    Raises
    ------
    FormatError
        If ranks are missing, or they are of other parameters.
    """
    abouts = [checkpoint.get("weft", {}) for checkpoint in checkpoints]
    if any("cuts" not in about for about in abouts):
        raise FormatError("checkpoints", "a list is for the shares of mode 'parameters', one of every rank")
    ranks = sorted(about["rank"] for about in abouts)
    size = abouts[0]["size"]
    if ranks != list(range(size)):
        raise FormatError("checkpoints", f"they are of ranks {ranks}; expected 0 to {size - 1}, each once")
    state: dict[int, dict[str, Any]] = {}
    for checkpoint, about in zip(checkpoints, abouts, strict=True):
        for place, values in checkpoint["state"].items():
            number, first, last = about["cuts"][int(place)]
            if not 0 <= number < parameters.count or last > parameters.tensors[number].numel():
                raise FormatError("checkpoints", "they are of other parameters than this model's")
            whole = state.setdefault(places[number], {})
            for name, value in values.items():
                _put(whole, name, value, first, last, parameters.tensors[number])
    return {"state": state, "param_groups": checkpoints[0]["param_groups"]}


def _put(
    whole: dict[str, Any], name: str, value: Any, first: int, last: int, parameter: torch.nn.Parameter
) -> None:
    if isinstance(value, torch.Tensor) and name not in SCALARS:
        if value.numel() != last - first:
            raise FormatError("checkpoints", f"{name!r} has {value.numel()} elements, not {last - first}")
        if name not in whole:
            whole[name] = torch.zeros_like(parameter, dtype=value.dtype)
        whole[name].reshape(-1)[first:last] = value
    elif name in whole and float(whole[name]) != float(value):  # of tensors, which may be on several devices
        raise FormatError("checkpoints", f"they are of different steps: {name!r} differs between ranks")
    else:
        whole[name] = value
