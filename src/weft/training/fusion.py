"""Which layers' gradients travel together.

Gradients become ready from the last layer to the first, so groups are runs of layers in that order. One group
is one collective: few groups save what every call costs, many groups start earlier.
"""

from __future__ import annotations

import hashlib
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING, TypeAlias

from weft.errors import InputError
from weft.training.layers import Layer, backward_seconds, check_layers, forward_seconds, total_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Numbers of layers, group by group in the order in which they are sent."""


def fuse(layers: Sequence[Layer], threshold_bytes: int) -> Groups:
    """Fuse neighbouring layers up to a size.

    The rule: walk from the last layer to the first; a layer joins the open group unless that would then have
    more than `threshold_bytes`, else it opens the next one. Layers are never cut, so one that is larger than
    the threshold is a group of its own. Layers without parameters are in no group.

    Raises
    ------
    InputError
        If the threshold is less than one byte, or there are no layers.

    Examples
    --------
    >>> from weft.training import Layer
    >>> model = [Layer(name, size, 0.0, 0.0) for name, size in (("a", 4), ("b", 9), ("c", 3), ("d", 2))]
    >>> fuse(model, 5), fuse(model, 14)
    (((3, 2), (1,), (0,)), ((3, 2, 1), (0,)))
    """
    check_layers(layers)
    if threshold_bytes < 1:
        raise InputError(f"threshold of {threshold_bytes} bytes: give at least 1, which fuses nothing")
    groups: list[list[int]] = []
    filled = 0
    for index in range(len(layers) - 1, -1, -1):
        size = layers[index].size_bytes
        if not size:
            continue
        if groups and filled + size <= threshold_bytes:
            groups[-1].append(index)
            filled += size
        else:
            groups.append([index])
            filled = size
    return tuple(map(tuple, groups))


def condense(layers: Sequence[Layer], groups: Groups) -> tuple[Layer, ...]:
    """Make one layer of each group of `fuse`, and one of what lies between two of them.

    Nothing waits or is sent inside a group, so an iteration takes as long as before, and less to model.
    Layers that exchange something stay as they are, and so does a model that has any.

    Examples
    --------
    >>> from weft.training import Layer
    >>> model = [Layer(name, size, 1.0, 2.0) for name, size in (("a", 4), ("b", 0), ("c", 3), ("d", 2))]
    >>> [(layer.name, layer.size_bytes, layer.forward_s) for layer in condense(model, ((3,), (2, 0)))]
    [('a', 7, 3.0), ('d', 2, 1.0)]
    """
    if any(layer.exchange is not None for layer in layers):
        return tuple(layers)
    place = {
        index: number for number, group in enumerate(groups) for index in range(min(group), max(group) + 1)
    }
    return tuple(
        Layer(
            run[0].name,
            total_bytes(run),
            forward_seconds(run),
            backward_seconds(run),
            tied_gradient_s=min(sum(layer.tied_gradient_s for layer in run), backward_seconds(run)),
        )
        for _, members in groupby(range(len(layers)), key=place.get)
        for run in [[layers[index] for index in members]]
    )


def distinct_thresholds(layers: Sequence[Layer], most: int) -> list[int]:
    """Smallest threshold of each different fusion, from one layer to everything, ascending.

    Where there are more than `most`, as many thresholds in even ratios; some of these may fuse alike.
    """
    found = list(islice(_changes(layers), most + 1))
    if len(found) <= most:
        return found
    low, high = found[0], total_bytes(layers)
    return sorted({round(low * (high / low) ** (step / (most - 1))) for step in range(most)})


def _changes(layers: Sequence[Layer]) -> Iterator[int]:
    """Each threshold from which on another fusion results."""
    sizes = [layer.size_bytes for layer in layers]
    threshold = min((size for size in sizes if size), default=1)
    while True:
        yield threshold
        groups = fuse(layers, threshold)
        if len(groups) < 2:
            return
        # The next change is the first group that can take in the layer after it.
        threshold = min(
            sum(sizes[index] for index in group) + sizes[after[0]] for group, after in pairwise(groups)
        )


def digest(groups: Groups) -> str:
    """SHA-256 of a fusion: ranks that agree on this send the same groups in the same order.

    Examples
    --------
    >>> digest(((1, 0),)) == digest(((1,), (0,)))
    False
    """
    text = ";".join(",".join(map(str, group)) for group in groups)
    return hashlib.sha256(b"weft fusion 1\0" + text.encode()).hexdigest()
