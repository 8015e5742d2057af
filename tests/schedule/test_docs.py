"""The examples of docs/schedule.md do what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from support.oracle import accepts

from weft import limits
from weft.schedule import COLLECTIVES
from weft.schedule.codec import MAGIC
from weft.schedule.json_form import schedule_from_json

PAGE = Path(__file__).parents[2] / "docs" / "schedule.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_python_examples_print_what_they_show() -> None:
    failed, tried = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 10
    assert failed == 0


def test_the_json_example_is_a_correct_schedule() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    star = schedule_from_json(example)
    assert accepts(star)
    assert len(star.route_of(1)) == 2


def test_the_page_names_every_collective_and_the_right_numbers() -> None:
    assert all(f"| `{collective}` |" in TEXT for collective in COLLECTIVES)
    assert MAGIC.hex(" ") in TEXT
    assert f"may have {limits.MAX_TEXT_BYTES >> 20} MiB" in TEXT
    assert f"larger than {limits.MAX_SCHEDULE_BYTES >> 20} MiB" in TEXT
    assert f"1 to {limits.MAX_SLOTS - 1} are scratch" in TEXT
