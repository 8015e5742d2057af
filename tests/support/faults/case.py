"""What a case is: a setting, a fault, and the chances that were drawn for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

START = ("arrive", "admitted", "connect", "lines")
ROUNDS = ("reduce", "between", "gather", "idle")
PHASES = (*START, "learn", *ROUNDS, "close")
"""What a job goes through. ``arrive``: before rank 0 knows of the rank. ``admitted``: it does, and others are
yet to come. ``connect``: all have come. ``lines``: all know each other's addresses, and connect. ``learn``:
the first operation. Then in turn the two halves of an all-reduce, and what lies between them."""

WAYS = ("memory", "copy", "tcp", "hosts", "torch", "group", "mpi")
"""``memory``, ``copy`` and ``tcp``: transports of Weft's own engine; ``hosts``: the same between network
namespaces; ``torch`` and ``mpi``: the other engines; ``group``: the process group of `weft.torch`."""


@dataclass(frozen=True)
class Fault:
    """What happens to one rank, and in which phase; ``Fault.kill(2).during("reduce")``.

    Parameters
    ----------
    action
        ``kill``: SIGKILL. ``freeze``: SIGSTOP, and SIGCONT if it `thaws`. ``pause``: SIGSTOP, and SIGCONT
        after so many `seconds`. ``sleep``: the program itself does nothing for so many `seconds`. ``starve``:
        before it joins, the process may open only `count` more descriptors. ``none``: nothing.
    thaws
        Whether a frozen rank goes on after all others have raised.
    """

    action: str
    rank: int = -1
    phase: str = "reduce"
    seconds: float = 0.0
    thaws: bool = False
    count: int = 0

    @staticmethod
    def kill(rank: int) -> Fault:
        """The process is gone from one moment to the next."""
        return Fault("kill", rank)

    @staticmethod
    def freeze(rank: int) -> Fault:
        """The process stays, and does nothing any more."""
        return Fault("freeze", rank)

    @staticmethod
    def pause(rank: int, seconds: float) -> Fault:
        """The process does nothing for a while, not even beat; too short to be taken for frozen."""
        return Fault("pause", rank, seconds=seconds)

    @staticmethod
    def sleep(rank: int, seconds: float) -> Fault:
        """The program is slow, however long; the process is alive."""
        return Fault("sleep", rank, seconds=seconds)

    @staticmethod
    def starve(rank: int, count: int) -> Fault:
        """The process may open only so many more descriptors."""
        return Fault("starve", rank, phase="arrive", count=count)

    @staticmethod
    def none() -> Fault:
        """Nothing happens: what all others are compared with."""
        return Fault("none")

    def during(self, phase: str) -> Fault:
        """The same in another phase."""
        if phase not in PHASES:
            msg = f"there is no phase {phase!r}; known: {', '.join(PHASES)}"
            raise ValueError(msg)
        return replace(self, phase=phase)

    def then_thaw(self) -> Fault:
        """The same, but the process goes on when all others have raised."""
        return replace(self, thaws=True)

    @property
    def is_fatal(self) -> bool:
        """Whether the others lose the rank."""
        return self.action in ("kill", "freeze")


@dataclass(frozen=True)
class Setting:
    """The job that a fault happens to.

    Parameters
    ----------
    shared
        Whether arrays lie in memory that the ranks share, from ``Communicator.empty``.
    timeout
        Seconds for joining and for each operation: longer than any watch takes to find a lost rank.
    moment
        When within the phase, from 0 to 1.
    closes_first
        Whether survivors close the communicator before a frozen rank thaws.
    """

    way: str = "memory"
    ranks: int = 4
    elements: int = 300_000
    algorithm: str | None = None
    shared: bool = True
    timeout: float = 30.0
    moment: float = 0.5
    closes_first: bool = False

    @property
    def transport(self) -> str:
        """Of Weft's own engine."""
        return self.way if self.way in ("copy", "tcp") else "auto"

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            msg = f"there is no way {self.way!r}; known: {', '.join(WAYS)}"
            raise ValueError(msg)


@dataclass(frozen=True)
class Case:
    """Everything that the program of a rank has to know."""

    setting: Setting
    fault: Fault
    variables: dict[str, str]

    @staticmethod
    def load(folder: Path) -> Case:
        """The case that a folder is for."""
        found: dict[str, Any] = json.loads((folder / "case.json").read_text("utf-8"))
        return Case(Setting(**found["setting"]), Fault(**found["fault"]), found["variables"])

    def save(self, folder: Path) -> None:
        """Leave it where the ranks find it."""
        (folder / "case.json").write_text(json.dumps(asdict(self)), "utf-8")
