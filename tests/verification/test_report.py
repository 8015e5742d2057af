"""What `verify` and `inspect` hand back."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from support.handmade import ring_all_reduce

import weft
from weft.errors import VerificationError
from weft.topology import load_topology
from weft.verification import inspect


def test_the_report_of_a_right_schedule_fits_a_screen() -> None:
    schedule = ring_all_reduce(load_topology("ring:4"))
    report = inspect(schedule, contention=True)
    text = re.sub(r"0\.\d+ CPU", "0.000 CPU", str(report))
    assert text == (
        "ring all_reduce on ring:4: correct\n"
        f"  schedule    {schedule.digest[:12]}: 24 transfers in 24 messages, 6 steps, 4 chunks, 4 ranks\n"
        "  hazard      none: only reduces share a place within a step\n"
        "  semantics   every result holds each contribution exactly once\n"
        "  route       every route leads from its source to its destination\n"
        "  deadlock    impossible with 2 or more receive slots per connection\n"
        "  contention  no two flows on one link in one step; 4 of 8 links used, the busiest (0->1) carries "
        "1.5 buffers\n"
        "  took        0.000 CPU seconds"
    )
    assert report.ok
    assert report.checks == ("hazard", "semantics", "route", "deadlock")
    assert report.digest == schedule.digest
    with pytest.raises(FrozenInstanceError):
        report.problem = None  # type: ignore[misc]


def test_the_report_of_a_wrong_schedule_says_what_was_not_decided() -> None:
    schedule = ring_all_reduce(load_topology("ring:4"))
    report = inspect(replace(schedule, op=np.zeros_like(schedule.op)), contention=True)
    assert not report.ok
    assert report.checks == ("hazard", "semantics")
    assert report.slots is None
    assert report.contention is not None
    lines = str(report).splitlines()
    assert lines[0] == "ring all_reduce on ring:4: WRONG"
    assert lines[2] == "  hazard      not decided, the replay stops at the first problem"
    assert lines[3].startswith("  semantics   rank 0, chunk 0: the sum lacks")


def test_verify_raises_what_inspect_reports() -> None:
    schedule = ring_all_reduce(load_topology("ring:4"))
    wrong = replace(schedule, op=np.ones_like(schedule.op))
    problem = inspect(wrong).problem
    with pytest.raises(VerificationError) as caught:
        weft.verify(wrong)
    assert str(caught.value) == str(problem)
    assert caught.value.exit_code == 1
    assert weft.verify(schedule).ok
