"""The operations of a soak test, made from a seed alone.

A test is a sequence of episodes. Each has operations of random kinds, sizes, types and memory, on the
communicator of all ranks and on parts of it, and ends with the communicator staying open, being closed, or a
rank being killed. Every rank makes the same episodes for itself, and an episode depends on seed, number of
ranks and its own number only, so that any of them can be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from weft.algorithms import registry
from weft.units import format_size

if TYPE_CHECKING:
    from weft.soak.settings import Settings

Memory = Literal["shared", "inside", "private", "strided", "columns"]
Ending = Literal["stay", "close", "kill"]
Into = Literal["new", "out", "place"]

DTYPES: Final = ("float16", "float32", "float64", "int32", "int64", "int8", "uint8")
MEMORY: Final[tuple[Memory, ...]] = ("shared", "inside", "private", "strided", "columns")
"""From ``Communicator.empty``, a part of such an array, of the process, every second element, transposed."""

CONTIGUOUS: Final = MEMORY[:3]

_KINDS: Final = {
    "all_reduce": 30,
    "broadcast": 8,
    "reduce": 8,
    "reduce_scatter": 8,
    "all_gather": 8,
    "all_to_all": 8,
    "halves": 6,
    "send": 6,
    "send_recv": 6,
    "barrier": 3,
}
"""Kinds of operations, and how often each is chosen."""

_REDUCING: Final = ("all_reduce", "reduce", "reduce_scatter")
_ROOTED: Final = ("broadcast", "reduce", "send")
_WITH_RESULT: Final = ("reduce_scatter", "all_gather", "all_to_all")
_THRESHOLDS: Final = (0, 1, 64, 4096, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 512 << 10, 3 << 20)
"""Bytes at or beside which the runtime changes its way, and some between; few of the large ones."""

_WEIGHTS: Final = (1, 2, 2, 2, 6, 6, 6, 3, 1, 1)
_LARGEST_ODD: Final = 1 << 20
_FOR_ALL: Final = (None, None, None, "direct", "ring", "halving_doubling", "multitree", "forest")
"""Algorithms of the communicator of all ranks; None leaves the choice to the runtime."""

_FOR_PARTS: Final = (*_FOR_ALL, "double_binary_tree", "recursive_doubling", "bidirectional_ring")
_MOST_PARTS: Final = 3
_SHORTEST, _LONGEST = 40, 120
_KILL_DELAYS_MS: Final = (0.0, 0.0, 0.2, 1.0, 5.0)


@dataclass(frozen=True)
class SoakGroup:
    """Ranks that share a communicator.

    Parameters
    ----------
    number
        0 for all ranks; parts are numbered within their episode.
    ranks
        Ranks of the job, in the order of the communicator.
    algorithm
        As for `weft.init`.
    """

    number: int
    ranks: tuple[int, ...]
    algorithm: str | None = None

    @property
    def name(self) -> str:
        """The name of the group in messages."""
        return "all ranks" if self.number == 0 else f"part {self.number} (ranks {list(self.ranks)})"


@dataclass(frozen=True)
class Operation:
    """One operation of a group.

    Parameters
    ----------
    kind
        Which.
    group
        Whose.
    dtype, elements
        Of each rank's array.
    op
        Of what reduces.
    root
        Of broadcast and reduce; the sender of a send. A rank of the group.
    peer
        The receiver of a send; for send_recv, how many ranks away.
    memory, read_only
        By rank of the group: where the array lies, and whether it may not be written where only reading is
        needed.
    into
        For what has a result: ``new`` array, ``out`` for one that is given, ``place`` for one that shares
        memory with the input.
    asynchronous
        Started, and waited for later.
    times
        How often it is done in a row, on arrays of the same kind.
    phase
        Where in the pattern of values the input begins.
    """

    kind: str
    group: SoakGroup
    dtype: str = "int32"
    elements: int = 0
    op: str = "sum"
    root: int = 0
    peer: int = 0
    memory: tuple[Memory, ...] = ()
    read_only: tuple[bool, ...] = ()
    into: Into = "new"
    asynchronous: bool = False
    times: int = 1
    phase: int = 0

    def __str__(self) -> str:
        if self.kind == "barrier":
            return f"barrier among {self.group.name}"
        size = format_size(self.elements * np.dtype(self.dtype).itemsize)
        words = [f"{self.kind} of {self.elements} x {self.dtype} ({size})"]
        words += [self.op] * (self.kind in (*_REDUCING, "halves"))
        words += [f"root {self.root}"] * (self.kind in ("broadcast", "reduce"))
        words += [f"rank {self.root} to {self.peer}"] * (self.kind == "send")
        words += [f"{self.peer} further"] * (self.kind == "send_recv")
        words += [f"result {self.into}"] * (self.kind in _WITH_RESULT)
        words += ["asynchronous"] * self.asynchronous
        words += [f"{self.times} times"] * (self.times > 1)
        words.append(f"memory {' '.join(map(str, self.memory))}")
        words.append(f"algorithm {self.group.algorithm or 'default'}")
        return f"{', '.join(words)}, among {self.group.name}"


@dataclass(frozen=True)
class Split:
    """Make parts of the communicator of all ranks; ranks that are in none stay outside."""

    groups: tuple[SoakGroup, ...]

    def __str__(self) -> str:
        return f"split into {', '.join(group.name for group in self.groups)}"


@dataclass(frozen=True)
class Close:
    """Close a part."""

    group: SoakGroup

    def __str__(self) -> str:
        return f"close {self.group.name}"


@dataclass(frozen=True)
class Settle:
    """Wait for the asynchronous operations."""

    def __str__(self) -> str:
        return "wait for what was started"


Step = Operation | Split | Close | Settle


@dataclass(frozen=True)
class Kill:
    """A rank that kills itself.

    Parameters
    ----------
    rank
        Which.
    step
        Before this step.
    delay_ms
        So much later than that, while the steps go on.
    """

    rank: int
    step: int
    delay_ms: float


@dataclass(frozen=True)
class Episode:
    """A part of a soak test.

    Parameters
    ----------
    number
        From 0.
    everybody
        All ranks; its algorithm counts where the episode begins with a new communicator.
    steps
        What is done.
    ending
        What becomes of the communicator.
    kill
        For the ending of that name.
    """

    number: int
    everybody: SoakGroup
    steps: tuple[Step, ...]
    ending: Ending
    kill: Kill | None


def make_episode(settings: Settings, number: int, algorithm: str | None) -> Episode:
    """Make one episode.

    Parameters
    ----------
    settings
        Seed and ranks count; without kills, communicators are closed instead.
    number
        Of the episode.
    algorithm
        Of the communicator of all ranks, which an earlier episode may have opened.
    """
    chance = random.Random(f"{settings.seed}/{settings.ranks}/{number}")  # noqa: S311 - to be repeated
    ending: Ending = chance.choice(("stay", "stay", "close", "kill", "kill"))
    everybody = SoakGroup(0, tuple(range(settings.ranks)), algorithm)
    steps = tuple(_Steps(chance, everybody).make(chance.randint(_SHORTEST, _LONGEST)))
    kill = Kill(
        chance.randrange(settings.ranks), chance.randrange(len(steps)), chance.choice(_KILL_DELAYS_MS)
    )
    if ending == "kill" and not settings.kills:
        ending = "close"
    return Episode(number, everybody, steps, ending, kill if ending == "kill" else None)


def choose_algorithm(settings: Settings, number: int) -> str | None:
    """Algorithm of a communicator of all ranks that is opened for an episode."""
    chance = random.Random(f"{settings.seed}/{settings.ranks}/{number}/algorithm")  # noqa: S311
    return chance.choice(_FOR_ALL)


class _Steps:
    """Draws the steps of an episode, one after the other."""

    def __init__(self, chance: random.Random, everybody: SoakGroup) -> None:
        self._chance, self._everybody = chance, everybody
        self._open: list[SoakGroup] = []
        self._numbered = 0
        # Few sizes in an episode, so that what is prepared for one is used again.
        odd = [round(2 ** chance.uniform(0, np.log2(_LARGEST_ODD))) for _ in range(2)]
        self._sizes = [*chance.choices(_THRESHOLDS, _WEIGHTS, k=4), *odd]

    def make(self, count: int) -> list[Step]:
        steps: list[Step] = []
        while len(steps) < count:
            drawn = self._chance.random()
            if drawn < 0.04 and len(self._open) < _MOST_PARTS:
                steps.append(self._split())
            elif drawn < 0.06 and self._open:
                group = self._open.pop(self._chance.randrange(len(self._open)))
                steps += [Settle(), Close(group)]
            elif drawn < 0.20:
                steps.append(Settle())
            else:
                group = self._chance.choice([self._everybody, *self._open])
                steps.append(self._operation(group))
        return [*steps, Settle(), *map(Close, self._open)]

    def _split(self) -> Split:
        """Parts of at least two ranks; of two ranks there is but one part."""
        ranks = list(self._everybody.ranks)
        self._chance.shuffle(ranks)
        first = ranks[: self._chance.randint(2, len(ranks))]
        rest = ranks[len(first) :]
        groups = []
        for members in (first, rest if self._chance.random() < 0.7 else []):
            if len(members) > 1:
                self._numbered += 1
                groups.append(SoakGroup(self._numbered, tuple(members), self._chance.choice(_FOR_PARTS)))
        self._open += groups
        return Split(tuple(groups))

    def _operation(self, group: SoakGroup) -> Operation:
        chance = self._chance
        offered = _offered(group.algorithm)
        kinds = {kind: weight for kind, weight in _KINDS.items() if kind in offered}
        (kind,) = chance.choices(list(kinds), list(kinds.values()))
        size = len(group.ranks)
        dtype = chance.choice(DTYPES)
        own_share = kind == "reduce_scatter" and group.algorithm not in (None, "direct")
        into: Into = "new" if own_share else chance.choice(("new", "out", "place"))
        joined = into == "place" and kind in ("reduce_scatter", "all_gather")  # the input is a part of it
        ops = ["sum", "min", "max", "prod"] if kind in _REDUCING else ["sum"]
        ops += ["avg"] * (kind in (*_REDUCING, "halves") and dtype.startswith("float"))
        return Operation(
            kind,
            group,
            dtype,
            self._elements(kind, dtype, size, into),
            chance.choice(ops),
            root := chance.randrange(size),
            (root + chance.randrange(1, size)) % size if kind == "send" else chance.randrange(1, size),
            tuple(chance.choice(CONTIGUOUS if joined else MEMORY) for _ in range(size)),
            tuple(chance.random() < 0.5 for _ in range(size)),
            into,
            kind != "barrier" and chance.random() < 0.3,
            chance.choice((1, 1, 1, 2, 5)),
            chance.randrange(8191),
        )

    def _elements(self, kind: str, dtype: str, size: int, into: str) -> int:
        found = self._chance.choice(self._sizes) // np.dtype(dtype).itemsize
        found = max(0, found + self._chance.choice((-1, 0, 0, 1)))
        if kind == "barrier":
            return 0
        if kind == "all_gather":
            return found // size
        if kind == "all_to_all" or (kind == "reduce_scatter" and into != "new"):
            return found // size * size
        return found


def _offered(algorithm: str | None) -> tuple[str, ...]:
    """Kinds of operations that a communicator with this algorithm has."""
    always = ("halves", "send", "send_recv", "barrier")
    return tuple(_KINDS) if algorithm is None else (*registry.find(algorithm).collectives, *always)
