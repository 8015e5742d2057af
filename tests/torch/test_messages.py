"""Messages between two ranks: matched by tag, of any type and size, and no harm where they do not match."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

TAGS = JOBS / "messages_tags.py"


def test_messages_are_matched_by_their_tags(tmp_path: Path) -> None:
    run_group(tmp_path, 2, TAGS)


BOUND = JOBS / "messages_bound.py"


def test_what_would_be_kept_without_bound_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    run_group(tmp_path, 2, BOUND)


DIFFERENT = JOBS / "messages_different.py"


def test_messages_of_another_size_or_type_are_told(tmp_path: Path) -> None:
    run_group(tmp_path, 2, DIFFERENT)
