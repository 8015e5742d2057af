"""Up to two hundred jobs of training, and what of their figures does not depend on when or where they ran."""

from __future__ import annotations

from typing import Any

from weft.training.job import TrainingJob
from weft.training.sweep import SweepPoint, expand

SIZES = ["64KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB"]
TWO_SIZES = ["256KiB", "16MiB"]
LIGHT = ("multitree-ncf", "ring:{scale}", ["2", "3", "4", "5", "6"])
HEAVY = ("multitree-alphagozero", "torus:{scale}", ["3x3", "2x4", "3x4", "4x4", "4x5"])
"""Model, topology and scales of a sweep that takes a second or two, and of one that takes half a minute."""


def two_hundred(kind: tuple[str, str, list[str]] = LIGHT) -> list[SweepPoint]:
    """Points of a sweep over scales, policies and fusions."""
    points = points_of(kind)
    assert len(points) == 200
    return points


def points_of(kind: tuple[str, str, list[str]] = LIGHT, sizes: list[str] = SIZES) -> list[SweepPoint]:
    """Points of a sweep with some sizes of fusion: twenty for each."""
    model, topology, scales = kind
    return expand(TrainingJob(model, topology, algorithm="ring", iterations=2), _axes(scales, sizes))


def words_for(kind: tuple[str, str, list[str]] = LIGHT, sizes: list[str] = SIZES) -> list[str]:
    """The same sweep on the command line."""
    model, topology, scales = kind
    words = ["train", topology, "--model", model, "--algorithm", "ring", "--iterations", "2", "--json"]
    for key, values in _axes(scales, sizes).items():
        words += ["--sweep", f"{key}={','.join(values)}"]
    return words


def _axes(scales: list[str], sizes: list[str]) -> dict[str, list[str]]:
    return {"scale": scales, "policy": ["wfbp", "dear", "ddp", "zero"], "fusion": sizes}


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the CPU seconds that their simulation took."""
    assert not any("error" in row for row in rows)
    return [{key: value for key, value in row.items() if key != "simulation_seconds"} for row in rows]
