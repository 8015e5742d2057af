"""Rank 0 says how far its planning is, once it takes more than a moment."""

from __future__ import annotations

import logging
import threading

import pytest

import weft
from weft.runtime.planning_notice import PlanningNotice


def test_planning_that_takes_long_is_reported_with_time_to_go(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    with (
        caplog.at_level(logging.WARNING, "weft.runtime"),
        PlanningNotice(
            "the all_reduce on ring:4", 20, first_s=0, every_s=0.001, clock=lambda: now[0]
        ) as notice,
    ):
        reported = threading.Event()
        caplog.handler.addFilter(lambda _record: reported.set() or True)
        now[0] = 4.0
        notice.note("forest", 10, 50)
        for _ in range(3):
            reported.clear()
            assert reported.wait(60)
    text = caplog.records[-1].getMessage()
    assert text.startswith(
        "rank 0 plans the all_reduce on ring:4 (forest): 4 s so far, 20 % done, about 16 s to go"
    )
    # Whoever has given a plan is told why that one does not help.
    assert text.endswith("plan= with a plan of this collective avoids it")


def test_planning_that_is_soon_over_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    with (
        caplog.at_level(logging.WARNING, "weft.runtime"),
        PlanningNotice("the all_reduce on ring:4", 20, first_s=60) as notice,
    ):
        weft.plan("ring:4", "1MiB", algorithms=["ring"], progress=notice.note)
    assert not caplog.records
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("spent", "state", "ending"),
    [
        (5.0, ("", 0, 0), ": 5 s so far, about 15 s to go"),
        (19.0, ("sizes", 10, 40), " (sizes): 19 s so far, 25 % done, about 1 s to go"),
        (19.8, ("sizes", 39, 40), " (sizes): 19.8 s so far, 97 % done, nearly done"),
        (25.0, ("sizes", 40, 40), " (sizes): 25 s so far, nearly done"),
    ],
)
def test_time_to_go_never_exceeds_the_limit(spent: float, state: tuple[str, int, int], ending: str) -> None:
    now = [0.0]
    notice = PlanningNotice("the all_reduce on ring:4", 20, clock=lambda: now[0])
    now[0] = spent
    notice.note(*state)
    assert notice.describe() == f"rank 0 plans the all_reduce on ring:4{ending}"


def test_a_hostile_name_of_a_cluster_stays_one_short_line() -> None:
    text = PlanningNotice("the all_reduce on \x1b[31m\n" + "x" * 10_000, 20).describe()
    assert text.isprintable()
    assert len(text) < 300
