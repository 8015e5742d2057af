"""The benchmark that trains a transformer in the lab: a tiny run of it, and what it makes of results."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = FOLDER / "training" / "transformer.py"


@pytest.fixture
def transformer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in (FOLDER, FOLDER / "lab", FOLDER / "training"):
        monkeypatch.syspath_prepend(folder)
    return importlib.import_module("transformer")


def document() -> dict[str, Any]:
    """Three ways in one set-up, with figures that are made up."""
    model = {
        "all_reduce_s": 2.0,
        "backward_s": 1.0,
        "ideal_wfbp_s": 3.0,
        "ideal_dear_s": 2.5,
        "predicted_s": 2.6,
    }
    rows = [
        {"way": "dear", "iteration_s": [2.0, 4.0, 3.0], "losses": [4.0, 3.0], "model": model},
        {"way": "ddp gloo 25", "iteration_s": [6.0, 4.0, 4.5], "losses": [4.0, 3.25]},
        {"way": "alone", "iteration_s": [1.0, 1.0, 1.0], "losses": [4.0, 9.0]},
    ]
    return {
        "parameters": {"ranks": 4, "megabits": [7], "size_bytes": 1_500_000, "rounds": 3, "steps": 1},
        "results": [{"communication": 2.0, **row} for row in rows],
    }


def test_ratios_are_of_medians_and_losses_leave_out_who_sends_nothing(transformer: ModuleType) -> None:
    found = transformer.summarise(document()["results"])
    assert found["ratios"] == {"dear / dear": 1.0, "ddp gloo 25 / dear": 1.5, "alone / dear": 0.333}
    assert found["largest_difference_of_losses"] == 0.25
    assert (found["first_loss"], found["last_loss"]) == (4.0, 3.0)
    assert found["all_reduce_over_backward"] == 2
    assert found["ideal wfbp / ideal dear"] == 1.2


def test_page_and_pictures_show_every_way(
    transformer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = document()
    made["summary"] = [transformer.summarise(made["results"])]
    made["provenance"] = {"cores": 2, "load_before": [3.2, 1.0, 1.0]}
    path = tmp_path / "made.json"
    path.write_text(json.dumps(made), "utf-8")
    monkeypatch.setattr(transformer, "RESULTS", path)
    lines = transformer.table().splitlines()
    assert lines[2] == "| DeAR on Weft | 3,000 | 2,000, 4,000 | 1.00x | 3.0000 |"
    assert lines[3] == "| DDP on gloo, 25 MB | 4,500 | 4,000, 6,000 | 1.50x | 3.2500 |"
    assert lines[4].endswith("| 0.33x | - |")
    text = " ".join(transformer.facts().split())
    assert "links of 7 Mbit/s, 1.5 MB of gradients" in text
    assert "further apart than 0.2" in text
    assert "had other work to do" in text, "a load of 3.2"
    for picture in transformer.draw(made, 2.0).values():
        assert ET.fromstring(picture).tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--ways", "wfbp"), "held against dear"),
        (("--ranks", "1"), "at least 2 ranks"),
        (("--width", "30"), "a multiple of 4"),
        (("--communication", "0"), "factors from 0.01"),
        (("--megabits", "-1"), "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], text: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.namespaces
@pytest.mark.slow
def test_a_tiny_transformer_learns_the_same_in_every_way(tmp_path: Path) -> None:
    output = tmp_path / "tiny.json"
    ways = ["dear", "wfbp", "ddp weft 25", "ddp gloo 25", "alone"]
    words = ["--quick", "--megabits", "40", "--output", str(output), "--ways", *ways]
    subprocess.run([sys.executable, str(SCRIPT), *words], check=True, timeout=250)
    found = json.loads(output.read_text("utf-8"))
    assert found["parameters"]["ranks"] == 2
    rows = {row["way"]: row for row in found["results"]}
    assert list(rows) == ways
    assert found["parameters"]["megabits"] == [40]
    for row in rows.values():
        assert len(row["iteration_s"]) == 2
        assert min(row["iteration_s"]) > 0
        assert len(row["losses"]) == 6 + 2 * 3, (
            "warm-up, and in each of two rounds one step more than is timed"
        )
    dear = rows["dear"]["losses"]
    assert dear[-1] < dear[0]
    for way in ("wfbp", "ddp weft 25", "ddp gloo 25"):
        assert rows[way]["losses"] == pytest.approx(dear, rel=1e-4)
    assert rows["alone"]["losses"][-1] != pytest.approx(dear[-1], rel=1e-6), "it must not average anything"
    assert rows["dear"]["model"]["policy"] == "dear"
