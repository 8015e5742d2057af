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
    ├── SimulationError             a simulation that cannot finish                  exit code 3
    └── RuntimeFailure              a running job that cannot go on                  exit code 3
        ├── PeerLost                a rank that is gone: rank, host, pid, operation, step
        ├── LinkLost                a connection that carries nothing, between ranks that live
        ├── DesyncError             a rank that is in another operation than this one
        └── TimedOut                a wait that ended without the ranks it names

The command line turns any of them into one line on stderr and its ``exit_code``.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def no_such(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Error about a name that is not known: which ones are close, and which there are.

    Examples
    --------
    >>> print(no_such("fruit", "aple", ["apple", "cherry"]))
    there is no fruit 'aple'; did you mean apple? Known: apple, cherry
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? Known" if close else "known"
    return InputError(f"there is no {kind} {name!r}; {hint}: {', '.join(names)}")


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


class RuntimeFailure(WeftError):
    """A running job that cannot go on."""

    exit_code = 3


class PeerLost(RuntimeFailure):
    """A rank of the job is gone: it crashed, was killed, or stopped answering.

    Parameters
    ----------
    rank
        The rank that is gone.
    host, pid
        Where it ran, as far as is known.
    op
        What this process was doing, such as ``all_reduce``.
    step
        The step of the schedule it was at; `None` outside one.
    """

    def __init__(
        self,
        rank: int,
        host: str | None = None,
        pid: int | None = None,
        op: str | None = None,
        step: int | None = None,
    ) -> None:
        self.rank = rank
        self.host = host
        self.pid = pid
        self.op = op
        self.step = step
        named = (("host", host), ("pid", pid))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        doing = f" during {op}" if op else ""
        doing += f", step {step}" if step is not None else ""
        super().__init__(f"rank {rank}{f' ({place})' if place else ''} was lost{doing}")


class LinkLost(RuntimeFailure):
    """A connection carries nothing any more, although the ranks at both of its ends are alive.

    `Communicator.repair` goes on without it.

    Parameters
    ----------
    ranks
        Those at its ends; -1 for one that is not in this communicator.
    op
        What this process was doing.
    """

    def __init__(self, ranks: tuple[int, int], op: str) -> None:
        self.ranks = ranks
        self.op = op
        who = " and ".join("another" if rank < 0 else f"rank {rank}" for rank in ranks)
        super().__init__(
            f"{op}: nothing gets through between {who} any more, and both are alive; "
            "Communicator.repair goes on without that link"
        )


class TimedOut(RuntimeFailure):
    """A wait whose time is over.

    Parameters
    ----------
    op
        What this process was waiting for.
    seconds
        How long it was to wait at most.
    missing
        The ranks that had not come.
    hint
        What else is known, and what to do.
    """

    def __init__(self, op: str, seconds: float, missing: Iterable[int] = (), hint: str | None = None) -> None:
        self.op = op
        self.seconds = seconds
        self.missing = tuple(missing)
        self.hint = hint
        who = f"{name_ranks(self.missing)} did not come" if self.missing else "not done"
        super().__init__(f"{op}: {who} within {seconds:g} s" + (f"; {hint}" if hint else ""))


class DesyncError(RuntimeFailure):
    """Ranks that are not in the same operation: another call, size, type or op, or another schedule.

    Parameters
    ----------
    rank
        A rank that differs from this one.
    op
        What this process was doing.
    """

    def __init__(self, rank: int, op: str) -> None:
        self.rank = rank
        self.op = op
        how = "is in another operation, or calls it with another size, type or op"
        super().__init__(f"{op}: rank {rank} {how}")


def name_ranks(ranks: Iterable[int]) -> str:
    """Say which ranks, in few words.

    Examples
    --------
    >>> name_ranks([3]), name_ranks([5, 1]), name_ranks([0, 1, 2, 3, 7])
    ('rank 3', 'ranks 1, 5', 'ranks 0-3, 7')
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words: list[str] = []
    for first, last in spans:
        words += [f"{first}-{last}"] if last - first > 1 else map(str, dict.fromkeys((first, last)))
    plural = len(words) > 1 or "-" in words[0] if words else True
    return f"rank{'s' if plural else ''} {', '.join(words)}"
