"""A map of what ACE gains: over how much is sent for what is computed, and how much of that memory bounds.

The ground is a model of equal layers, whose share `y` of computing is bound by memory and the rest by
processors. On it stand the models that Weft knows, each with the gain of its own iteration.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.papers.ace.computing import BATCHES, WAYS, devices
from weft.papers.ace.iterations import BASELINES, NAMES, IterationCase, point
from weft.papers.claims import StudyCase
from weft.training import AlphaBeta, Layer, Linear, policies, single_channel
from weft.training.endpoints import ENDPOINTS
from weft.training.layers import backward_seconds, forward_seconds
from weft.training.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.papers.ace.computing import Computing

SHARES: Final = (0.001, 5.0)
"""Sending over computing, from where to where the map goes at least."""

_LAYERS: Final = 50
_SLIGHTLY: Final = 1e-3
_RATIOS: Final = tuple(10 ** (place / 12) for place in range(-36, 19))


@dataclass(frozen=True, slots=True)
class MapPoint(StudyCase):
    """A model on the map.

    Parameters
    ----------
    computing, model, shape
        Which.
    sending
        Sending over computing, with an endpoint that costs nothing.
    memory_bound
        Share of computing that is bound by memory.
    gain
        How many times as fast as the best baseline ACE is.
    """

    computing: str
    model: str
    shape: str
    sending: float
    memory_bound: float
    gain: float


def memory_bound(computing: Computing, model: str) -> float:
    """Share of a model's computing that would take longer with less memory bandwidth.

    Examples
    --------
    >>> round(memory_bound(WAYS[2], "resnet50"), 6)
    0.0
    """
    workload, device = computing.workload(model), computing.device
    less = device.share(memory_bandwidth=1 - _SLIGHTLY)
    batch = BATCHES.get(model)
    whole, slower = workload.layers(device, batch, "fp16"), workload.layers_left(device, less, batch, "fp16")
    before, after = (forward_seconds(one) + backward_seconds(one) for one in (whole, slower))
    return (after / before - 1) / (1 / (1 - _SLIGHTLY) - 1)


def map_points(
    cases: Iterable[IterationCase], shape: str, payload_gbs: Mapping[str, float]
) -> list[MapPoint]:
    """Every model that Weft knows: those of the paper by each way to compute, others by the roofline.

    Parameters
    ----------
    cases
        Iterations that are simulated already, those of the paper's models by each of `WAYS` among them.
    shape, payload_gbs
        Of the platform, and the rates of all-reduces alone on it.
    """
    ways = {way.name: way for way in WAYS}
    known = [one for one in cases if one.shape == shape and one.computing in ways]
    roofline = ways["roofline"]
    others = [name for name in WORKLOADS if name not in BATCHES]
    known += [point(roofline, name, shape, payload_gbs) for name in others]
    return [
        MapPoint(
            one.computing,
            one.model,
            shape,
            one.share,
            memory_bound(ways[one.computing], one.model),
            one.speedup,
        )
        for one in known
    ]


class Ground:
    """What ACE gains on a model of equal layers.

    Its iteration depends on one number alone, how long is sent for how long is computed with what an endpoint
    leaves, so that is simulated once for a row of such numbers.

    Parameters
    ----------
    payload_gbs
        Rates of all-reduces alone, by endpoint.
    """

    def __init__(self, payload_gbs: Mapping[str, float]) -> None:
        self._rates = payload_gbs
        self._overlapped = [_iteration(ratio) for ratio in _RATIOS]

    def gain(self, sending: float, memory_bound_percent: float) -> float:
        """How many times as fast as the best baseline ACE is, at a place of the map."""
        seconds = {name: self._seconds(name, sending, memory_bound_percent / 100) for name in NAMES}
        return min(seconds[name] for name in BASELINES) / seconds["ace"]

    def _seconds(self, name: str, sending: float, memory_bound_share: float) -> float:
        """Of an iteration that computes for a second where nothing is taken away."""
        endpoint = ENDPOINTS[name]
        sent = sending * self._rates["ideal"] / self._rates[name]
        if not endpoint.overlaps:
            return 1 + sent
        npu = devices()["roofline"]
        memory = npu.memory_bytes_per_s / (npu.memory_bytes_per_s - (endpoint.memory_bandwidth or 0))
        processors = npu.units / (npu.units - endpoint.processors)
        computed = memory_bound_share * memory + (1 - memory_bound_share) * processors
        return computed * self._interpolate(sent / computed)

    def _interpolate(self, ratio: float) -> float:
        """Seconds of an iteration that computes for one second and sends for `ratio`."""
        place = min(max(1, bisect_left(_RATIOS, ratio)), len(_RATIOS) - 1)
        (low, high), (before, after) = _RATIOS[place - 1 : place + 1], self._overlapped[place - 1 : place + 1]
        return before + (after - before) * (ratio - low) / (high - low)


def _iteration(ratio: float) -> float:
    """Seconds of an iteration of equal layers that computes for one second and sends for `ratio`."""
    size = 1 << 20
    layer = partial(Layer, size_bytes=size, forward_s=1 / 3 / _LAYERS, backward_s=2 / 3 / _LAYERS)
    layers = [layer(str(number), weight_gradient_s=1 / 3 / _LAYERS) for number in range(_LAYERS)]
    line = AlphaBeta(0.0, ratio / (size * _LAYERS))
    graph = policies.find("gradient-first").build(layers, iterations=3)
    return single_channel.run(graph, Linear(line, line, line)).seconds
