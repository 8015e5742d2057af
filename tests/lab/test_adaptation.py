"""A link becomes slow under load: the job measures again, plans again, and all ranks change together."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.lab import build
from weft.probing.adaptation import Adaptation, SpeedWatch, remeasure
from weft.probing.measurements import (
    Flow,
    MeasuredCable,
    Measurements,
    Round,
)
from weft.runtime.launcher.launch import launch
from weft.topology import Topology, load_topology
from weft.topology.toml_file import format_toml

JOBS = Path(__file__).with_name("jobs")

JOB = JOBS / "adaptation_job.py"


@pytest.mark.namespaces
def test_a_slow_link_is_planned_around(tmp_path: Path) -> None:
    file, begun, changed = (tmp_path / name for name in ("t.toml", "begun", "changed"))
    out, err = io.BytesIO(), io.BytesIO()
    with build(load_topology("ring:4@bw=40Mbit/s")) as network:
        file.write_text(format_toml(network.topology), "utf-8")

        def slow_down_when_asked() -> None:
            deadline = time.monotonic() + 90
            while not begun.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            for ends in ((1, 2), (2, 1)):
                network.set_speed(network.topology.links_between(*ends)[0], 250_000)
            changed.touch()

        helper = threading.Thread(target=slow_down_when_asked)
        helper.start()
        line = [sys.executable, str(JOB), str(file), str(begun), str(changed)]
        result = launch(line, 4, out=out, err=err, seats=network.seats())
        helper.join()
    said = out.getvalue().decode().splitlines()
    assert result.exit_code == 0, err.getvalue().decode()
    for rank in range(4):
        assert f"[{rank}] then True True True" in said


def test_cables_take_the_speeds_that_were_measured_and_the_others_stay() -> None:
    addresses = ((0, "a", "b"), (1, "b", "a"), (2, "c", "d"), (3, "d", "c"))
    claimed = Topology.from_links(
        "claimed", 3, 0, [(0, 1), (1, 2), (2, 0)], bandwidth="1MB/s", latency="1us", addresses=addresses
    )
    cables = (MeasuredCable((0, 1), ("a", "b")), MeasuredCable((1, 2), ("c", "d")))
    rates = {Flow(0, 1, 0): 5e5, Flow(1, 0, 0): 9e5, Flow(1, 2, 1): 1e6, Flow(2, 1, 1): 1e6}
    found = Measurements(((0,), (1,), (2,)), cables, [Round("cables", rates)])
    now = remeasure(claimed, found)
    assert now.bandwidth.tolist() == [500_000, 900_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000]
    assert np.array_equal(now.link_src, claimed.link_src)
    assert now.addresses == claimed.addresses


class Imagined:
    """A communicator as far as a watch needs one."""

    def __init__(self) -> None:
        self.last, self._chooser, self.used = None, "first", list[str]()

    def all_reduce(self, array: Any, _op: str) -> Any:
        return array

    def use(self, chooser: str) -> None:
        self.used.append(chooser)


def imagined_watch(
    monkeypatch: pytest.MonkeyPatch, plan: str | None
) -> tuple[Imagined, SpeedWatch, list[float]]:
    asked: list[float] = []

    def adapt(_communicator: Any, *, size_bytes: int, seconds_now: float) -> Adaptation:
        assert size_bytes == 1 << 20
        asked.append(seconds_now)
        return Adaptation(load_topology("ring:3"), 2.0, 1.0, plan)  # type: ignore[arg-type]

    monkeypatch.setattr("weft.probing.adaptation.adapt", adapt)
    communicator = Imagined()
    return communicator, SpeedWatch(communicator, size_bytes=1 << 20), asked  # type: ignore[arg-type]


def test_two_slow_steps_are_no_reason_and_three_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _, watch, asked = imagined_watch(monkeypatch, None)
    for seconds in (1, 1, 1, 2, 2, 1, 2, 2):
        assert watch.step(seconds) is None
    assert watch.step(2) is not None
    assert asked == [2]


@pytest.mark.parametrize(("later", "goes_back"), [(3.0, True), (1.1, False)])
def test_a_plan_that_makes_it_worse_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, later: float, goes_back: bool
) -> None:
    communicator, watch, asked = imagined_watch(monkeypatch, "a plan")
    for seconds in (1, 1, 1, 2, 2, 2):
        watch.step(seconds)
    for _ in range(6):
        watch.step(later)
    assert communicator.used == (["first"] if goes_back else [])
    assert len(asked) == 1 or later == 3.0
