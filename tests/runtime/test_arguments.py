"""Arguments of wrong types and sizes: numpy's numbers are numbers, and what is refused is an InputError."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import finish, start_ranks

import weft
from weft.errors import FormatError, InputError
from weft.files import read_bytes
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.handles import Handle

JOBS = Path(__file__).with_name("jobs")


@pytest.mark.parametrize("timeout", [5, 5.0, np.int64(5), np.float32(5), np.float64(5)])
def test_a_time_may_be_any_kind_of_number(timeout: Any) -> None:
    found = check_timeout(timeout)
    assert (type(found), found) == (float, 5.0)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 10**400, np.float32("nan")])
def test_a_time_that_no_wait_can_have_is_refused(timeout: Any) -> None:
    with pytest.raises(InputError, match="expected seconds, more than 0 and at most 1,000,000"):
        check_timeout(timeout)


@pytest.mark.parametrize(
    ("timeout", "kind"), [("5", "str"), ([1], "list"), (None, "NoneType"), (1j, "complex"), (True, "bool")]
)
def test_a_time_that_is_no_number_is_refused_with_its_type(timeout: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"as a number, not {kind}"):
        check_timeout(timeout)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timeout": "x"}, "timeout 'x': expected seconds"),
        ({"connect_timeout": "x"}, "connect_timeout 'x': expected seconds"),
        ({"plan_time_limit": "x"}, "plan_time_limit 'x': expected seconds"),
        ({"streams": "x"}, "streams 'x': expected a whole number"),
        ({"streams": 2.5}, "streams 2.5: expected a whole number"),
        ({"streams": 0}, "streams 0: expected 1 to"),
    ],
)
def test_wrong_arguments_of_init_are_refused_before_anything_else(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        weft.init(**given)


def test_waiting_for_longer_than_a_thread_can_is_waiting_until_it_is_over() -> None:
    handle: Handle[int] = Handle()
    threading.Timer(0.1, handle.complete, (7,)).start()
    assert handle.wait(1e300) == 7


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5"])
def test_waiting_for_what_is_no_time_is_refused(timeout: Any) -> None:
    with pytest.raises(InputError, match="expected seconds, 0 or more, or None"):
        Handle().wait(timeout)


def test_a_file_that_would_keep_its_reader_waiting_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # while it is open, there is no end to read up to
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # so does /proc/kmsg
    try:
        with pytest.raises(FormatError, match="has nothing to read now"):
            read_bytes("kmsg", path, 100)
    finally:
        os.close(writer)


ARGUMENTS = JOBS / "arguments_arguments.py"


def test_wrong_arguments_of_calls_are_refused_and_the_communicator_lives_on(tmp_path: Path) -> None:
    assert finish(start_ranks(tmp_path, 2, ARGUMENTS)) == [(0, ""), (0, "")]


def test_options_that_no_operation_has_are_refused_by_name(tmp_path: Path) -> None:
    ended = finish(start_ranks(tmp_path, 2, JOBS / "arguments_keywords.py"))
    assert [code for code, _ in ended] == [0, 0], ended
