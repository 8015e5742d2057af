"""The frame around the verbs: help, exit codes, interruption, bugs, colour, and what is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from cli.running import Run

from weft import cli
from weft.errors import InputError, SimulationError, VerificationError

WEFT = Path(sys.executable).with_name("weft")
Plant = Callable[[BaseException], None]


def start(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WEFT, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def break_doctor(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Make ``weft doctor`` raise something."""

    def plant(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        module = type(sys)("weft.cli.doctor")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "weft.cli.doctor", module)

    return plant


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("this\n  is wrong"), 2, "weft: error: this is wrong\n"),
        (VerificationError("semantics", "lost", rank=3), 1, "weft: error: semantics: rank 3: lost\n"),
        (SimulationError("stuck"), 3, "weft: error: stuck\n"),
        (MemoryError(), 2, "weft: error: not enough memory for this input; try a smaller one\n"),
        (RecursionError("maximum"), 2, "weft: error: the input is nested too deeply\n"),
        (OSError(5, "Input/output error", "disk"), 3, "weft: error: disk: Input/output error\n"),
        (KeyboardInterrupt(), 130, "weft: interrupted\n"),
        (click.Abort(), 130, "weft: interrupted\n"),
        (InputError("\x1b[31mred\x07"), 2, "weft: error: \\x1b[31mred\\x07\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_one_line_and_its_exit_code(
    weft: Run, break_doctor: Plant, error: BaseException, code: int, text: str
) -> None:
    break_doctor(error)
    outcome = weft("doctor")
    assert (outcome.code, outcome.out, outcome.err) == (code, "", text)


def test_a_bug_is_called_one_and_says_how_to_see_the_traceback(weft: Run, break_doctor: Plant) -> None:
    break_doctor(ZeroDivisionError("division by zero"))
    outcome = weft("doctor")
    assert outcome.code == 70
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("weft: a bug in Weft: ZeroDivisionError: division by zero")
    assert "WEFT_DEBUG=1" in outcome.err


def test_debugging_shows_the_traceback(
    weft: Run, break_doctor: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_doctor(InputError("nope"))
    monkeypatch.setenv("WEFT_DEBUG", "1")
    with pytest.raises(InputError, match="nope"):
        weft("doctor")


def test_a_long_message_is_cut_in_the_middle(weft: Run, break_doctor: Plant) -> None:
    break_doctor(InputError("begin " + "x" * 5000 + " end"))
    outcome = weft("doctor")
    assert len(outcome.err) < 700
    assert "begin x" in outcome.err
    assert outcome.err.endswith("x end\n")


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_lists_every_verb(weft: Run, words: tuple[str, ...]) -> None:
    outcome = weft(*words)
    assert outcome.code == 0
    assert outcome.err == ""
    for verb, summary in cli.VERBS.items():
        assert f"  {verb}" in outcome.out
        assert summary in outcome.out


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_json_examples_and_the_summary_of_the_table(weft: Run, verb: str) -> None:
    outcome = weft(verb, "--help")
    assert outcome.code == 0
    assert cli.VERBS[verb] in outcome.out
    command = cli.group.get_command(click.Context(cli.group), verb)
    inner = [f"{verb} {name}" for name in command.commands] if isinstance(command, click.Group) else [verb]
    for words in inner:
        said = weft(*words.split(), "--help").out
        assert "--json" in said
        assert f"weft {words}" in said.partition("Examples:\n")[2]


def test_the_version_is_printed(weft: Run) -> None:
    outcome = weft("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("weft 0.")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from weft.cli import main; main(['--help']); "
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "scipy", "networkx", "torch", "rich", "msgspec", "jinja2"}


def test_a_reader_that_goes_away_is_met_with_silence() -> None:
    process = subprocess.Popen(
        [WEFT, "topology", "torus:8x8", "--toml", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_colour_is_for_terminals_and_can_be_refused() -> None:
    assert "\x1b" not in start("topology", "ring:4").stdout
    assert "\x1b" in start("topology", "ring:4", FORCE_COLOR="1").stdout
    plain = start("topology", "ring:4", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[3" not in plain
    assert "\x1b" not in start("topology", "ring:4", FORCE_COLOR="1", TERM="dumb").stdout


def test_a_terminal_without_unicode_still_gets_its_output() -> None:
    done = start("topology", "ring:4", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "ring:4" in done.stdout


def test_a_spec_that_is_not_text_is_shown_escaped() -> None:
    done = subprocess.run(
        [os.fsencode(WEFT), b"topology", b"ring:\xff\xfe"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"weft: error: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("line", "offered"),
    [("weft co", ["compare"]), ("weft compare ring:4 --sh", ["--sharing"]), ("weft d", ["doctor"])],
)
def test_completion_is_offered(line: str, offered: list[str]) -> None:
    last = str(len(line.split()) - 1)
    done = start(_WEFT_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=last)
    assert done.stdout.splitlines() == [f"plain,{word}" for word in offered]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_taught_to_complete(shell: str) -> None:
    done = start(_WEFT_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert "_WEFT_COMPLETE=" in done.stdout


@pytest.mark.parametrize("wish", ["bash_complete", "zsh_complete", "fish_complete", "bash", "bash_x", "foo"])
def test_completion_that_no_shell_asked_for_is_one_line(wish: str) -> None:
    done = start(_WEFT_COMPLETE=wish)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: error: _WEFT_COMPLETE={wish}: ")
    assert done.stderr.count("\n") == 1


COMPARE = "compare ring:4 --size 1MiB --algorithm ring"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (f"{COMPARE} >&-", 2, "standard output is closed"),
        (f"{COMPARE} >&- 2>&-", 2, ""),
        (f"{COMPARE} 2>&-", 0, ""),
        (f"{COMPARE} <&-", 0, ""),
        (f"{COMPARE} <&- >&- 2>&-", 2, ""),
        ("verify - <&-", 2, "standard input is closed"),
        ("topology - <&-", 2, "standard input is closed"),
        ("nonsense 2>&-", 2, ""),
        ("topology ring:4 --svg o.svg 2>&-", 0, ""),
    ],
)
def test_a_stream_that_is_closed_is_no_bug(words: str, code: int, message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" {words}', WEFT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == bool(message)


@pytest.mark.parametrize(
    ("words", "code"), [(["--version"], 0), (["nonsense"], 2), (["verify", "missing.weft"], 2)]
)
def test_python_m_weft_ends_with_the_exit_code_of_weft(words: list[str], code: int) -> None:
    command = [sys.executable, "-m", "weft", *words]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == code


def test_an_option_without_its_value_leads_to_the_help_of_its_command(weft: Run) -> None:
    outcome = weft("reproduce", "--claim")
    assert outcome.code == 2
    assert outcome.err == "weft: error: Option '--claim' requires an argument; see 'weft reproduce --help'\n"
