"""What names an algorithm: names, functions, schedules and files of these become lines of the registry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.algorithms import direct, registry, ring
from weft.algorithms.resolver import resolve_algorithm, resolve_algorithms
from weft.errors import InputError, LimitError, UnsupportedError
from weft.schedule import Schedule, ScheduleBuilder
from weft.schedule.codec import save_schedule
from weft.topology import Topology, load_topology

FOUR = load_topology("ring:4")

SCRIPT = """
from __future__ import annotations
import helper  # lies beside the script
from weft.algorithms import ring

def make(topology, *, flag: bool = False, depth: int = 1, share: float = 0.5, order: list[int] | None = None,
         name="x", size_bytes: int = 0, root=0, collective="all_reduce"):
    import late_helper  # noqa: F401
    helper.SEEN.append(dict(flag=flag, depth=depth, share=share, order=order, name=name,
                            size_bytes=size_bytes, root=root, collective=collective))
    return getattr(ring, collective)(topology, **({"root": root} if collective == "broadcast" else {}))
"""

BAD_ROWS = """    import weft
    builder = weft.ScheduleBuilder(topology, "all_reduce", "x", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=9, op="copy")
    return builder.build()"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("helper.py").write_text("SEEN = []\n", "utf-8")
    Path("late_helper.py").write_text("", "utf-8")
    Path("own.py").write_text(SCRIPT, "utf-8")
    return "own.py:make"


def seen() -> dict[str, Any]:
    import sys

    found: dict[str, Any] = sys.modules["helper"].SEEN[-1]
    return found


def test_a_name_is_one_of_the_registry() -> None:
    assert resolve_algorithm("ring") is registry.ALGORITHMS["ring"]
    assert resolve_algorithm("multitree:paper_order=true").given == (("paper_order", True),)


def test_a_script_is_given_the_collective_the_root_and_the_size(script: str) -> None:
    own = resolve_algorithm(script)
    assert own.build(FOUR, "broadcast", 2, expected_bytes=99).root == 2
    assert (seen()["collective"], seen()["root"], seen()["size_bytes"]) == ("broadcast", 2, 99)
    own.build(FOUR, "all_gather")
    assert (seen()["collective"], seen()["root"], seen()["size_bytes"]) == ("all_gather", 0, 0)


def test_options_of_a_script_have_the_types_of_its_signature(script: str) -> None:
    text = f"{script}:flag=true,depth=3,share=0.25,order=3-1,name=z,size_bytes=1KiB"
    resolve_algorithm(text).build(FOUR, "all_reduce")
    options = {"flag": True, "depth": 3, "share": 0.25, "order": [3, 1], "name": "z", "size_bytes": 1024}
    assert {name: seen()[name] for name in options} == options
    resolve_algorithm(f"{script}:order=none").build(FOUR, "all_reduce")
    assert seen()["order"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own.py:make:depth=x", r"own\.py:make: depth=x: expected a whole number"),
        ("own.py:make:share=nan", "share=nan: expected a number"),
        ("own.py:make:deep=1", r"no option of own\.py:make 'deep'; did you mean depth"),
        ("own.py:make:depth", "expected NAME=VALUE"),
        ("own.py:makes", r"own\.py has no function 'makes'; it has make"),
        ("own.py", r"names no function; give own\.py:FUNCTION"),
        ("own.py:", "names no function"),
        ("none.py:make", r"there is no script none\.py"),
        ("none.weft", "no such file"),
        ("own", "there is no algorithm 'own'"),
    ],
)
def test_what_names_nothing_is_told_in_one_line(script: str, text: str, message: str) -> None:
    assert script
    with pytest.raises(InputError, match=message) as caught:
        resolve_algorithm(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return 1 / 0", r"failed: .*bad\.py:2: ZeroDivisionError: division by zero"),
        ("    raise SystemExit(3)", r"failed: .*bad\.py:2: SystemExit: 3"),
        ("    return None", "returned NoneType; return a weft.Schedule"),
        ("    return helper(topology)\n\ndef helper(t):\n    t.nope()", r"bad\.py:5: AttributeError"),
        (BAD_ROWS, r"bad\.py:5: ScheduleError: transfer 0: dst 9"),
    ],
)
def test_an_error_of_a_script_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(f"def make(topology):\n{body}\n", "utf-8")
    with pytest.raises(InputError, match=message) as caught:
        resolve_algorithm("bad.py:make").try_build(FOUR, "all_reduce")
    assert "\n" not in str(caught.value)


def test_a_script_that_cannot_be_read_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("x = 1\ndef make(:\n", "utf-8")
    with pytest.raises(InputError, match=r"bad\.py cannot be imported: .*bad\.py:2: SyntaxError"):
        resolve_algorithm("bad.py:make")


def test_a_function_that_does_not_apply_is_refused_with_its_reason() -> None:
    def picky(topology: Topology) -> Schedule:
        raise UnsupportedError("picky", f"not on {topology.ranks} ranks")

    refused = resolve_algorithm(picky).try_build(FOUR, "all_reduce")
    assert isinstance(refused, registry.Refusal)
    assert (refused.algorithm, refused.reason) == ("picky", "not on 4 ranks")


def test_a_function_that_needs_too_much_is_refused() -> None:
    def greedy(topology: Topology) -> Schedule:
        raise LimitError(f"too many rows for {topology.name}")

    refused = resolve_algorithm(greedy).try_build(FOUR, "all_reduce")
    assert isinstance(refused, registry.Refusal)
    assert refused.reason.startswith("greedy failed: ")
    line = greedy.__code__.co_firstlineno + 1
    assert refused.reason.endswith(f"test_resolver.py:{line}: LimitError: too many rows for ring:4")


def test_a_function_that_runs_out_of_memory_is_refused_with_its_line() -> None:
    def vast(topology: Topology) -> Schedule:
        raise MemoryError

    refused = resolve_algorithm(vast).try_build(FOUR, "all_reduce")
    assert isinstance(refused, registry.Refusal)
    line = vast.__code__.co_firstlineno + 1
    assert refused.reason.endswith(f"test_resolver.py:{line}: MemoryError: does not fit into memory")


def test_a_function_offers_the_collective_that_it_returns() -> None:
    own = resolve_algorithm(ring.all_gather)
    assert own.offers(FOUR, "all_gather")
    assert not own.offers(FOUR, "all_reduce")
    with pytest.raises(UnsupportedError, match="a schedule of all_gather, not of all_reduce"):
        own.build(FOUR, "all_reduce")


def test_a_function_must_make_a_schedule_for_the_topology_that_it_was_given() -> None:
    other = load_topology("ring:5")
    own = resolve_algorithm(lambda _topology: ring.all_reduce(other))
    with pytest.raises(UnsupportedError, match=r"for ring:5 \(digest .*\), not for ring:4"):
        own.build(FOUR, "all_reduce")


def test_a_missing_option_is_named() -> None:
    def deep(topology: Topology, depth: int) -> Schedule:
        assert depth
        return ring.all_reduce(topology)

    with pytest.raises(InputError, match="deep: has no value for depth; give deep:depth=VALUE"):
        resolve_algorithm(deep).build(FOUR, "all_reduce")
    assert resolve_algorithm(functools.partial(deep, depth=2)).build(FOUR, "all_reduce").steps == 6


@pytest.mark.parametrize(("given", "message"), [(7, "int 7 is no algorithm"), (dict, "dict: .*topology")])
def test_what_is_no_algorithm_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_algorithm(given)


def test_a_function_without_a_topology_is_refused() -> None:
    nothing: Callable[..., Schedule] = lambda *, center=0: ring.all_reduce(FOUR)  # noqa: E731
    with pytest.raises(InputError, match="takes no topology"):
        resolve_algorithm(nothing)


def test_a_schedule_applies_to_its_own_topology_collective_and_root(tmp_path: Path) -> None:
    schedule = direct.broadcast(FOUR, root=1)
    save_schedule(schedule, tmp_path / "mine.json")
    for own in (resolve_algorithm(schedule), resolve_algorithm(str(tmp_path / "mine.json"))):
        assert own.build(FOUR, "broadcast", 1).digest == schedule.digest
        with pytest.raises(UnsupportedError, match="has the root 1, not 0"):
            own.build(FOUR, "broadcast", 0)
        with pytest.raises(UnsupportedError, match="is a schedule of broadcast"):
            own.build(FOUR, "all_reduce")
        with pytest.raises(UnsupportedError, match="not for ring:5"):
            own.build(load_topology("ring:5"), "broadcast", 1)


def test_two_of_one_name_are_told_apart_and_one_is_taken_once() -> None:
    def make(topology: Topology) -> Schedule:
        return ring.all_reduce(topology)

    def again(topology: Topology) -> Schedule:
        return direct.all_reduce(topology)

    again.__name__ = "make"
    names = [line.name for line in resolve_algorithms(["ring", make, again, make, "ring"], "all_reduce")]
    assert names == ["ring", "make", "make#2"]


def test_all_stands_for_those_that_offer_the_collective() -> None:
    offered = registry.for_collective("all_gather")
    assert resolve_algorithms(None, "all_gather") == list(offered)
    named = [line.name for line in resolve_algorithms(["gloo_ring", "swing", "all"], "all_gather")]
    others = [line.name for line in offered if not line.yardstick and line.name != "swing"]
    assert named == ["gloo_ring", "swing", *others]


def test_a_job_takes_names_only() -> None:
    with pytest.raises(InputError, match=r"mine\.py:make: only a name of an algorithm can stand here"):
        registry.find("mine.py:make")


def test_a_builder_of_the_root_package_serves() -> None:
    def chain(topology: Topology) -> Schedule:
        builder = ScheduleBuilder(topology, "broadcast", "chain", chunks=1, root=0)
        ranks = list(range(topology.ranks))
        builder.add(step=ranks[:-1], chunk=0, src=ranks[:-1], dst=ranks[1:], op="copy")
        return builder.build()

    assert resolve_algorithm(chain).build(FOUR, "broadcast").steps == 3
