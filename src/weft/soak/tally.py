"""Tally of a soak test: what it has done so far, what it found, and how it ended."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from weft.soak.health import ResourceGrowth
    from weft.soak.settings import Settings

FailureKind = Literal["wrong", "crash", "hang", "error", "leak"]


@dataclass
class Tally:
    """Counts so far.

    Parameters
    ----------
    seconds
        Since the ranks were started.
    operations
        By kind; an operation counts once, however many ranks take part.
    checked_bytes
        Of results that all ranks have compared.
    episodes, joins, kills
        How many episodes were carried out, communicators of all ranks opened, and ranks killed.
    losses
        Seconds from each kill to each survivor's error, which named the rank that was killed.
    """

    seconds: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    checked_bytes: int = 0
    episodes: int = 0
    joins: int = 0
    kills: int = 0
    losses: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        own = {name: value for name, value in vars(self).items() if name != "losses"}
        return own | {
            "operations": dict(sorted(self.operations.items())),
            "loss_median_seconds": statistics.median(self.losses) if self.losses else None,
            "loss_worst_seconds": max(self.losses, default=None),
        }


@dataclass(frozen=True)
class SoakFailure:
    """What a soak test found.

    Parameters
    ----------
    kind
        ``wrong`` result or wrong rank named, ``crash`` of a rank, ``hang``, any other ``error``, ``leak``.
    text
        What happened.
    episode
        Number of the episode.
    steps
        By rank: what it was doing.
    said
        By rank: its error, or how it ended; nothing of ranks that said nothing.
    findings
        What the flight records of the ranks say together.
    """

    kind: FailureKind
    text: str
    episode: int
    steps: dict[int, str] = field(default_factory=dict)
    said: dict[int, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SoakOutcome:
    """How a soak test ended.

    Parameters
    ----------
    settings
        What was asked for.
    tally
        What was done.
    failure
        What was found; None if nothing.
    growth
        Of memory, descriptors and the like.
    """

    settings: Settings
    tally: Tally
    failure: SoakFailure | None
    growth: list[ResourceGrowth]

    @property
    def repeat(self) -> str | None:
        """Command that repeats what failed."""
        return None if self.failure is None else self.settings.command(self.failure.episode)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        failure = self.failure
        return {
            "settings": msgspec.to_builtins(self.settings),
            **self.tally.to_dict(),
            "growth": [{**msgspec.structs.asdict(one), "judged": one.judged} for one in self.growth],
            "failure": None if failure is None else {**vars(failure)},
            "repeat": self.repeat,
        }
