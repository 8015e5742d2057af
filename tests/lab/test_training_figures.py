"""The benchmark that trains on emulated clusters: its ideal, and the shares that it makes of times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "torch"
sys.path.insert(0, str(FOLDER))

import lab_training  # noqa: E402


def results(**iteration_s: float) -> list[dict[str, Any]]:
    """A row for each way; names have a blank where Python's have an underscore."""
    model = {"ideal_wfbp_s": 1.4, "ideal_dear_s": 1.1}
    return [
        {"way": name.replace("_", " "), "iteration_s": [seconds], "model": model}
        for name, seconds in iteration_s.items()
    ]


def test_ideal_is_that_of_the_network_and_of_computing_alone_whatever_was_measured_else() -> None:
    asked, size = lab_training.SET_UPS["hosts"], 8_404_992
    slow = lab_training.ideal_of(asked, results(dear=9.0, wfbp=9.0, alone=0.78), size)
    fast = lab_training.ideal_of(asked, results(dear=1.0, wfbp=1.0, alone=0.78), size)
    assert slow == fast
    half_s = 0.75 * size / (12.5e6 * 1448 / 1514)
    assert slow["ideal_s"] == pytest.approx(2 * half_s + 0.52 / 8 + 0.26 / 8, rel=1e-3)


def test_ideal_of_long_computing_is_computing_and_the_last_gradients() -> None:
    asked = lab_training.SET_UPS["slow-compute"]
    found = lab_training.ideal_of(asked, results(dear=3.0, alone=4.2), 8_404_992)
    assert 4.2 < found["ideal_s"] < 4.5


def test_without_computing_alone_there_is_no_ideal() -> None:
    assert lab_training.ideal_of(lab_training.SET_UPS["hosts"], results(dear=1.0, wfbp=2.0), 1 << 20) == {}


def test_shares_are_of_seconds_and_gloo_has_its_best_buckets() -> None:
    rows = results(dear=1.2, auto=1.25, wfbp=1.5, ddp_25=2.0, ddp_4=1.45, ddp_weft_1=1.0)
    told = lab_training.ratios(rows, {"ideal_s": 1.1, "bound_s": 1.08})
    assert told["share of the ideal gain, dear"] == 0.75
    assert told["share of the ideal gain, auto"] == 0.625
    assert told["best ddp on gloo / auto"] == 1.16
    assert told["share of what the bound allows over ddp on gloo"] == 0.9


def test_share_of_hardly_any_gain_is_not_told() -> None:
    told = lab_training.ratios(
        results(dear=1.49, auto=1.49, wfbp=1.5, ddp_1=1.5), {"ideal_s": 1.48, "bound_s": 1.4}
    )
    assert not any(name.startswith("share of the ideal gain") for name in told)


@pytest.mark.parametrize(
    ("words", "text"), [(("mesh",), "there is no mesh"), (("--quick",), "--quick needs --out")]
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], text: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "lab_training.py"), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert text in done.stderr
