"""Ways to compute the models of ACE, and what of each is changed in a variant of it.

- ``published``: the layer times and bytes of ASTRA-sim 1.0, by authors of the paper. GNMT is not in it;
  its layers are given the FLOP/s that the times of ResNet-50 imply, which is an assumption.
- ``roofline``: the accelerator's figures with what kernels reach of them.
- ``peak``: 120 TFLOP/s, no limit of memory, no launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from weft.training.devices import Device, find_device
from weft.training.endpoint_cost import layers_under
from weft.training.endpoints import ENDPOINTS, WHILE_SENDING, find_endpoint
from weft.training.layers import Layer, backward_seconds, forward_seconds, slow_down
from weft.training.workloads import PublishedWorkload, load_workload
from weft.training.workloads.published import published_dlrm, resnet50_grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.endpoint_cost import Slowdowns
    from weft.training.endpoints import Endpoint
    from weft.training.workloads import Workload
    from weft.training.workloads.published import Grouping

BATCHES: Final = {"resnet50": 32, "gnmt": 128, "dlrm": 512}
"""Samples of each rank, recalled from the paper."""

_UNLIMITED: Final = 1e30
_DTYPE: Final = "fp16"


def devices() -> dict[str, Device]:
    """The accelerator with what kernels reach, without its launches, and with nothing but its peak."""
    npu = find_device("ace-npu")
    assert isinstance(npu, Device)
    peak = replace(
        npu,
        memory_bytes_per_s=_UNLIMITED,
        core_efficiency=1.0,
        tensor_efficiency=1.0,
        memory_efficiency=1.0,
        launch_s=0.0,
    )
    return {"roofline": npu, "without launches": replace(npu, launch_s=0.0), "peak": peak}


@dataclass(frozen=True, slots=True)
class Computing:
    """How long layers compute, and what an endpoint costs them.

    Parameters
    ----------
    name
        For people.
    way
        Where times are from.
    yardstick
        By which of `devices` a published layer is slowed; with ``peak`` only processors are taken away.
    grouping
        Which operators stand for a published convolution.
    per_layer
        Whether each layer is slowed by its own operators; if not, all by what the whole model is.
    pictures
        Of ResNet-50 that the published times are taken to be of; GNMT's FLOP/s follow from them.
    repeated
        How often the published times of a layer follow one another.
    bytes_share
        Share of the published bytes that are sent.
    while_sending
        Whether an endpoint takes from computing only while its rank sends.
    lookup_ahead
        Whether DLRM's loop is that which looks up an iteration ahead.
    """

    name: str
    way: Literal["published", "roofline", "peak"]
    yardstick: str = "roofline"
    grouping: Grouping = "normalised"
    per_layer: bool = True
    pictures: int = 32
    repeated: int = 1
    bytes_share: float = 1.0
    while_sending: bool = False
    lookup_ahead: bool = False

    @property
    def device(self) -> Device:
        """What computes, or by what a published layer is slowed."""
        return devices()[self.way if self.way != "published" else self.yardstick]

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint of a name, which takes all the time or only while it sends."""
        return find_endpoint(name + WHILE_SENDING) if self.while_sending else ENDPOINTS[name]

    def workload(self, model: str) -> Workload:
        """The model with the times of this way."""
        if self.way != "published" or model not in BATCHES:
            return load_workload(model)
        match model:
            case "resnet50":
                return resnet50_grouped(self.grouping)
            case "dlrm":
                return published_dlrm()
            case _:
                return at_published_speed(model, self.pictures)

    def layers(self, model: str, endpoint: str) -> tuple[tuple[Layer, ...], Slowdowns | None]:
        """Layers of a model with an endpoint, and how much slower they are while it sends."""
        batch = BATCHES.get(model)
        workload, device, found = self.workload(model), self.device, self.endpoint(endpoint)
        if self.per_layer:
            layers, slowdowns = layers_under(workload, device, found, batch, _DTYPE)
        else:
            whole = load_workload(model).layers(device, batch, _DTYPE)
            factor = _seconds(layers_under(load_workload(model), device, found, batch, _DTYPE)[0]) / _seconds(
                whole
            )
            layers, slowdowns = tuple(slow_down(one, factor, factor) for one in workload.layers(device)), None
        if self.way == "published":
            layers = tuple(self._changed(layer) for layer in layers)
        return layers, slowdowns

    def _changed(self, layer: Layer) -> Layer:
        changed = slow_down(layer, self.repeated, self.repeated)
        size_bytes = round(layer.size_bytes * self.bytes_share)
        tensors = tuple(round(tensor * self.bytes_share) for tensor in layer.tensors)
        return replace(changed, size_bytes=sum(tensors) if tensors else size_bytes, tensors=tensors)


COUNTED: Final = Computing("published", "published")
"""The row that counts: published times, each layer slowed by its own operators, a batch normalisation with
its convolution, and resources set aside all the time. It was fixed after first trials and with the paper's
numbers known; no constant is fitted."""

WAYS: Final = (COUNTED, Computing("roofline", "roofline"), Computing("peak", "peak"))

VARIANTS: Final = (
    replace(COUNTED, name="taken only while sending", while_sending=True),
    replace(COUNTED, name="activations, sums and pooling with the convolution as well", grouping="layer"),
    replace(COUNTED, name="a convolution by itself", grouping="convolution"),
    replace(COUNTED, name="one factor for the whole model", per_layer=False),
    replace(COUNTED, name="without launches of kernels", yardstick="without launches"),
    replace(COUNTED, name="only processors taken, no memory", yardstick="peak"),
    replace(COUNTED, name="half the bytes (fp16)", bytes_share=0.5),
    replace(COUNTED, name="32 pictures one after the other", repeated=32),
)
"""The same for ResNet-50 with one thing changed."""

GNMT_VARIANTS: Final = (
    VARIANTS[0],
    replace(COUNTED, name="half the bytes (fp16)", bytes_share=0.5),
    replace(COUNTED, name="FLOP/s if the times are of one picture", pictures=1),
)

LOOKUP_SLOWDOWN: Final = 900 / 80
"""Lookups ahead have 80 of the 900 GB/s; recalled from the paper."""

DLRM_VARIANTS: Final = (VARIANTS[0], replace(COUNTED, name="lookups an iteration ahead", lookup_ahead=True))

OTHER_WAYS_WHILE_SENDING: Final = tuple(
    replace(way, name=f"{way.name}, taken only while sending", while_sending=True) for way in WAYS[1:]
)


@cache
def at_published_speed(model: str, pictures: int) -> PublishedWorkload:
    """A model without published times, at the FLOP/s that those of ResNet-50 imply, four bytes a parameter.

    Parameters
    ----------
    model
        Name of a workload.
    pictures
        How many the published times of ResNet-50 are taken to be of.
    """
    times, other = resnet50_grouped("normalised").published, load_workload(model)
    speeds = [
        flops / seconds
        for flops, seconds in zip(
            _flops(load_workload("resnet50"), pictures),
            (forward_seconds(times), backward_seconds(times)),
            strict=True,
        )
    ]
    layers, groups = [], []
    for module in other.modules():
        forward, backward = (
            sum(work.flops for work in works) / speed
            for works, speed in zip(
                zip(
                    *((one.forward(BATCHES[model], 2), one.backward(BATCHES[model], 2)) for one in module),
                    strict=True,
                ),
                speeds,
                strict=True,
            )
        )
        head = next(one for one in module if one.starts_layer)
        tensors = tuple(4 * count for count in head.tensors)
        layers.append(Layer(head.name, sum(tensors), forward, backward, tensors=tensors))
        groups.append(tuple(module))
    summary = f"{other.summary} at the FLOP/s of the published ResNet-50"
    return PublishedWorkload(
        other.name, summary, other.operators, BATCHES[model], other.source, tuple(layers), tuple(groups)
    )


def published_flops_per_s(pictures: int) -> float:
    """FLOP/s of the published ResNet-50, if its times are of so many pictures."""
    return sum(_flops(load_workload("resnet50"), pictures)) / _seconds(
        resnet50_grouped("normalised").published
    )


def _flops(workload: Workload, batch: int) -> tuple[int, int]:
    works = [(one.forward(batch, 2), one.backward(batch, 2)) for one in workload.operators]
    return sum(forward.flops for forward, _ in works), sum(backward.flops for _, backward in works)


def _seconds(layers: Sequence[Layer]) -> float:
    return forward_seconds(layers) + backward_seconds(layers)
