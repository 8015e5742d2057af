"""Frames of the control plane that were changed, and frames of peers without the secret: none is taken.

A selection of what benchmarks/runtime/frames.py goes through.
"""

from __future__ import annotations

import random

import pytest
from support.faults import Nursery
from support.faults.control_frames import damage_control_frames
from support.faults.damage import KINDS
from support.faults.strangers import bother_job


@pytest.mark.parametrize("kind", KINDS)
def test_of_damaged_frames_of_the_control_plane_none_is_taken(kind: str) -> None:
    chance = random.Random(1)
    found = [damage_control_frames(kind, chance) for _ in range(100)]
    assert [wrong for _, wrong in found if wrong] == []
    assert sum(end != "unchanged" for end, _ in found) > len(found) / 2


def test_frames_of_peers_without_the_secret_are_not_read_and_the_job_starts(nursery: Nursery) -> None:
    heard, problems = bother_job(nursery, 60, random.Random(1), held_s=3.0)
    assert problems == []
    assert len(heard) > 30
