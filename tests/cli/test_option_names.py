"""Options that messages and pages name exist: advice that cannot be followed is worse than none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from weft.cli import VERBS, group

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "weft").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OPTION = re.compile(r"(?<![\w/-])--[a-z][a-z0-9-]*[a-z0-9]")
CALL = re.compile(r"\bweft ([a-z]+)((?:[^`\n|;&]|\\\n)*)")


def flags(command: click.Command) -> set[str]:
    """All options of a command and of its own commands."""
    # Not get_params: it would make the option --help once and for all, without its short name.
    found = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= flags(inner)
    return found


BY_VERB = {
    name: flags(command) for name in VERBS if (command := group.get_command(click.Context(group), name))
}
KNOWN = flags(group) | {"--help"}
OTHERS = {
    "bench/peers/oneccl.py": {"--allow-shlib-undefined"},  # of the linker
    "bench/peers/open_mpi.py": {"--uts", "--map-by", "--host", "--bind-to"},  # of unshare and mpirun
    "bench/peers/open_mpi_4.py": {"--oversubscribe"},  # of mpirun
    "cli/probe.py": {"--nproc-per-node", "--nnodes", "--no-python"},  # of torchrun
    "lab/iproute.py": {"--privileged"},  # of docker
    "cli/report.py": {"--json"},  # of the commands whose results it reads
}
"""Options of other programs and commands, by the module that names them."""

HOMES = {
    **{f"cli/{verb}.py": verb for verb in VERBS},
    **dict.fromkeys(("training", "simulation/segment_sizes.py"), "train"),
    "soak": "soak",
    "probing": "probe",
    "lab": "lab",
    "papers": "reproduce",
}
"""Modules and folders whose messages are of one command."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a Python file, docstrings included, with its line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def without_script(words: str) -> str:
    """The words of a call up to the name of a script, whose options are its own, and up to a comment."""
    return re.split(r"\s--\s|\S+\.py\b(?!:)|\s#", words, maxsplit=1)[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_messages_exist(path: Path) -> None:
    place = path.relative_to(ROOT / "src" / "weft").as_posix()
    verb = next((verb for home, verb in HOMES.items() if place == home or place.startswith(f"{home}/")), None)
    allowed = (KNOWN if verb is None else BY_VERB[verb] | {"--help"}) | OTHERS.get(place, set())
    unknown = [
        f"{place}:{line}: {option}"
        for line, text in texts(path)
        for option in OPTION.findall(CALL.sub("", without_script(text)))
        if option not in allowed
    ]
    assert not unknown


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_options_of_calls_belong_to_their_command(path: Path) -> None:
    wrong = [
        f"weft {verb} {option}"
        for verb, words in CALL.findall(path.read_text("utf-8"))
        if verb in BY_VERB
        for option in OPTION.findall(without_script(words))
        if option not in BY_VERB[verb] | {"--help"}
    ]
    assert not wrong


def test_the_search_finds_what_is_wrong() -> None:
    assert OPTION.findall("use a larger --fusion, or --no-such-option; x--y") == [
        "--fusion",
        "--no-such-option",
    ]
    assert "--trace-ranks" in BY_VERB["train"]
    assert "--trace-ranks" not in BY_VERB["compare"]
