"""``weft run``, with real processes: what they print, how they end, and that none of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.running import Run

from weft import limits

WEFT = Path(sys.executable).with_name("weft")
MEET = """
from weft.runtime import find_place, join
with join(find_place(), timeout=20) as control_plane:
    print(*control_plane.exchange(b"%d" % control_plane.rank, 20))
"""
# Each rank says its number and that of a process it started, and both stay until they are ended.
LINGER = """
import signal, subprocess, sys, time
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
import os
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def assert_gone(pids: list[int]) -> None:
    for _ in range(3000):
        if not any(map(is_alive, pids)):
            return
        time.sleep(0.02)
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    msg = f"left behind: {left}"
    raise AssertionError(msg)


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()))


# Whoever runs the tests in the background has them ignore some signals, and children inherit that.
HEARING = ["env", "--default-signal=INT,HUP"]


class Started:
    """A ``weft run`` under way, whose ranks have said which processes they are."""

    def __init__(self, tmp_path: Path, ranks: int, *words: str) -> None:
        script = tmp_path / "linger.py"
        script.write_text(LINGER)
        self.process = subprocess.Popen(
            [*HEARING, WEFT, "run", "-n", str(ranks), str(script), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(ranks)]
        self.rank_pids = {int(mark.strip("[]")): int(pid) for mark, pid, _ in lines}
        self.pids = [int(pid) for _, *both in lines for pid in both]

    def end(self) -> tuple[int, str]:
        """Exit code, and what was said on standard error."""
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Started]]:
    """Put jobs here, so that they are ended whatever happens."""
    jobs: list[Started] = []
    yield jobs
    for job in jobs:
        job.process.kill()
        job.process.communicate()
        assert_gone(job.pids)


# --- what is run


def test_the_ranks_of_a_script_meet(weft: Run) -> None:
    Path("meet.py").write_text(MEET)
    outcome = weft("run", "-n", 3, "meet.py")
    assert (outcome.code, outcome.err) == (0, "")
    assert sorted(outcome.out.splitlines()) == [f"[{rank}] b'0' b'1' b'2'" for rank in range(3)]


def test_an_error_of_a_rank_has_no_line_of_many_screens(weft: Run) -> None:
    Path("job.py").write_text("import weft\nweft.load_topology('k' * 4000 + ':4')\n")
    outcome = weft("run", "-n", 1, "job.py")
    assert outcome.code == 1
    assert "weft.errors.TopologyError: spec 'kkk" in outcome.err
    assert max(map(len, outcome.err.splitlines())) < 700


def test_words_after_the_script_are_the_scripts_own(weft: Run) -> None:
    Path("say.py").write_text("import sys\nprint(sys.argv[1:])")
    outcome = weft("run", "-n", 1, "say.py", "-n", "7", "--json", "--", "--help")
    assert outcome.out == "[0] ['-n', '7', '--json', '--', '--help']\n"


def test_after_two_dashes_any_command_is_run(weft: Run) -> None:
    outcome = weft("run", "-n", 2, "--", "sh", "-c", "echo $WEFT_RANK of $WEFT_SIZE")
    assert sorted(outcome.out.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_each_rank_knows_its_place_and_a_secret_of_this_run(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_SECRET_FILE", "/nowhere")
    monkeypatch.delenv("WEFT_CI", raising=False)
    monkeypatch.delenv("WEFT_FLIGHT_DIR")
    secrets = set()
    for _ in range(2):
        outcome = weft("run", "-n", 1, "--", "sh", "-c", "env | grep ^WEFT_")
        said = dict(line.removeprefix("[0] ").split("=") for line in outcome.out.splitlines())
        assert int(said.pop("WEFT_PORT")) > 0
        assert len(said.pop("WEFT_JOB")) == 16
        secrets.add(said.pop("WEFT_SECRET"))
        assert said.pop("WEFT_REPORT")
        assert said == {
            "WEFT_LAUNCHER": "weft",
            "WEFT_RANK": "0",
            "WEFT_SIZE": "1",
            "WEFT_LOCAL_RANK": "0",
            "WEFT_LOCAL_SIZE": "1",
            "WEFT_ADDRESS": "127.0.0.1",
            "WEFT_ATTEMPT": "0",
        }
    assert {len(secret) for secret in secrets} == {64}
    assert len(secrets) == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-n", 2, "absent.py"], "absent.py: no such file; to run a command, write -- before it"),
        (["-n", 2, "--", "no-such-program"], "no-such-program: cannot be started: No such file or directory"),
        (["-n", 2, "--", "/"], "/: cannot be started: Permission denied"),
        (["-n", 2], "Missing argument"),
        (["script.py"], "Missing option '-n'"),
        (["-n", 0, "script.py"], "'-n'"),
        (["-n", limits.MAX_LOCAL_RANKS + 1, "script.py"], "'-n'"),
        (["-n", "two", "script.py"], "'-n'"),
    ],
)
def test_bad_use_is_one_line(weft: Run, words: list[object], text: str) -> None:
    outcome = weft("run", *words)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert text in outcome.err


def test_an_option_behind_the_topology_of_a_lab_is_no_file(weft: Run) -> None:
    outcome = weft("lab", "run", "switch:2", "-n", "2", "script.py")
    assert outcome.code == 2
    assert outcome.err == (
        "weft: error: -n: options stand before all other words; see 'weft lab run --help'\n"
    )


# --- what is printed


def test_output_and_errors_keep_to_their_streams(weft: Run) -> None:
    outcome = weft("run", "-n", 2, "--", "sh", "-c", "echo out; echo err >&2")
    assert sorted(outcome.out.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(outcome.err.splitlines()) == ["[0] err", "[1] err"]


def test_many_lines_arrive_whole_and_in_order(weft: Run) -> None:
    Path("talk.py").write_text("print(*(f'line {n} ' + 'x' * (n % 300) for n in range(20_000)), sep='\\n')")
    outcome = weft("run", "-n", 3, "talk.py")
    lines = outcome.out.splitlines()
    assert len(lines) == 60_000
    for rank in range(3):
        mark = f"[{rank}] "
        own = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        assert own == [f"line {n} " + "x" * (n % 300) for n in range(20_000)]


def test_bytes_that_are_no_text_pass_unchanged() -> None:
    data = bytes(range(256)) * 3
    program = f"import sys; sys.stdout.buffer.write({data!r})"
    done = subprocess.run(
        [WEFT, "run", "-n", "1", "--", sys.executable, "-c", program], capture_output=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout == b"".join(b"[0] %b\n" % line for line in data.split(b"\n"))


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_too_long_is_cut(weft: Run, end: str) -> None:
    length = 3 * limits.MAX_OUTPUT_LINE_BYTES + 5
    outcome = weft("run", "-n", 1, "--", sys.executable, "-c", f"print('y' * {length}, end={end!r})")
    lines = [line.removeprefix("[0] ") for line in outcome.out.splitlines()]
    assert "".join(lines) == "y" * length
    assert max(map(len, lines)) == limits.MAX_OUTPUT_LINE_BYTES


def test_a_rank_that_closes_its_output_is_still_waited_for(weft: Run) -> None:
    outcome = weft("run", "-n", 1, "--", "sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 5")
    assert outcome.code == 5


def test_a_reader_that_goes_away_ends_the_job() -> None:
    line = f"{WEFT} run -n 2 -- yes | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_json_has_the_standard_output_for_itself(weft: Run) -> None:
    outcome = weft("run", "-n", 2, "--json", "--", "sh", "-c", "echo said; exit $((WEFT_RANK * 4))")
    assert outcome.code == 4
    document = json.loads(outcome.out)
    assert (document["ranks"], document["exit_code"], document["first_failure"]) == (2, 4, 1)
    assert document["signal"] is None
    assert document["results"][1]["exit_code"] == 4
    assert "[1] said" in outcome.err


# --- how it ends


def test_the_first_failure_ends_the_job_and_gives_its_exit_code(weft: Run) -> None:
    outcome = weft("run", "-n", 3, "--", "sh", "-c", "test $WEFT_RANK = 1 && exit 7; exec sleep 300")
    assert outcome.code == 7
    assert outcome.err == "weft: error: rank 1 failed first: exit code 7; the others were stopped\n"


def test_a_rank_killed_by_a_signal_is_told_from_one_that_exits(weft: Run) -> None:
    outcome = weft("run", "-n", 1, "--", "sh", "-c", "kill -SEGV $$")
    assert (outcome.code, outcome.err) == (139, "weft: error: rank 0 failed first: killed by SIGSEGV\n")
    outcome = weft("run", "-n", 1, "--", "sh", "-c", "exit 139")
    assert (outcome.code, outcome.err) == (139, "weft: error: rank 0 failed first: exit code 139\n")


def test_what_a_rank_said_before_it_failed_is_shown(weft: Run) -> None:
    Path("fail.py").write_text("print('last words', end='')\nraise SystemExit('reason')")
    outcome = weft("run", "-n", 1, "fail.py")
    assert outcome.code == 1
    assert outcome.out == "[0] last words\n"
    assert outcome.err.startswith("[0] reason\nweft: error: rank 0 failed first: exit code 1")


def test_a_rank_that_is_killed_takes_the_others_along(tmp_path: Path, started: list[Started]) -> None:
    started.append(job := Started(tmp_path, 3))
    os.kill(job.rank_pids[2], signal.SIGKILL)
    code, err = job.end()
    assert (code, err) == (
        137,
        "weft: error: rank 2 failed first: killed by SIGKILL; the others were stopped\n",
    )
    assert_gone(job.pids)


def test_ranks_that_will_not_end_are_killed(tmp_path: Path, started: list[Started]) -> None:
    started.append(job := Started(tmp_path, 2, "SIGTERM", "SIGINT"))
    os.kill(job.rank_pids[0], signal.SIGKILL)
    assert job.end()[0] == 137
    assert_gone(job.pids)


def test_what_a_rank_started_ends_with_the_job(weft: Run) -> None:
    outcome = weft("run", "-n", 2, "--", "sh", "-c", "sleep 300 & echo $!")
    assert outcome.code == 0
    assert_gone([int(line.split()[1]) for line in outcome.out.splitlines()])


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (signal.SIGINT, 130, "weft: interrupted\n"),
        (signal.SIGTERM, 143, "weft: stopped by SIGTERM\n"),
        (signal.SIGHUP, 129, "weft: stopped by SIGHUP\n"),
    ],
)
def test_a_signal_reaches_the_ranks_and_ends_the_job(
    tmp_path: Path, started: list[Started], number: int, code: int, text: str
) -> None:
    started.append(job := Started(tmp_path, 2))
    job.process.send_signal(number)
    found, err = job.end()
    assert found == code
    assert err.splitlines(keepends=True)[-1] == text
    assert_gone(job.pids)


def test_a_second_interrupt_kills_at_once(tmp_path: Path, started: list[Started]) -> None:
    started.append(job := Started(tmp_path, 2, "SIGINT"))
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    job.process.send_signal(signal.SIGINT)
    assert job.end() == (130, "weft: interrupted\n")
    assert_gone(job.pids)


def test_an_interrupt_is_heard_while_nobody_reads_the_output() -> None:
    command = [*HEARING, WEFT, "run", "-n", "1", "--", "yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[0] y\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_a_launcher_that_is_killed_leaves_nothing_behind(tmp_path: Path, started: list[Started]) -> None:
    started.append(job := Started(tmp_path, 3, "SIGTERM", "SIGINT", "SIGHUP"))
    children = children_of(job.process.pid)
    job.process.kill()
    assert job.end()[0] == -signal.SIGKILL
    assert_gone([*job.pids, *children])  # the guard is one of these


def test_ranks_die_with_the_launcher_even_if_its_guard_is_gone(
    tmp_path: Path, started: list[Started]
) -> None:
    started.append(job := Started(tmp_path, 2, "SIGTERM", "SIGINT", "SIGHUP"))
    ranks = list(job.rank_pids.values())
    (guard,) = set(children_of(job.process.pid)) - set(ranks)
    os.kill(guard, signal.SIGKILL)
    job.process.kill()
    assert_gone(ranks)
    for pid in set(job.pids) - set(ranks):  # what the ranks had started is the guard's to end
        os.kill(pid, signal.SIGKILL)


def test_a_job_ends_as_usual_though_its_guard_is_gone(tmp_path: Path, started: list[Started]) -> None:
    started.append(job := Started(tmp_path, 2))
    (guard,) = set(children_of(job.process.pid)) - set(job.rank_pids.values())
    os.kill(guard, signal.SIGKILL)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == (143, "weft: stopped by SIGTERM\n")
    assert_gone(job.pids)


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_nothing_is_left_open_in_the_launcher(weft: Run) -> None:
    weft("run", "-n", 1, "--", "true")
    before = open_files()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert weft("run", "-n", 3, "--", "sh", "-c", "exit $WEFT_RANK").code in (1, 2)
    assert open_files() == before
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


EXITS = "import os, sys; rank = int(os.environ['WEFT_RANK']); sys.exit({})"


def test_ranks_that_all_failed_by_themselves_were_not_stopped(weft: Run) -> None:
    command = ["--", sys.executable, "-c", EXITS.format("3")]
    outcome = weft("run", "--keep-going", "-n", 3, *command)
    assert outcome.code == 3
    failed, _, others = outcome.err.strip().partition("; ")
    assert failed.endswith("failed first: exit code 3")
    assert others in ("ranks 0, 1 failed too", "ranks 0, 2 failed too", "ranks 1, 2 failed too")


def test_ranks_that_ended_well_before_another_failed_were_not_stopped(weft: Run) -> None:
    late = "import os, sys, time; time.sleep(2 * (os.environ['WEFT_RANK'] == '1')); "
    code = late + "sys.exit(7 * (os.environ['WEFT_RANK'] == '1'))"
    outcome = weft("run", "-n", 3, "--", sys.executable, "-c", code)
    assert outcome.err == "weft: error: rank 1 failed first: exit code 7; the others ended well\n"
