"""Tasks of a sweep: what a worker may be asked for, and how a sweep ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import _core
from weft.errors import InputError, LimitError, RuntimeFailure, TimedOut, WeftError
from weft.sweeps import SweepTask, open_executor, run_tasks, stream_tasks
from weft.sweeps.task_text import FUNCTIONS, read_reply, run_text

SMALL = json.dumps(
    {
        "network": '{"spec":"ring:4"}',
        "size_bytes": 1024,
        "collective": "all_reduce",
        "algorithms": [{"name": "ring"}],
        "root": 0,
        "sharing": "queue",
        "segment_bytes": None,
        "time_limit": None,
    }
)


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], None]:
    """Let tasks of the function `probe` call something of the test; only threads of this process see it."""
    module = ModuleType("weft.probe_of_a_test")
    monkeypatch.setitem(FUNCTIONS, "probe", module.__name__)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    return lambda run: setattr(module, "probe", run)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def tasks(count: int) -> list[SweepTask]:
    return [SweepTask("probe", str(number), f"point {number}") for number in range(count)]


def test_a_worker_runs_nothing_but_the_functions_on_the_list() -> None:
    for name in ("system", "os.system", "weft.cli.train.command", "__import__", ""):
        with pytest.raises(InputError, match="there is no function of a sweep"):
            SweepTask(name, "", "x")
        reply = read_reply(run_text(_core.version(), name, '"ls"'))
        assert (reply.result, reply.exit_code) == (None, 2)
        assert "there is no function of a sweep" in reply.problem


def test_every_function_on_the_list_exists_and_refuses_what_is_no_task() -> None:
    for name in FUNCTIONS:
        for text in ("", "[]", "{}", '{"network": 3}', "\ud800"):
            reply = read_reply(run_text(_core.version(), name, text))
            assert reply.exit_code == 2, (name, text, reply)
            assert "the text of a task cannot be read" in reply.problem


def test_a_worker_of_another_version_says_so() -> None:
    reply = read_reply(run_text("0.0.1", "compare_point", SMALL))
    assert "install the same on both" in reply.problem


def test_a_text_that_is_too_long_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.limits.MAX_TASK_CHARACTERS", 10)
    with pytest.raises(LimitError, match="point 7"):
        SweepTask("compare_point", "x" * 11, "point 7")


@given(st.one_of(st.text().filter(lambda text: "{" not in text), st.binary(), st.none(), st.integers()))
def test_what_is_no_reply_is_refused(found: object) -> None:
    with pytest.raises(RuntimeFailure, match="no reply"):
        read_reply(found)


@given(st.integers(0, 12), st.integers(1, 5), st.booleans())
def test_results_come_in_order_whatever_is_done_first(count: int, ahead: int, parallel: bool) -> None:
    seen: list[tuple[int, int]] = []
    patch = pytest.MonkeyPatch()
    module = ModuleType("weft.probe_of_a_test")
    module.probe = lambda text: str(2 * int(text))  # type: ignore[attr-defined]
    with patch.context() as context, ThreadPoolExecutor(3) as threads:
        context.setitem(FUNCTIONS, "probe", module.__name__)
        context.setitem(__import__("sys").modules, module.__name__, module)
        executor = threads if parallel else None
        found = run_tasks(
            tasks(count), executor, lambda _text, done, total: seen.append((done, total)), ahead=ahead
        )
    assert found == [str(2 * number) for number in range(count)]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0] == (0, count)
    assert seen[-1] == (count, count)


def test_no_more_are_submitted_than_are_allowed_ahead(
    function: Callable[..., None], threads: ThreadPoolExecutor
) -> None:
    begun: list[str] = []
    function(lambda text: begun.append(text) or text)
    stream = stream_tasks(tasks(20), threads, ahead=3)
    assert next(stream).text == "0"
    assert len(begun) <= 4
    stream.close()
    time.sleep(0.1)
    assert len(begun) <= 4


@pytest.mark.parametrize("parallel", [True, False])
def test_the_first_error_names_its_point_and_ends_the_rest(
    function: Callable[..., None], threads: ThreadPoolExecutor, parallel: bool
) -> None:
    begun: list[str] = []
    gate = threading.Event()

    def run(text: str) -> str:
        begun.append(text)
        if text == "1":
            raise InputError("nothing fits")
        gate.wait(30 if parallel else 0)  # it is told of at once, before what stands in front of it
        return text

    function(run)
    try:
        with pytest.raises(InputError, match=r"^point 1: nothing fits$"):
            run_tasks(tasks(100), threads if parallel else None)
    finally:
        gate.set()
    threads.shutdown()
    # Of two threads one may have begun another point before it hears of the error.
    assert sorted(begun)[:2] == ["0", "1"]
    assert len(begun) <= (3 if parallel else 2)


def test_an_error_of_any_kind_comes_back_as_text(function: Callable[..., None]) -> None:
    class OddError(BaseException):
        pass

    def run(_text: str) -> str:
        raise OddError("what nobody else can read")

    function(run)
    with pytest.raises(InputError, match="point 0: OddError: what nobody else can read"):
        run_tasks(tasks(1))


def test_a_deadline_ends_a_sweep_and_says_how_far_it_was(
    function: Callable[..., None], threads: ThreadPoolExecutor
) -> None:
    gate = threading.Event()
    function(lambda text: text if int(text) < 3 else str(gate.wait(30)))
    try:
        with pytest.raises(TimedOut, match="3 of 8 points are done"):
            run_tasks(tasks(8), threads, deadline_s=3)
    finally:
        gate.set()
    with pytest.raises(InputError, match="a deadline of 0 seconds"):
        run_tasks(tasks(1), threads, deadline_s=0)


def test_a_sweep_that_is_stopped_raises_what_an_interrupt_raises(
    function: Callable[..., None], threads: ThreadPoolExecutor
) -> None:
    function(lambda text: text)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks(8), threads, stopped=lambda: True)


def test_an_executor_that_cancels_by_itself_is_reported(function: Callable[..., None]) -> None:
    gate = threading.Event()
    function(lambda text: str(gate.wait(30)))
    with ThreadPoolExecutor(1) as executor:
        asked = iter([False])

        def stopped() -> bool:
            if next(asked, True):  # not before the tasks are submitted
                executor.shutdown(wait=False, cancel_futures=True)
                gate.set()
            return False

        found = list(stream_tasks(tasks(3), executor, stopped=stopped))
    assert [outcome.text for outcome in found] == ["True", None, None]
    assert "the executor cancelled it" in found[1].problem


def alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_give_what_this_process_gives_and_end_with_the_executor() -> None:
    points = [SweepTask("compare_point", SMALL, f"point {number}") for number in range(6)]
    with open_executor("processes", 2) as executor:
        numbers = [executor.submit(os.getpid).result(60)]
        assert numerical(run_tasks(points, executor, deadline_s=100)) == numerical(run_tasks(points))
    assert not any(map(alive, numbers))


def numerical(texts: list[str]) -> list[list[tuple[str, float, int]]]:
    return [
        [(row["algorithm"], row["seconds"], row["transfers"]) for row in json.loads(text)["rows"]]
        for text in texts
    ]


def test_a_worker_that_dies_is_an_error_that_names_the_point() -> None:
    with open_executor("processes", 1) as executor:
        executor.submit(os.kill, executor.submit(os.getpid).result(60), 9)
        with pytest.raises(RuntimeFailure, match=r"point \d: its process died"):
            run_tasks([SweepTask("compare_point", SMALL, f"point {n}") for n in range(3)], executor)


def test_a_sweep_that_fails_ends_its_processes() -> None:
    numbers: list[int] = []

    def fail(executor: Executor) -> None:
        numbers.append(executor.submit(os.getpid).result(60))
        run_tasks([SweepTask("compare_point", "{}", "point 0")], executor)

    with pytest.raises(WeftError, match="point 0"), open_executor("processes", 1) as executor:
        fail(executor)
    end = time.monotonic() + 60
    while any(map(alive, numbers)):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("dask", "where is its scheduler"),
        ("dask:", "where is its scheduler"),
        ("slurm", "expected processes, mpi, dask:ADDRESS or ray"),
        ("ray:1.2.3.4", "expected processes, mpi, dask:ADDRESS or ray"),
        ("mpi", "has no workers; start it as mpirun"),
    ],
)
def test_an_executor_that_cannot_be_says_how_it_is_given(kind: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint), open_executor(kind):
        raise AssertionError
