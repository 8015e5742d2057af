"""Every command of README and docs that is shown with its output prints that.

``WEFT_UPDATE_GOLDEN=1 pytest tests/cli/test_docs.py`` writes the outputs anew. What depends on the machine is
blanked out before comparing; blocks of ``weft doctor``, ``bench``, ``soak`` and (slow) ``lab`` are only run.
Commands in indented lines are parsed here; tests/cli/test_page_commands.py runs them or says why not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from cli.running import Outcome, Run

from weft.cli import VERBS, group

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONG = [ROOT / "docs" / "papers" / "ace.md"]
"""Pages whose commands take half a minute: those of ACE simulate every endpoint. tests/cli/test_train.py does
that for a smaller model."""

BLOCK = re.compile(r"```console\n(\$ .*?)```\n", re.DOTALL)
SCRIPT = re.compile(r"```python\n# (\w+\.py)\n(.*?)```\n", re.DOTALL)
"""A file that the commands of a page name; its first line says what it is called."""
UNSTABLE = re.compile(
    r"[0-9.e-]+(?= CPU seconds)|(?<=_seconds\": )[0-9.e-]+|(?<=^wrote plan\.weft, )[0-9,]+"
    r"|(?<=^wrote degraded\.weft, )[0-9,]+"
    r"|(?<=^wrote report\.html, )[0-9,]+",
    re.MULTILINE,
)


def printed(outcome: Outcome) -> str:
    text = outcome.out + outcome.err
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def stable(text: str) -> str:
    return UNSTABLE.sub("#", text)


def split_block(block: str) -> tuple[str, str]:
    """Return the command of a block, which goes on behind a backslash, and what it prints."""
    match = re.match(r"(?:.*\\\n)*.*\n", block)
    assert match is not None
    return match[0].removesuffix("\n"), block[match.end() :]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page in LONG else [], id=str(page.relative_to(ROOT)))
        for page in PAGES
        if BLOCK.search(page.read_text("utf-8"))
    ],
)
def test_every_command_prints_what_the_page_shows(
    page: Path, weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for record in Path(__file__).with_name("flights").iterdir():
        shutil.copy(record, ".")  # what `weft explain` is shown with
    shutil.copy(ROOT / "tests" / "data" / "topology" / "tree.slurm.conf", "topology.conf")
    text = page.read_text("utf-8")
    for name, script in SCRIPT.findall(text):
        Path(name).write_text(script, "utf-8")
    for block in BLOCK.findall(text):
        command, shown = split_block(block)
        words = shlex.split(command.removeprefix("$ ").replace("\\\n", " "))
        assert words[0] == "weft"
        if is_long(words):
            parse(words[1:])
            continue
        found = printed(weft(*words[1:]))
        if words[1] in ("doctor", "bench", "soak"):
            continue  # they describe the machine: run, but neither compared nor written
        if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
            text = text.replace(block, f"{command}\n{found}")
        else:
            assert stable(found) == stable(shown), command
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        page.write_text(text, "utf-8")


def is_long(words: list[str]) -> bool:
    """Whether a command takes ten seconds of processor time; tests/lab/test_bench.py has a smaller one."""
    return words[1:3] == ["lab", "bench"]


@pytest.mark.slow
@pytest.mark.namespaces
def test_the_emulated_benchmark_of_the_page_runs(weft: Run) -> None:
    blocks = [split_block(block)[0] for block in BLOCK.findall(PAGE.read_text("utf-8"))]
    (words,) = (words for words in map(shlex.split, blocks) if is_long(words[1:]))
    done = weft(*words[2:])
    assert done.code == 0, done.err


def test_every_verb_has_its_chapter_and_an_example() -> None:
    text = PAGE.read_text("utf-8")
    for verb in VERBS:
        assert f"## weft {verb}\n" in text
        assert f"```console\n$ weft {verb}" in text


def commands(page: Path) -> list[list[str]]:
    """Return the words of every ``weft`` command in the indented lines of a page, up to a redirection."""
    lines = re.findall(r"^    (?:\$ )?weft ([a-z].+)$", page.read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_accepted_by_the_parser(page: Path) -> None:
    for words in commands(page):
        parse(words)


def parse(words: list[str]) -> None:
    """Read the words of a command without running it."""
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    while isinstance(command, click.Group):
        words = words[1:]
        command = command.commands[words[0]]
    command.make_context(words[0], words[1:])


def test_there_are_commands_to_parse() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 18
