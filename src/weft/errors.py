"""Every exception Weft raises on purpose, in one tree.

Each message says what is wrong, where, and what to do about it::

    WeftError                       anything Weft raises on purpose
    ├── InputError                  bad use or bad input                            exit code 2
    │   ├── UnitError               "64MoB", a negative speed
    │   ├── TopologyError           a spec or graph that cannot be
    │   │   └── DisconnectedError   ranks that cannot reach each other
    │   ├── FormatError             a file that cannot be read, with its place
    │   ├── LimitError              larger than a bound of `weft.limits`
    │   ├── MissingPackageError     an optional package that is not installed; an ImportError
    │   ├── ScheduleError           rows that are not a schedule at all
    │   └── UnsupportedError        an algorithm that does not apply, and why
    ├── VerificationError           a schedule that is wrong: transfer, rank, chunk  exit code 1
    ├── SimulationError             a simulation that cannot finish                  exit code 3
    └── RuntimeFailure              a running job that cannot go on                  exit code 3
        ├── PeerLost                a rank that is gone: rank, host, pid, operation, step; a ConnectionError
        ├── LinkLost                a connection that carries nothing, between live ranks; a ConnectionError
        │   └── LinkCorrupted       a connection that changed the data it carried
        ├── DesyncError             a rank that is in another operation than this one
        └── TimedOut                a wait that ended without the ranks it names; a TimeoutError

The command line turns any of them into one line on stderr and its ``exit_code``. Messages quote names and
lists of any length from files, so none is longer than `LONGEST_MESSAGE`, wherever it is printed.
"""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

LONGEST_MESSAGE: Final = 600
"""Characters of an error message; the middle of a longer one is left out."""

_LONGEST_QUOTE: Final = 60
_MOST_LISTED: Final = 8
_MOST_BESIDE_CLOSE: Final = 16

_Value = TypeVar("_Value")


class WeftError(Exception):
    """Base of everything Weft raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # One line: errors quote files and specs, in words of libraries too, and these may hold anything.
        text = " ".join(line.strip() for line in super().__str__().splitlines())
        return printable(shorten(text, LONGEST_MESSAGE))

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is remade from its message alone, and those with more to say then fail to
        # cross from a worker process to its parent.
        return _remake, (type(self), self.args, vars(self))


def _remake(kind: type[WeftError], args: tuple[Any, ...], state: dict[str, Any]) -> WeftError:
    # An OSError is made by its own __new__ alone, which leaves the arguments to __init__.
    make = OSError.__new__ if issubclass(kind, OSError) else kind.__new__
    error = make(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def shorten(text: str, longest: int) -> str:
    """Cut out the middle of a text that is too long: its beginning says what, its end what to do.

    Examples
    --------
    >>> shorten("x" * 50 + "end", 20)
    'xxxxxxxx ... xxxxend'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 5) // 2
    return f"{text[: longest - 5 - tail]} ... {text[len(text) - tail :]}"


def printable(text: str) -> str:
    r"""Text on one line and without what a terminal would obey; files may come from anywhere.

    Examples
    --------
    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quote(text: str) -> str:
    """Put text from somewhere else in quotes; only its ends if it is long.

    Examples
    --------
    >>> quote("ring"), quote("x" * 5000)
    ("'ring'", "'xxxxxxxxxxxxxxxxxxxxxxxxxxx ... xxxxxxxxxxxxxxxxxxxxxxxxxx'")
    """
    # Most of what is too long is cut before it is spelled out: it may be a whole file.
    return shorten(repr(shorten(text, 4 * _LONGEST_QUOTE)), _LONGEST_QUOTE)


def list_some(items: Iterable[str], most: int = _MOST_LISTED, separator: str = ", ") -> str:
    """List the first of many things, and say how many more there are.

    Examples
    --------
    >>> list_some(["a", "b"]), list_some(map(str, range(4020)), 3)
    ('a, b', '0, 1, 2 and 4,017 more')
    """
    found = iter(items)
    shown = separator.join(islice(found, most))
    more = sum(1 for _ in found)
    return f"{shown} and {more:,} more" if more else shown


class InputError(WeftError, ValueError):
    """Bad use or bad input."""

    exit_code = 2


def no_such(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Error about a name that is not known: which ones are close, and which there are.

    Where one is close, a long list of the others ends early.

    Examples
    --------
    >>> print(no_such("fruit", "aple", ["apple", "cherry"]))
    there is no fruit 'aple'; did you mean apple? Known: apple, cherry
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? Known" if close else "known"
    listed = list_some(names, _MOST_BESIDE_CLOSE) if close else ", ".join(names)
    return InputError(f"there is no {kind} {quote(name)}; {hint}: {listed}")


def look_up(kind: str, name: str, known: Mapping[str, _Value]) -> _Value:
    """What a name stands for in a table; a name that is not there is an error as of `no_such`.

    Examples
    --------
    >>> look_up("fruit", "apple", {"apple": 1})
    1
    """
    if name not in known:
        raise no_such(kind, name, known)
    return known[name]


def check_choice(
    name: str, value: str, allowed: Collection[str], error: type[InputError] | None = None
) -> None:
    """Refuse a word that is not one of those allowed.

    Parameters
    ----------
    name, value
        What is chosen, and the word.
    allowed
        All words that it may be.
    error
        What to raise; by default an `InputError`.

    Examples
    --------
    >>> check_choice("sharing", "fair", ("queue", "fluid"))
    Traceback (most recent call last):
        ...
    weft.errors.InputError: sharing 'fair' is unknown, expected queue or fluid
    """
    if value not in allowed:
        words = " or ".join(allowed) if len(allowed) <= 2 else f"one of {', '.join(allowed)}"
        raise (error or InputError)(f"{name} {value!r} is unknown, expected {words}")


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


class MissingPackageError(InputError, ImportError):
    """An optional package that cannot be imported.

    Parameters
    ----------
    what
        What needs it.
    package
        Its name for ``pip install``, or the names of several, with spaces between them.
    reason
        What Python said when it was imported; None if it was only looked for.
    """

    def __init__(self, what: str, package: str, reason: ImportError | None = None) -> None:
        self.package = package
        absent = isinstance(reason, ModuleNotFoundError) and (reason.name or "").partition(".")[0] == package
        several = " " in package
        # A package that is there and cannot be loaded has more to say than that it is missing.
        why = f"{'are' if several else 'is'} not installed"
        if reason is not None and not absent:
            why = f"cannot be imported ({reason})"
        needed = " and ".join(package.split())
        super().__init__(f"{what} needs {needed}, which {why}; pip install {package}")


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

    def naming(self, what: str) -> VerificationError:
        """The same finding, with `what` is wrong before the problem."""
        place = {"transfer": self.transfer, "rank": self.rank, "chunk": self.chunk}
        return VerificationError(self.check, f"{what}: {self.problem}", **place)


class SimulationError(WeftError):
    """A simulation that cannot finish; names the flow that is stuck."""

    exit_code = 3


class RuntimeFailure(WeftError, RuntimeError):
    """A running job that cannot go on."""

    exit_code = 3


class PeerLost(RuntimeFailure, ConnectionError):
    """A rank of the job is gone: it crashed, was killed, stopped answering, or gave up.

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
    reason
        Why it gave up, if it said so.
    """

    def __init__(
        self,
        rank: int,
        host: str | None = None,
        pid: int | None = None,
        op: str | None = None,
        step: int | None = None,
        reason: str | None = None,
    ) -> None:
        self.rank = rank
        self.host = host
        self.pid = pid
        self.op = op
        self.step = step
        self.reason = reason
        named = (("host", host), ("pid", pid))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        doing = f" during {op}" if op else ""
        doing += f", step {step}" if step is not None else ""
        why = f": {reason}" if reason else ""
        super().__init__(f"rank {rank}{f' ({place})' if place else ''} was lost{doing}{why}")


class LinkLost(RuntimeFailure, ConnectionError):
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
        super().__init__(f"{op}: {self._problem.format(who)}; Communicator.repair goes on without that link")

    _problem: ClassVar[str] = "nothing gets through between {} any more, and both are alive"


class LinkCorrupted(LinkLost):
    """Data was changed on its way between two ranks: its checksum does not fit.

    The result of the operation is undefined on every rank. Parameters as for `LinkLost`.
    """

    _problem = "data was changed on its way between {} (its checksum does not fit)"


class TimedOut(RuntimeFailure, TimeoutError):
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
    who
        Who gave up waiting for whom, where that was another process; by default it is this one.
    """

    def __init__(
        self,
        op: str,
        seconds: float,
        missing: Iterable[int] = (),
        hint: str | None = None,
        *,
        who: str | None = None,
    ) -> None:
        self.op = op
        self.seconds = seconds
        self.missing = tuple(missing)
        self.hint = hint
        if who is None and self.missing:
            who = f"{name_ranks(self.missing)} did not come within {seconds:g} s"
        # "Timed out waiting 5ms", with a space before it, is what torch's tests and people's tools look for.
        late = f"Timed out waiting {seconds * 1000:.0f}ms" + (f": {who}" if who else "")
        super().__init__(f"{op}: {late}" + (f"; {hint}" if hint else ""))


class DesyncError(RuntimeFailure):
    """Ranks that are not in the same operation: another call, size, type or op, or another schedule.

    Parameters
    ----------
    rank
        A rank that differs from this one.
    op
        What this process was doing.
    fingerprint
        Equal on two ranks if they are in the same operation; None where the engine has none.
    """

    def __init__(self, rank: int, op: str, fingerprint: int | None = None) -> None:
        self.rank = rank
        self.op = op
        self.fingerprint = fingerprint
        how = "is in another operation, or calls it with another size, type or op"
        super().__init__(f"{op}: rank {rank} {how}")


def name_ranks(ranks: Iterable[int]) -> str:
    """Say which ranks, in few words.

    Examples
    --------
    >>> name_ranks([3]), name_ranks([5, 1]), name_ranks([0, 1, 2, 3, 7])
    ('rank 3', 'ranks 1, 5', 'ranks 0-3, 7')
    >>> name_ranks(range(0, 1024, 2))
    'ranks 0, 2, 4, 6, 8, 10, 12, 14 and 504 more'
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    named: list[tuple[str, int]] = []
    for first, last in spans:
        if last - first > 1:
            named.append((f"{first}-{last}", last - first + 1))
        else:
            named += [(str(rank), 1) for rank in range(first, last + 1)]
    more = sum(count for _, count in named[_MOST_LISTED:])
    words = ", ".join(word for word, _ in named[:_MOST_LISTED]) + (f" and {more:,} more" if more else "")
    return f"rank{'' if [count for _, count in named] == [1] else 's'} {words}"
