"""The fastest set of trees: a linear programme by column generation, and the proof that comes with it.

Each tree carries a share of the buffer: for an all-reduce up the tree and down again, for a broadcast or a
reduce one way only. If tree T runs at rate x_T, a link of speed b carries the sum of n_T(link) x_T, where n_T
counts how often T crosses it. The best rates solve ::

    maximise  sum of x_T    such that    sum over T of n_T(link) x_T <= b(link) for every link

over all trees there are, far too many to write down. But few are needed: start with some good ones, solve the
programme for these, let its dual prices look for a tree that is cheap at present prices, add it, and repeat.
The prices prove how far the result can be from the best (`weft.bounds.certificates`), so it is known when
to stop.

Here the good ones come first: trees grown one by one where the others left room are mostly within a per cent
of the best, and one or two rounds of the programme close the rest.

References
----------
.. [1] J. Edmonds, "Edge-disjoint branchings", 1972; W. T. Tutte, "On the problem of decomposing a graph into
   n connected factors", 1961: what the optimum is on symmetric direct networks.
.. [2] N. Garg, J. Koenemann, "Faster and simpler algorithms for multicommodity flow and other fractional
   packing problems", 1998: prices that rise with the load.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.bounds import tight_cuts
from weft.bounds.certificates import prove_seconds
from weft.bounds.node_sets import membership, own_switches
from weft.bounds.tree_columns import (
    TREE_COLLECTIVES,
    TreeColumns,
    cheapest_tree,
    find_centres,
    find_twins,
    grow_trees,
    join_trees,
)
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft.topology import Topology

_SEED_EDGES: Final = 1 << 18
"""Edges of all first trees together, give or take; fewer trees on larger networks."""

_MANY_RANKS: Final = 256
_TOLERANCE: Final = 1e-3
_COARSE_TOLERANCE: Final = 0.02
"""Ranks beyond which a round of the programme takes seconds, and what is near enough there."""

_SWITCHED_RANKS: Final = 512
_COARSE_RAISE: Final = 16
"""Ranks beyond which trees over switches feel their own load only after so many edges."""

_MOST_EXACT_RANKS: Final = 128
"""Ranks up to which every root is tried on networks that are not symmetric."""

_TOP_PRICE: Final = 1 << 30
_TOP_WEIGHT: Final = 1 << 24
_MOST_SCALES: Final = 2000
_EXACT: Final = 1e-7
"""Rates are multiples of the largest one over at most so much, up to the solver's error; or they are not."""

_MOST_ROUNDS: Final = 200
_MOST_SPEEDS: Final = 8
_PROBES: Final = 12
"""Further trees that each round asks for, at prices somewhat off, so that fewer rounds are needed."""


@dataclass(frozen=True, slots=True)
class PriceCertificate:
    """Prices that prove a bound; `weft.bounds.certificates` says why and checks it.

    Parameters
    ----------
    prices
        A whole number per link.
    bound
        Bytes per second that no packing of trees exceeds.
    """

    prices: tuple[int, ...]
    bound: Fraction

    def seconds_per_byte(self, topology: Topology) -> Fraction:
        """Seconds that an all-reduce takes per byte at least, whatever the schedule.

        Worked out anew from the prices. Not 1 / `bound` where prices differ between the two directions: that
        says what no packing of trees exceeds, this what nothing exceeds; `weft.bounds.certificates` has
        the proof.
        """
        return prove_seconds(topology, self.prices)


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Trees with exact shares, what they carry, and what nobody can exceed.

    Parameters
    ----------
    topology, collective, root
        What it was made for; `root` is -1 for all_reduce.
    trees
        The trees.
    weights
        Share of each tree in the buffer, as whole numbers over their sum.
    rate
        Bytes of the buffer per second, exactly: the busiest link is just full.
    certificate
        The proof.
    seconds
        CPU seconds it took.
    """

    topology: Topology
    collective: str
    root: int
    trees: TreeColumns
    weights: NDArray[np.int64]
    rate: Fraction
    certificate: PriceCertificate
    seconds: float

    @property
    def gap(self) -> float:
        """How far from the best packing this can be, as a fraction of the bound: 0 is proven best."""
        return float(1 - self.rate / self.certificate.bound)

    def __repr__(self) -> str:
        return (
            f"<Packing {self.collective} on {self.topology.name}: {len(self.trees)} trees, "
            f"{float(self.rate) / 1e9:.4g} GB/s, at most {100 * self.gap:.2g} % below the best>"
        )


def pack(
    topology: Topology,
    collective: str = "all_reduce",
    *,
    root: int = 0,
    tolerance: float | None = None,
    time_limit_s: float = 10.0,
    proven: Fraction | None = None,
) -> Packing:
    """Find trees and shares with (nearly) the highest rate, and prices that prove it.

    Parameters
    ----------
    topology
        Any: direct, switched, mixed, uneven, asymmetric.
    collective
        ``all_reduce``, ``broadcast`` or ``reduce``.
    root
        For broadcast and reduce.
    tolerance
        Stop when proven to be within this fraction of the best; by default 0.001, and 0.02 for more than 256
        ranks.
    time_limit_s
        Stop after so many seconds with the best found and its certificate. Growing the first trees is not
        interrupted.
    proven
        Bytes per second that are known to be the most already; being near that is near enough as well.

    Raises
    ------
    InputError
        If the collective has no trees, the root is no rank, or a limit makes no sense.

    Examples
    --------
    >>> from weft.bounds.certificates import check_certificate
    >>> from weft.topology import load_topology
    >>> mesh = load_topology("mesh:4x4@bw=10GB/s")
    >>> packing = pack(mesh)
    >>> packing.certificate.bound, packing.gap < 1e-6
    (Fraction(16000000000, 1), True)
    >>> check_certificate(mesh, packing.certificate.prices, packing.certificate.bound)
    True

    Notes
    -----
    Cost: CPU seconds are 0.05 to 0.5 for 64 ranks, most of it HiGHS; up to 5 for a thousand.
    """
    if collective not in TREE_COLLECTIVES:
        msg = f"collective {collective!r} is not made of trees, expected one of {', '.join(TREE_COLLECTIVES)}"
        raise InputError(msg)
    topology.check_root(root)
    if tolerance is None:
        tolerance = _TOLERANCE if topology.ranks <= _MANY_RANKS else _COARSE_TOLERANCE
    if not (0 <= tolerance < 1 and 0 <= time_limit_s < math.inf):
        raise InputError(f"tolerance {tolerance} must be in 0..1, and the time limit {time_limit_s} finite")
    return _Search(topology, collective, root, _Goal(tolerance, time_limit_s, proven)).run()


class _Goal(NamedTuple):
    """The conditions under which the search for trees stops."""

    tolerance: float
    time_limit_s: float
    proven: Fraction | None


class _Search:
    """The state of one column generation."""

    def __init__(self, topology: Topology, collective: str, root: int, goal: _Goal) -> None:
        self.topology, self.collective = topology, collective
        self.root = -1 if collective == "all_reduce" else root
        self.halves = TREE_COLLECTIVES[collective]
        self.goal, self.deadline = goal, time.monotonic() + goal.time_limit_s
        self.began = time.process_time()
        self.twins = find_twins(topology)
        self.random = np.random.default_rng(1)
        # Trees that run both ways over the same cables load both directions alike: one row per cable will do.
        mirrored = len(self.twins) > 0 and all(self.halves)
        links = np.arange(topology.links)
        _, self.row = np.unique(np.minimum(links, self.twins) if mirrored else links, return_inverse=True)
        self.speed = topology.bandwidth / topology.bandwidth.max()
        self.capacity = np.bincount(self.row, self.speed)
        self.pool: list[TreeColumns] = []
        self.columns = np.zeros((0, len(self.capacity)))
        self.known: set[bytes] = set()
        self.weights, self.rate = np.zeros(0, np.int64), Fraction(0)
        self.certificate: PriceCertificate | None = None

    def run(self) -> Packing:
        trees, prices = self.grow_first()
        self.add(trees)
        self.weigh(np.ones(len(self.columns)))
        for candidate in (*_simple_prices(self.topology, self.root), prices):
            self.price(candidate)
        for _ in range(_MOST_ROUNDS):
            if self.done() or not self.improve():
                break
        assert self.certificate is not None, "prices of 1 for the links of all ranks prove something"
        used = np.flatnonzero(self.weights)
        trees = join_trees(self.pool).take(used)
        cpu = time.process_time() - self.began
        settled = (self.weights[used], self.rate, self.certificate, cpu)
        return Packing(self.topology, self.collective, self.root, trees, *settled)

    def done(self) -> bool:
        assert self.certificate is not None, "prices of 1 for the links of all ranks prove something"
        best = self.certificate.bound
        if self.goal.proven is not None:
            best = min(best, self.goal.proven)
        return self.rate >= best * Fraction(1 - self.goal.tolerance) or time.monotonic() > self.deadline

    def grow_first(self) -> tuple[TreeColumns, NDArray[np.float64]]:
        ranks = self.topology.ranks
        trees = min(256, max(64, _SEED_EDGES // ranks))
        roots = find_centres(self.topology, 2) if self.root < 0 else np.array([self.root], np.int32)
        # Over switches, to grow large trees anew takes seconds and does not make their load more even.
        sweeps = 6 if ranks <= 64 else int(self.topology.direct or ranks <= _MANY_RANKS)
        coarse = ranks > _SWITCHED_RANKS and not self.topology.direct
        raise_every = _COARSE_RAISE if coarse else None
        return grow_trees(self.topology, roots, self.halves, trees, sweeps, raise_every=raise_every)

    def add(self, trees: TreeColumns) -> int:
        """Put trees into the programme, those with a new load only; returns how many."""
        counts = trees.count_links(self.topology.links)
        loads = np.zeros((len(trees), len(self.capacity)))
        for row, link in zip(self.row.tolist(), counts.T, strict=True):
            loads[:, row] += link
        fresh = []
        for tree, load in enumerate(loads):
            if load.tobytes() not in self.known:
                self.known.add(load.tobytes())
                fresh.append(tree)
        if fresh:
            self.pool.append(trees.take(np.array(fresh)))
            self.columns = np.concatenate([self.columns, loads[fresh]])
            self.weights = np.concatenate([self.weights, np.zeros(len(fresh), np.int64)])
        return len(fresh)

    def weigh(self, rates: NDArray[np.float64]) -> None:
        """Take rates as shares, rounded down to whole numbers, if they make a better packing."""
        weights = _whole_numbers(rates)
        loads = (weights @ self.columns.astype(np.int64)).tolist()
        speeds = np.zeros(len(self.capacity), np.int64)
        np.add.at(speeds, self.row, self.topology.bandwidth)
        whole = int(weights.sum())
        pairs = {(speed, load) for speed, load in zip(speeds.tolist(), loads, strict=True) if load}
        rate = min(Fraction(speed * whole, load) for speed, load in pairs)
        if rate > self.rate:
            self.weights, self.rate = weights, rate

    def price(self, prices: NDArray[np.float64], *, exact: bool = True) -> TreeColumns | None:
        """Cheapest tree at given prices, which are kept if they prove more than others did."""
        top = prices.max(initial=0.0)
        if not top > 0 or not np.isfinite(top):
            return None
        whole = np.rint(np.maximum(prices, 0) * (_TOP_PRICE / top)).astype(np.int64)
        every_root = exact and self.topology.ranks <= _MOST_EXACT_RANKS
        cheapest, tree = cheapest_tree(
            self.topology, self.twins, whole, self.halves, root=self.root, every_root=every_root
        )
        if cheapest > 0:
            paid = sum(b * y for b, y in zip(self.topology.bandwidth.tolist(), whole.tolist(), strict=True))
            bound = Fraction(paid, cheapest)
            if self.certificate is None or bound < self.certificate.bound:
                self.certificate = PriceCertificate(tuple(whole.tolist()), bound)
        return tree

    def improve(self) -> bool:
        """One round: solve, price, add; False when there is nothing to add."""
        solved = self.solve()
        if solved is None:
            return False
        rates, duals = solved
        self.weigh(rates)
        if self.done():
            return True
        found = [self.price(prices) for prices in self.mix(duals)]
        found += [self.price(prices, exact=False) for prices in self.probe(duals)]
        return self.add(join_trees([tree for tree in found if tree is not None])) > 0

    def solve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Solve the programme for the trees at hand: their rates, and a price for every link."""
        from scipy.optimize import linprog
        from scipy.sparse import csc_array

        solution = linprog(
            -np.ones(len(self.columns)),
            A_ub=csc_array(self.columns.T),
            b_ub=self.capacity,
            method="highs-ds",
        )
        # Where speeds differ by many orders of magnitude the solver may take the slow links for none at all.
        if solution.status != 0 or not solution.x.max(initial=0.0) > 0:
            return None
        return np.maximum(solution.x, 0), np.maximum(-solution.ineqlin.marginals, 0)[self.row]

    def mix(self, duals: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """Prices between those of the programme, which jump about, and the best so far."""
        assert self.certificate is not None, "prices of 1 for the links of all ranks prove something"
        steady = np.array(self.certificate.prices) / _TOP_PRICE
        steady *= (duals * self.speed).sum() / (steady * self.speed).sum()
        for share in (1.0, 0.7, 0.3):
            yield share * duals + (1 - share) * steady

    def probe(self, duals: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        mixed = list(self.mix(duals))[1:]
        for turn in range(_PROBES):
            noise = 1 + 0.3 * self.random.random(len(self.capacity))
            yield (mixed[turn % len(mixed)] + 1e-4 * duals.max()) * noise[self.row]


def _whole_numbers(rates: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rates as whole numbers in the same proportion: small ones that fit exactly, else rounded down."""
    for scale in range(1, _MOST_SCALES + 1):
        scaled = rates * (scale / rates.max())
        if float(np.abs(scaled - np.rint(scaled)).max()) < _EXACT:
            exact: NDArray[np.int64] = np.rint(scaled).astype(np.int64)
            return exact
    weights: NDArray[np.int64] = np.floor(rates * (_TOP_WEIGHT / rates.max())).astype(np.int64)
    weights //= max(1, math.gcd(*weights.tolist()))
    return weights


def _simple_prices(topology: Topology, root: int) -> Iterator[NDArray[np.float64]]:
    """Prices of the borders of some sets of nodes, which is what simple bounds amount to."""
    src, dst = topology.link_src, topology.link_dst
    for label in _partitions(topology):
        crosses = label[src] != label[dst]
        yield (crosses & (label[src] >= 0)).astype(np.float64) + (crosses & (label[dst] >= 0))
    if tight_cuts.affordable(topology):
        for outward in (True, False):
            inside = tight_cuts.thinnest(topology, max(root, 0), outward=outward)
            leaves = inside[src] & ~inside[dst] if outward else ~inside[src] & inside[dst]
            yield leaves.astype(np.float64)


def _partitions(topology: Topology) -> Iterator[NDArray[np.int64]]:
    """Divisions of the nodes into sets, -1 for none: ranks, groups, the best, islands of fast links."""
    yield own_switches(topology, np.arange(topology.ranks))
    if topology.groups:
        yield own_switches(topology, membership(topology))
    if tight_cuts.affordable(topology):
        yield own_switches(topology, tight_cuts.strongest(topology, outward=True).part)
    speeds = np.unique(topology.bandwidth)
    for speed in speeds[1:][-_MOST_SPEEDS:]:
        islands = _islands(topology, topology.bandwidth >= speed)
        if 1 < len(np.unique(islands[: topology.ranks])) < topology.ranks:
            yield islands


def _islands(topology: Topology, usable: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Nodes that are joined by usable links share a number; switches without ranks have -1."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    links = (topology.link_src[usable], topology.link_dst[usable])
    graph = csr_array((np.ones(len(links[0])), links), (topology.nodes, topology.nodes))
    label = connected_components(graph, directed=False)[1]
    return np.where(np.isin(label, label[: topology.ranks]), label, -1)
