"""The prediction of the model of an iteration for the fusion plan that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from weft.training import FORMULAS, Layer, ideal_dear, ideal_wfbp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.profiling.figures import Figures
    from weft.torch.profiling.recording import Recording
    from weft.training import Groups, IterationTimeline


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted iteration.

    Parameters
    ----------
    timeline
        The timeline of the model, with updates as they were measured.
    measured_s
        The measured time of an iteration.
    ideal_wfbp_s, ideal_dear_s
        The times that no fusion could beat by either policy.
    """

    timeline: IterationTimeline
    measured_s: float
    ideal_wfbp_s: float
    ideal_dear_s: float

    @property
    def deviation(self) -> float:
        """The share by which the measured iteration is longer than the predicted one."""
        return self.measured_s / self.timeline.seconds - 1 if self.timeline.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {
            "seconds": self.timeline.seconds,
            "exposed_s": self.timeline.exposed_s,
            "hidden": self.timeline.hidden,
            "measured_s": self.measured_s,
            "deviation": self.deviation,
            "ideal_wfbp_s": self.ideal_wfbp_s,
            "ideal_dear_s": self.ideal_dear_s,
        }


def predict(recording: Recording, figures: Figures) -> Prediction | str:
    """Predict the recorded iterations; return the reason if that is not possible."""
    layers, costs = recording.layers, recording.costs
    if layers is None or costs is None:
        return "DeAR measured neither layers nor costs; leave fusion or policy to it, and it does"
    groups = match(layers, [group.names for group in recording.fusion.groups])
    if groups is None:
        return "the groups are not made of the layers that were measured"
    update = figures.parts["update"].median_s
    # Updates are made before the layers that need them run, which is in the forward pass; what each layer's
    # takes is about its share of the bytes.
    total = sum(layer.size_bytes for layer in layers) or 1
    busy = [replace(layer, forward_s=layer.forward_s + update * layer.size_bytes / total) for layer in layers]
    return Prediction(
        timeline=FORMULAS[recording.fusion.policy](busy, groups, costs),
        measured_s=figures.whole.median_s,
        ideal_wfbp_s=ideal_wfbp(busy, costs),
        ideal_dear_s=ideal_dear(busy, costs),
    )


def match(layers: Sequence[Layer], groups: Sequence[Sequence[str]]) -> Groups | None:
    """Numbers of the layers that each group's parameters belong to; None if some belong to none.

    A layer whose parameters are in several groups, because they differ in type, counts as in the last of
    them, which is when it is complete.

    Examples
    --------
    >>> model = [Layer("embed", 8, 0.0, 0.0), Layer("block.out", 8, 0.0, 0.0)]
    >>> match(model, [["block.out.bias", "block.out.weight"], ["embed.weight"]])
    ((1,), (0,))
    """
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    group_of: dict[int, int] = {}
    for group, names in enumerate(groups):
        for name in names:
            layer = _owner(name, numbers)
            if layer is None:
                return None
            group_of[layer] = group
    found: list[list[int]] = [[] for _ in groups]
    for layer in sorted(group_of, reverse=True):
        found[group_of[layer]].append(layer)
    if any(layer.size_bytes and number not in group_of for number, layer in enumerate(layers)):
        return None
    return tuple(tuple(members) for members in found if members)


def _owner(parameter: str, numbers: dict[str, int]) -> int | None:
    """The layer that a parameter lies in: the nearest module above it that is one."""
    module = parameter
    while module:
        module = module.rpartition(".")[0]
        if module in numbers:
            return numbers[module]
    return numbers.get("model")
