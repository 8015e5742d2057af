"""NCCL's pair of binary trees: the inner numbers of one are the leaves of the other.

In a tree over 0 .. n-1, the parent of r is r with its lowest bit moved one place up, or dropped where that is
outside; 0 is the root, and odd numbers are leaves. The second tree is the mirror image for even n, and the
first one shifted by one for odd n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_PARENT: Final = -1
"""Parent of a root."""


def binary_tree(size: int) -> NDArray[np.int64]:
    """Parent of each number in the tree that its bits give.

    Examples
    --------
    >>> binary_tree(6).tolist()
    [-1, 2, 4, 2, 0, 4]
    """
    number = np.arange(size)
    low = number & -number
    dropped = number ^ low
    moved = dropped | low << 1
    parent = np.where(moved < size, moved, dropped)
    parent[0] = NO_PARENT
    return parent


def relabel(parent: NDArray[np.int64], label: NDArray[np.int64]) -> NDArray[np.int64]:
    """Call number x of a tree ``label[x]``."""
    renamed = np.empty_like(parent)
    renamed[label] = np.where(parent == NO_PARENT, NO_PARENT, label[parent])
    return renamed


def mirrored_trees(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Parents in both trees.

    Inner numbers of one are leaves of the other, save number 0 of an odd size, which has one child in both.

    Examples
    --------
    >>> [tree.tolist() for tree in mirrored_trees(4)]
    [[-1, 2, 0, 2], [1, 3, 1, -1]]
    """
    first, number = binary_tree(size), np.arange(size)
    return first, relabel(first, (number + 1) % size if size % 2 else size - 1 - number)


def tree_depths(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far each number of a tree is below its root."""
    depth = np.zeros_like(parent)
    above = parent.copy()
    while bool((above >= 0).any()):
        depth += above >= 0
        above = np.where(above >= 0, parent[above], NO_PARENT)
    return depth
