"""One tree of exceptions, drawn in its docstring, whose messages say where."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from weft import errors
from weft.errors import (
    DesyncError,
    FormatError,
    InputError,
    LimitError,
    PeerLost,
    TimedOut,
    UnsupportedError,
    VerificationError,
    WeftError,
)

CLASSES = [
    value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == "weft.errors"
]


def drawn() -> dict[str, str | None]:
    """Parent of each class, as the docstring draws it."""
    parents: dict[str, str | None] = {}
    branch: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)([A-Z][A-Za-z]+) {2}", line)
        if match is not None:
            depth, name = len(match[1]), match[2]
            branch = [(d, n) for d, n in branch if d < depth]
            parents[name] = branch[-1][1] if branch else None
            branch.append((depth, name))
    return parents


def test_the_drawing_is_the_tree() -> None:
    found = {cls.__name__: cls.__base__.__name__ for cls in CLASSES if cls is not WeftError}
    expected = drawn()
    assert expected.pop("WeftError") is None
    assert found == expected


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_exit_codes_follow_the_tree(cls: type[WeftError]) -> None:
    failed = issubclass(cls, errors.SimulationError | errors.RuntimeFailure)
    assert cls.exit_code == (2 if issubclass(cls, InputError) else 3 if failed else 1)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_bad_input_is_a_value_error_and_nothing_else_is(cls: type[WeftError]) -> None:
    assert issubclass(cls, ValueError) == issubclass(cls, InputError)


def test_a_format_error_says_where_in_which_file() -> None:
    error = FormatError("a.json", "expected a number", "links[3]")
    assert str(error) == "a.json: links[3]: expected a number"
    assert (error.source, error.place, error.problem) == ("a.json", "links[3]", "expected a number")
    assert str(FormatError("a.json", "is empty")) == "a.json: is empty"


def test_an_unsupported_error_says_what_would_work() -> None:
    error = UnsupportedError("ring2d", "needs a grid", "use ring")
    assert str(error) == "ring2d: needs a grid; use ring"
    assert (error.algorithm, error.reason, error.instead) == ("ring2d", "needs a grid", "use ring")
    assert str(UnsupportedError("ring2d", "needs a grid")) == "ring2d: needs a grid"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "hazard: two writes meet"),
        ({"transfer": 118, "rank": 7, "chunk": 3}, "hazard: transfer 118, rank 7, chunk 3: two writes meet"),
        ({"rank": 0}, "hazard: rank 0: two writes meet"),
    ],
)
def test_a_verification_error_names_transfer_rank_and_chunk(place: dict[str, int], text: str) -> None:
    error = VerificationError("hazard", "two writes meet", **place)
    assert str(error) == text
    assert (error.transfer, error.rank, error.chunk) == tuple(map(place.get, ("transfer", "rank", "chunk")))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PeerLost(7), "rank 7 was lost"),
        (PeerLost(7, op="barrier"), "rank 7 was lost during barrier"),
        (
            PeerLost(7, "n2", 4412, "all_reduce", 41),
            "rank 7 (host n2, pid 4412) was lost during all_reduce, step 41",
        ),
        (TimedOut("barrier", 5, [3]), "barrier: rank 3 did not come within 5 s"),
        (
            TimedOut("join", 0.5, [2, 1], "go"),
            "join: ranks 1, 2 did not come within 0.5 s; go",
        ),
        (TimedOut("send", 60), "send: not done within 60 s"),
    ],
    ids=str,
)
def test_a_runtime_failure_names_who_is_missing(error: WeftError, text: str) -> None:
    assert str(error) == text


def test_a_limit_error_names_the_bound() -> None:
    from weft import limits

    with pytest.raises(LimitError, match="ranks: 1,000,000 is more than the 65,536 that Weft accepts"):
        limits.check("ranks", 1_000_000, limits.MAX_RANKS)


@pytest.mark.parametrize(
    "error",
    [
        FormatError("a.json", "expected a number", "links[3]"),
        UnsupportedError("ring2d", "needs a grid", "use ring"),
        VerificationError("hazard", "two writes meet", transfer=1, rank=2, chunk=3),
        LimitError("too many"),
        PeerLost(7, "n2", 4412, "all_reduce", 41),
        TimedOut("barrier", 5, [1, 3], "rank 0 waits"),
        DesyncError(2, "all_reduce #7"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_boundaries_whole(error: WeftError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
