"""The Python of docs/tutorial.md runs: what is asked of the plan, and the program for two boxes, on CPUs."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
from pathlib import Path

from cli.running import Run
from support.engines import AS_ROOT, TORCHRUN

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PLAN = re.compile(r"^\$ weft (plan dgx-h100:2 (?:.*\\\n)*.*)$", re.MULTILINE)
REHEARSAL = re.compile(r"^    weft (plan .*)\n    torchrun (.*)\n\nIt prints `(.*)`", re.MULTILINE)


def test_the_plan_of_the_tutorial_answers_what_the_page_shows(weft: Run) -> None:
    command = PLAN.search(PAGE.read_text("utf-8"))
    assert command is not None
    assert weft(*shlex.split(command[1].replace("\\\n", " "))).code == 0
    assert doctest.testfile(str(PAGE), module_relative=False) == (0, 5)


def test_the_program_of_the_tutorial_runs_as_it_is_rehearsed(weft: Run, tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    program = text.partition("```python\n# two_boxes.py\n")[2].partition("```")[0]
    (tmp_path / "two_boxes.py").write_text(program, "utf-8")
    rehearsal = REHEARSAL.search(text)
    assert rehearsal is not None
    assert weft(*shlex.split(rehearsal[1])).code == 0
    done = subprocess.run(
        [str(TORCHRUN), *shlex.split(rehearsal[2])],
        cwd=tmp_path,
        env={**os.environ, **AS_ROOT},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{rehearsal[3]}\n"
