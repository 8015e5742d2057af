"""The interface of a runtime that is measured: how its job is started, and what one rank of it does."""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np

from weft.bench.task import ITEM_BYTES
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from numpy.typing import NDArray

    from weft.bench.task import BenchTask
    from weft.runtime.launcher.launch import Seat

RANK: Final = "WEFT_BENCH_RANK"
"""Variable that tells a worker its rank, where the controller started it itself."""

Call = Callable[[], Any]
"""One operation. Returns its result as an array where that is not in the target it was bound to."""


@dataclass(frozen=True)
class JobPlace:
    """Where and how large a job is to be started.

    Parameters
    ----------
    ranks
        How many.
    folder
        Files it needs may be made here.
    resources
        Closed when the job is over.
    seats
        Where each rank goes, if not just here. The controller sees to it, but for launchers of others.
    """

    ranks: int
    folder: str
    resources: ExitStack
    seats: Sequence[Seat] | None = None


@dataclass(frozen=True)
class Start:
    """How a job is started.

    Parameters
    ----------
    command
        Stands before the worker's own command; empty where a worker is started as it is.
    processes
        How often that is done: once per rank, or once if the command starts the ranks itself.
    variables
        Environment on top of the controller's own.
    """

    command: tuple[str, ...]
    processes: int
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInvitation:
    """What a worker knows when it joins its job.

    ``rank`` is None where only the runtime itself knows, ``name`` tells the job from others, and
    ``announcement`` is what rank 0 announced.
    """

    rank: int | None
    ranks: int
    folder: str
    name: str
    announcement: str
    settings: dict[str, Any]
    timeout: float


class PeerRank(ABC):
    """One rank of a job; every rank makes the same calls in the same order."""

    rank: int

    def empty(self, size_bytes: int) -> NDArray[np.uint8]:
        """Memory for input or output."""
        return np.empty(size_bytes, np.uint8)

    @abstractmethod
    def bind(self, task: BenchTask, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Call:
        """Make an operation ready; in place if source and target are the same."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank is here."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """What is measured, by name."""

    def ran(self) -> dict[str, str]:
        """What the latest operation was, if the runtime tells: algorithm and digest."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""


class Peer(ABC):
    """A runtime that can be measured.

    Attributes
    ----------
    name
        As on the command line.
    dtypes
        What it can do.
    """

    name: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = tuple(ITEM_BYTES)

    def check(self, task: BenchTask) -> None:
        """Refuse what this runtime cannot do.

        Raises
        ------
        InputError
            If the runtime does not have the type; names those that it has.
        """
        if task.dtype not in self.dtypes:
            known = ", ".join(self.dtypes)
            raise InputError(f"{self.name} has no type {task.dtype}, only {known}; leave it out of --against")

    @abstractmethod
    def start(self, job: JobPlace) -> Start:
        """How its job is started.

        Raises
        ------
        InputError
            If it is not installed, with how to install it.
        """

    def refuse(self, why: str) -> NoReturn:
        """Say why it cannot be measured here.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError(f"--against {self.name}: {why}")

    def refuse_seats(self, job: JobPlace) -> None:
        """For those that can only run where the controller is; refuses if ranks are to go elsewhere."""
        if job.seats is not None:
            self.refuse("it is measured within one host only, not in a lab")

    def need_package(self, package: str) -> None:
        """Refuse to go on without a package."""
        if importlib.util.find_spec(package) is None:
            self.refuse(f"{package} is not installed; pip install {package}")

    def rank(self) -> int | None:
        """Which rank this worker is; None if only the runtime itself knows."""
        return int(os.environ[RANK]) if RANK in os.environ else None

    def announce(self) -> str:
        """What all ranks must learn from rank 0 before they join; called there only."""
        return ""

    @abstractmethod
    def join(self, invitation: JobInvitation) -> PeerRank:
        """Take part as one rank; called in a worker."""


def one_thread() -> dict[str, str]:
    """Environment that keeps numerical libraries at one thread per rank, as one rank per core has it."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
