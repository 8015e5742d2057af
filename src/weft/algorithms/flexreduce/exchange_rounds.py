"""One reduce-scatter between the parts of a group: who sends to whom, and what that costs on real links.

Two ways. *direct*: each holder sends every piece straight to whoever keeps it. *ring*: partial sums travel
once round the parts and end at the keeper. In both, each part sends everything but what it keeps, once; they
differ in what each receives. The all-gather is the mirror image, every transfer turned round and the last one
first, so that it loads the opposite directions alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from weft.algorithms.flexreduce.intervals import GroupExchange, PartsMeeting
    from weft.topology import Topology

DIRECT: Final = "direct"
RING: Final = "ring"


class Busy(NamedTuple):
    """Seconds per byte of the buffer for which each link is busy in either phase.

    One entry per link; or one row per link and one column per part, for what would be if the part kept all.
    """

    scatter: NDArray[np.float64]
    gather: NDArray[np.float64]

    @property
    def both(self) -> NDArray[np.float64]:
        """The sum over both phases."""
        return self.scatter + self.gather


def partners(
    kind: str, holders: NDArray[np.int64], keeper: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sender and receiver of each piece in each turn of a reduce-scatter.

    Parameters
    ----------
    kind
        ``direct`` or ``ring``.
    holders
        Rank that holds each piece in each part; a row per piece.
    keeper
        Part that keeps each piece.

    Returns
    -------
    src, dst : ndarray
        A row per turn, one fewer than parts, and a column per piece. In a turn of a direct exchange part p
        sends to part p + turn, so that no two send to one.

    Examples
    --------
    >>> holders, keeper = np.array([[10, 11, 12]]), np.array([0])
    >>> [ends.ravel().tolist() for ends in partners("direct", holders, keeper)]
    [[12, 11], [10, 10]]
    >>> [ends.ravel().tolist() for ends in partners("ring", holders, keeper)]
    [[11, 12], [12, 10]]
    """
    parts = holders.shape[1]
    turn = np.arange(1, parts)[:, None]
    src = (keeper - turn) % parts if kind == DIRECT else (keeper + turn) % parts
    dst = np.broadcast_to(keeper, src.shape) if kind == DIRECT else (src + 1) % parts
    piece = np.arange(len(keeper))
    return holders[piece, src], holders[piece, dst]


def busy_links(topology: Topology, kind: str, exchanges: Iterable[GroupExchange]) -> Busy:
    """How long each link is busy with some exchanges of one kind."""
    rows = []
    for exchange in exchanges:
        src, dst = partners(kind, exchange.holders, exchange.keeper)
        length = np.array([float(length) for length in exchange.lengths])
        rows.append([src.ravel(), dst.ravel(), np.broadcast_to(length, src.shape).ravel()])
    src, dst, weight = (np.concatenate(column) for column in zip(*rows, strict=True))
    routes = (find_routes(topology, *ends) for ends in ((src, dst), (dst, src)))
    return Busy(*(link_load(topology, paths, weight)[:, 0] for paths in routes))


def busy_if_kept(topology: Topology, kind: str, meeting: PartsMeeting) -> Busy:
    """How long each link would be busy if one part kept everything; a column for each part."""
    intervals, parts = meeting.holders.shape
    keeper = np.repeat(np.arange(parts), intervals)
    src, dst = partners(kind, np.tile(meeting.holders, (parts, 1)), keeper)
    weight = np.tile(np.array([float(length) for length in meeting.lengths]), parts)
    routes = (find_routes(topology, *ends) for ends in ((src, dst), (dst, src)))
    return Busy(*(link_load(topology, paths, weight, keeper, parts) for paths in routes))


@dataclass(frozen=True)
class ExchangePaths:
    """The paths of transfers, each once.

    Parameters
    ----------
    which
        Number of each transfer's path, in the shape that the transfers came in.
    offsets, links
        Path i crosses links offsets[i] up to offsets[i + 1].
    """

    which: NDArray[np.int64]
    offsets: NDArray[np.int64]
    links: NDArray[np.int64]

    def most(self, by_link: NDArray[np.float64]) -> NDArray[np.float64]:
        """Find the largest value of the links that each transfer crosses."""
        return np.maximum.reduceat(by_link[self.links], self.offsets[:-1])[self.which]

    def total(self, by_link: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up the values of the links that each transfer crosses."""
        return np.add.reduceat(by_link[self.links], self.offsets[:-1])[self.which]

    def reach(
        self, by_link: NDArray[np.float64], by_row: NDArray[np.float64], free: NDArray[np.float64]
    ) -> None:
        """Lower the value of each link to when the first transfer gets there, in place.

        Parameters
        ----------
        by_link
            Value of each link so far.
        by_row
            When each transfer starts.
        free
            When each link lets it pass; until then it waits there, and not at the links before.
        """
        begins = np.full(len(self.offsets) - 1, np.inf)
        np.minimum.at(begins, self.which, by_row)
        hops = np.diff(self.offsets)
        passed = free[self.links]
        for hop in range(1, int(hops.max(initial=0))):
            at = self.offsets[:-1][hops > hop] + hop
            passed[at] = np.maximum(passed[at], passed[at - 1])
        np.minimum.at(by_link, self.links, np.maximum(np.repeat(begins, hops), passed))

    def lift(self, by_link: NDArray[np.float64], by_row: NDArray[np.float64]) -> None:
        """Lift the value of each link to the largest of the transfers that cross it, in place."""
        most = np.full(len(self.offsets) - 1, -np.inf)
        np.maximum.at(most, self.which, by_row)
        np.maximum.at(by_link, self.links, np.repeat(most, np.diff(self.offsets)))


def link_load(
    topology: Topology,
    routes: ExchangePaths,
    weight: NDArray[np.float64],
    column: NDArray[np.int64] | int = 0,
    columns: int = 1,
) -> NDArray[np.float64]:
    """Seconds per byte that transfers keep each link busy, a row per link.

    Parameters
    ----------
    topology, routes
        Transfers, on the paths that the network takes by itself.
    weight
        Share of the buffer that each has; broadcasts to the shape of the transfers.
    column, columns
        Where each transfer counts; broadcasts likewise.
    """
    which = routes.which.ravel()
    hops = np.diff(routes.offsets)[which]
    weights, place = (
        np.repeat(np.broadcast_to(part, routes.which.shape).ravel(), hops) for part in (weight, column)
    )
    place = routes.links[_entries(routes.offsets[which], hops)] * columns + place
    load = np.bincount(place, weights, topology.links * columns).reshape(-1, columns)
    return load / topology.bandwidth[:, None]


def find_routes(topology: Topology, src: NDArray[np.int64], dst: NDArray[np.int64]) -> ExchangePaths:
    """Find the paths that the network takes by itself."""
    pairs, which = _number(src * topology.ranks + dst, topology.ranks**2)
    ends = np.divmod(pairs, topology.ranks)
    offsets, links = topology.routes(*(end.astype(np.int32) for end in ends))
    return ExchangePaths(which, offsets, links.astype(np.int64))


def select_paths(routes: ExchangePaths, rows: slice) -> ExchangePaths:
    """Keep the paths of some of the transfers, in the same order."""
    used, which = _number(routes.which[rows], len(routes.offsets))
    hops = np.diff(routes.offsets)[used]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(hops)])
    return ExchangePaths(which, offsets, routes.links[_entries(routes.offsets[used], hops)])


def _number(keys: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ones of some keys below `most`, ascending, and the number of each key among them."""
    if keys.size < most // 8:
        distinct, which = np.unique(keys, return_inverse=True)
        return distinct, which.reshape(keys.shape)
    is_there = np.zeros(most, bool)
    is_there[keys] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[keys]


def _entries(begin: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """The whole numbers from each beginning on, as many as its count says, one after the other."""
    before: NDArray[np.int64] = np.cumsum(count) - count
    return np.arange(int(count.sum()), dtype=np.int64) + np.repeat(begin - before, count)
