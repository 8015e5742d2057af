"""What a collective must move, in bytes, whatever the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray


class SingleBound(NamedTuple):
    """A bound on its own: at least so many seconds, by which sort of argument, and the arithmetic."""

    seconds: Fraction
    kind: str
    explanation: str


@dataclass(frozen=True)
class Demand:
    """A collective of a size on so many ranks."""

    collective: str
    ranks: int
    size_bytes: int
    element_bytes: int
    root: int

    def shards(self, count: NDArray[Any]) -> NDArray[Any]:
        """Least bytes that so many of the N nearly equal shards have together.

        Examples
        --------
        >>> Demand("all_gather", 4, 6, 1, 0).shards(np.arange(5)).tolist()
        [0, 1, 2, 4, 6]
        """
        each, larger = divmod(self.size_bytes // self.element_bytes, self.ranks)
        least: NDArray[Any] = count * each + np.maximum(count - (self.ranks - larger), 0)
        return least * self.element_bytes

    def across(self, size: NDArray[Any], has_root: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bytes that must leave, and enter, sets of so many ranks; exact for sizes of type object."""
        inner, outer = self.shards(size), self.shards(self.ranks - size)
        whole = np.full_like(inner, self.size_bytes)
        by_collective = {
            "all_gather": (inner, outer),
            "reduce_scatter": (outer, inner),
            "all_to_all": (size * outer, (self.ranks - size) * inner),
            "broadcast": (whole * has_root, whole * ~has_root),
            "reduce": (whole * ~has_root, whole * has_root),
        }
        return by_collective.get(self.collective, (whole, whole))

    @property
    def passes(self) -> int:
        """How often, at least, each byte changes sets per set but one; 0 where that bounds nothing."""
        return {"all_reduce": 2, "all_to_all": 0}.get(self.collective, 1)

    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ranks that data must come from, and go to, each of the former to each of the latter."""
        everyone = np.arange(self.ranks)
        root = np.array([self.root])
        owners = everyone[: self.size_bytes // self.element_bytes]
        by_collective = {
            "all_gather": (owners, everyone),
            "reduce_scatter": (everyone, owners),
            "all_to_all": (everyone, owners),
            "broadcast": (root, everyone),
            "reduce": (everyone, root),
        }
        return by_collective.get(self.collective, (everyone, everyone))
