"""Every exception Weft raises on purpose, in one tree.

Each message says what is wrong, where, and what to do about it::

    WeftError                       anything Weft raises on purpose
    ├── InputError                  bad use or bad input                            exit code 2
    │   ├── UnitError               "64MoB", a negative speed
    │   ├── TopologyError           a spec or graph that cannot be
    │   │   └── DisconnectedError   ranks that cannot reach each other
    │   ├── FormatError             a file that cannot be read, with its place
    │   ├── LimitError              larger than a bound of `weft.limits`
    │   ├── ScheduleError           rows that are not a schedule at all
    │   └── UnsupportedError        an algorithm that does not apply, and why
    ├── VerificationError           a schedule that is wrong: transfer, rank, chunk  exit code 1
    └── SimulationError             a simulation that cannot finish                  exit code 3

The command line turns any of them into one line on stderr and its ``exit_code``.
"""

from __future__ import annotations

from typing import Any, ClassVar


class WeftError(Exception):
    """Base of everything Weft raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is remade from its message alone, and those with more to say then fail to
        # cross from a worker process to its parent.
        return _remake, (type(self), self.args, vars(self))


def _remake(kind: type[WeftError], args: tuple[Any, ...], state: dict[str, Any]) -> WeftError:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class InputError(WeftError, ValueError):
    """Bad use or bad input."""

    exit_code = 2


class UnitError(InputError):
    """A quantity that cannot be read or makes no sense."""


class TopologyError(InputError):
    """A topology that cannot be."""


class DisconnectedError(TopologyError):
    """Some ranks cannot reach each other."""


class FormatError(InputError):
    """A file that cannot be read.

    Parameters
    ----------
    source
        File name, or ``<stdin>``.
    problem
        What is wrong and what to do.
    place
        Where in the file: a line number or a path of keys.
    """

    def __init__(self, source: str, problem: str, place: str | None = None) -> None:
        self.source = source
        self.place = place
        self.problem = problem
        super().__init__(f"{source}: {place}: {problem}" if place else f"{source}: {problem}")


class LimitError(InputError):
    """Something larger than Weft accepts; `weft.limits` has the table."""


class ScheduleError(InputError):
    """Columns that do not form a schedule, or a pass that does not apply to one."""


class UnsupportedError(InputError):
    """An algorithm that does not apply to this topology or collective.

    Parameters
    ----------
    algorithm
        Registry name of the algorithm.
    reason
        Why, as half a sentence.
    instead
        What would work.
    """

    def __init__(self, algorithm: str, reason: str, instead: str | None = None) -> None:
        self.algorithm = algorithm
        self.reason = reason
        self.instead = instead
        super().__init__(f"{algorithm}: {reason}" + (f"; {instead}" if instead else ""))


class VerificationError(WeftError):
    """A schedule that does not do what its collective promises.

    Parameters
    ----------
    check
        Which check failed: ``semantics``, ``hazard``, ``deadlock`` or ``route``.
    problem
        What is missing, doubled or impossible.
    transfer, rank, chunk
        The place; `None` where a finding has no single one.
    """

    exit_code = 1

    def __init__(
        self,
        check: str,
        problem: str,
        *,
        transfer: int | None = None,
        rank: int | None = None,
        chunk: int | None = None,
    ) -> None:
        self.check = check
        self.problem = problem
        self.transfer = transfer
        self.rank = rank
        self.chunk = chunk
        named = (("transfer", transfer), ("rank", rank), ("chunk", chunk))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        super().__init__(f"{check}: {place}: {problem}" if place else f"{check}: {problem}")


class SimulationError(WeftError):
    """A simulation that cannot finish; names the flow that is stuck."""

    exit_code = 3
