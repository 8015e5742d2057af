"""One tree of exceptions, drawn in its docstring, whose messages say where."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from weft import errors
from weft.algorithms import registry
from weft.errors import (
    LONGEST_MESSAGE,
    DesyncError,
    FormatError,
    InputError,
    LimitError,
    PeerLost,
    TimedOut,
    UnsupportedError,
    VerificationError,
    WeftError,
    list_some,
    name_ranks,
    quote,
)
from weft.planning.quick import QuickChooser
from weft.schedule.codec import decode_schedule, load_schedule
from weft.topology import load_topology

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
    found = {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES if cls is not WeftError}
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


def test_losses_and_timeouts_are_also_what_python_calls_them() -> None:
    assert issubclass(PeerLost, ConnectionError)
    assert issubclass(errors.LinkLost, ConnectionError)
    assert issubclass(TimedOut, TimeoutError)
    assert PeerLost(7).errno is None


def test_a_format_error_says_where_in_which_file() -> None:
    error = FormatError("a.json", "expected a number", "links[3]")
    assert str(error) == "a.json: links[3]: expected a number"
    assert (error.source, error.place, error.problem) == ("a.json", "links[3]", "expected a number")
    assert str(FormatError("a.json", "is empty")) == "a.json: is empty"


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    error = FormatError("hostile\x1b[2J.toml", "unknown field `coun\x03`\nand another")
    assert str(error) == "hostile\\x1b[2J.toml: unknown field `coun\\x03` and another"
    assert error.problem.endswith("\nand another")


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
        (PeerLost(7, op="connect", reason="no files"), "rank 7 was lost during connect: no files"),
        (
            PeerLost(7, "n2", 4412, "all_reduce", 41),
            "rank 7 (host n2, pid 4412) was lost during all_reduce, step 41",
        ),
        (TimedOut("barrier", 5, [3]), "barrier: Timed out waiting 5000ms: rank 3 did not come within 5 s"),
        (
            TimedOut("join", 0.5, [2, 1], "go"),
            "join: Timed out waiting 500ms: ranks 1, 2 did not come within 0.5 s; go",
        ),
        (TimedOut("send", 60), "send: Timed out waiting 60000ms"),
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
        errors.MissingPackageError("engine mpi", "mpi4py"),
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


LONG = "k" * 4000


def choose_on_a_long_name() -> None:
    anywhere = replace(load_topology("switch:5"), name=LONG)
    QuickChooser(anywhere, ["hdrm", "bucket", "four_phase", "ring2d", "swing"])("all_reduce", 1000)


@pytest.mark.parametrize(
    ("fail", "told"),
    [
        (lambda: load_topology(f"{LONG}:4"), "Known: ring"),
        (lambda: load_topology(f"{LONG[:2000]}:{LONG[:2000]}"), "Known: ring"),
        (lambda: load_topology(f"ring:{LONG}"), "ring:kkk"),
        (lambda: registry.find(LONG), "known: ring"),
        (lambda: decode_schedule(b'{"collective": "%s"}' % (LONG.encode() * 500), "f.json"), "f.json"),
        (lambda: load_schedule(f"/tmp/{LONG}"), "/tmp/kkk"),
        (choose_on_a_long_name, "and 2 more"),
    ],
    ids=["kind", "kind and shape", "shape", "algorithm", "json", "file", "reasons"],
)
def test_no_message_is_longer_than_some_lines_of_a_terminal(fail: Callable[[], object], told: str) -> None:
    with pytest.raises(WeftError) as caught:
        fail()
    assert told in str(caught.value)
    assert len(str(caught.value)) <= LONGEST_MESSAGE


def test_a_message_that_is_cut_keeps_its_ends_and_its_error_the_rest() -> None:
    error = InputError(f"begin {LONG} end")
    assert str(error).startswith("begin kkk")
    assert str(error).endswith("kkk end")
    assert error.args == (f"begin {LONG} end",)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_many_ranks_are_counted_and_all_are_kept() -> None:
    error = TimedOut("join", 60, range(0, 1024, 2))
    many = "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 504 more"
    assert str(error) == f"join: Timed out waiting 60000ms: {many} did not come within 60 s"
    assert len(error.missing) == 512


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "ranks "),
        ([4], "rank 4"),
        ([4, 5], "ranks 4, 5"),
        (range(1024), "ranks 0-1023"),
        ([*range(0, 16, 2), *range(20, 30)], "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 10 more"),
    ],
    ids=str,
)
def test_ranks_are_named_in_few_words(ranks: list[int], words: str) -> None:
    assert name_ranks(ranks) == words


def test_lists_and_quotes_are_short() -> None:
    assert list_some([]) == ""
    assert list_some(map(str, range(8))) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert list_some(map(str, range(9))) == "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"
    assert quote("\n" * 10**7).startswith("'\\n\\n")
    assert len(quote("\n" * 10**7)) == 60
