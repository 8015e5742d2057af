"""``weft bench`` with real jobs: every contestant computes the right thing, and nothing is left behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.jobs import WEFT
from support.measured import measure_within

from weft.bench.bench_session import BenchSession
from weft.bench.bound import copy_speed, memory_limit, topology_limit
from weft.bench.measure import BenchEffort, BenchRow, Series, measure
from weft.bench.peers import PEERS, find_entry
from weft.bench.peers.peer import JobPlace
from weft.bench.task import COLLECTIVES, BenchTask
from weft.cli import main
from weft.cli.bench_table import BenchTable
from weft.errors import InputError
from weft.topology import load_topology

SMALL = ("-b", "4K", "-e", "64K", "-f", "16", "-n", "2", "-w", "1", "-r", "2")
LONG = ("-b", "1M", "-e", "1M", "-r", "10000", "-n", "20")
TYPES_AND_OPS = [("float16", "sum"), ("bfloat16", "max"), ("int64", "prod"), ("float64", "min")]
SETTINGS = {
    "memory": "private",
    "transport": "auto",
    "topology": None,
    "algorithm": None,
    "plan": None,
    "schedule": None,
}
MARK = "WEFT_TEST_MARK"


def bench(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WEFT), "bench", *words],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **variables},
    )


def document(*words: str) -> dict[str, Any]:
    done = bench(*SMALL, "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def find_missing(name: str) -> str | None:
    """What a peer says that cannot run here; None if it can."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        try:
            find_entry(name).start(JobPlace(2, folder, resources))
        except InputError as error:
            return str(error)
    return None


def assert_right(found: dict[str, Any], names: set[str], rows: int = 2) -> None:
    assert set(found["versions"]) == names
    assert len(found["rows"]) == rows
    assert_rows_right(found["rows"], names)


def assert_rows_right(rows: list[dict[str, Any]], names: set[str]) -> None:
    for row in rows:
        assert set(row["contestants"]) == names
        assert set(row["ratios"]) == names - {"weft"}
        for one in row["contestants"].values():
            for place in ("in", "out"):
                if place in one:
                    assert one[place]["wrong"] == 0
                    assert len(one[place]["seconds"]) == len(one[place]["cpu_seconds"]) == 2
                    assert one[place]["fastest_seconds"] <= one[place]["median_seconds"]
        assert row["contestants"]["weft"]["digest"]


def test_every_peer_computes_every_collective_type_and_op_exactly() -> None:
    """One job of each peer has all of them, one after the other, because starting the jobs takes longest."""
    common = [BenchTask(collective, "float32", "sum", 3, 3000) for collective in COLLECTIVES]
    others = [BenchTask("all_reduce", dtype, op, 3, 3000) for dtype, op in TYPES_AND_OPS]
    effort, places = BenchEffort(rounds=2, iterations=2, warmups=1), ("in", "out")
    with BenchSession(60.0) as session:
        jobs = [session.start(find_entry(name), 3, SETTINGS) for name in ("weft", "gloo", "mpi")]
        rows = [row.to_dict() for row in measure(jobs, common, effort, places, memory_limit)]
        # Open MPI has no bfloat16.
        rows += [row.to_dict() for row in measure(jobs[:2], others, effort, places, memory_limit)]
    assert [row["collective"] for row in rows[: len(common)]] == list(COLLECTIVES)
    assert_rows_right(rows[: len(common)], {"weft", "gloo", "mpi"})
    assert_rows_right(rows[len(common) :], {"weft", "gloo"})


@pytest.mark.parametrize(
    "collective",
    [
        "all_reduce",
        *(pytest.param(name, marks=pytest.mark.slow) for name in COLLECTIVES if name != "all_reduce"),
    ],
)
def test_the_command_measures_every_collective_beside_peers(collective: str) -> None:
    found = document("-R", "3", "--collective", collective, "--against", "gloo,mpi")
    assert_right(found, {"weft", "gloo", "mpi"})
    assert found["versions"]["mpi"]["library"].startswith("Open MPI v5")


@pytest.mark.parametrize("name", sorted(set(PEERS) - {"gloo", "mpi"}))
def test_a_peer_that_weft_does_not_install_computes_exactly_or_says_how_to_install_it(name: str) -> None:
    missing = find_missing(name)
    if missing is None or os.environ.get(f"WEFT_{name.upper()}"):  # make peers has named an installation
        assert_right(document("-R", "2", "--against", name), {"weft", name})
        return
    done = bench(*SMALL, "-R", "2", "--against", name)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"weft: error: {missing}\n")
    assert "install" in missing


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "op"), TYPES_AND_OPS)
def test_all_types_and_ops_are_exact(dtype: str, op: str) -> None:
    assert_right(document("-R", "2", "-d", dtype, "-o", op, "--against", "gloo"), {"weft", "gloo"})


@pytest.mark.parametrize(
    "words",
    [
        ("--memory", "shared"),
        ("--transport", "tcp", "--algorithm", "ring", "--topology", "ring:3@bw=1GB/s"),
        pytest.param(("--place", "in"), marks=pytest.mark.slow),
        pytest.param(("--topology", "fullmesh:3"), marks=pytest.mark.slow),
    ],
    ids=lambda words: words[0],
)
def test_weft_runs_as_it_is_told(words: tuple[str, ...]) -> None:
    found = document("-R", "3", *words)
    assert_right(found, {"weft"})
    one = found["rows"][0]["contestants"]["weft"]
    assert ("out" in one) == ("--place" not in words)
    if "ring" in words:
        assert one["algorithm"] == "ring"
        assert found["rows"][0]["bound"]["kind"].startswith("bandwidth")


def test_one_rank_alone_is_measured_too() -> None:
    found = bench(*SMALL, "-R", "1")
    assert (found.returncode, found.stderr) == (0, "")
    assert "among 1 rank on" in found.stdout


def test_a_plan_is_followed(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.weft")
    subprocess.run([str(WEFT), "plan", "ring:3", "-o", path], check=True, capture_output=True, timeout=60)
    assert_right(document("-R", "3", "--plan", path), {"weft"})


def test_the_table_has_a_line_for_each_size_and_a_column_for_each_peer() -> None:
    done = bench(*SMALL, "-R", "2", "--against", "gloo")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [(line[0], line[1]) for line in lines] == [("4096", "1024"), ("65536", "16384")]
    head = next(line.split() for line in done.stdout.splitlines() if "redop" in line)
    assert head[-1] == "gloo"
    assert all(line[7] == line[11] == "0" for line in lines)  # #wrong
    assert all(float(line[-1].removeprefix("~")) > 0 for line in lines)


def test_flags_of_nccl_tests_mean_what_they_mean_there() -> None:
    found = document("-g", "3", "-d", "half", "-c", "0")
    assert found["ranks"] == 3
    assert {row["dtype"] for row in found["rows"]} == {"float16"}
    assert {row["contestants"]["weft"]["in"]["wrong"] for row in found["rows"]} == {None}
    assert all(row["contestants"]["weft"]["digest"] for row in found["rows"])


@pytest.mark.parametrize(("slowest", "mark"), [(1.9, ""), (50.0, "~")])
def test_a_ratio_is_marked_where_rounds_differ_too_much(
    slowest: float, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = BenchTask("all_reduce", "float32", "sum", 2, 1024)
    row = BenchRow(task, None, {"weft": {}, "gloo": {}})
    row.series["weft"] = {"in": Series(1, 1, 0, seconds=[1.0, 1.0, 1.0], cpu_seconds=[1.0])}
    row.series["gloo"] = {"in": Series(1, 1, 0, seconds=[1.0, 3.0, 1.0 + slowest], cpu_seconds=[1.0])}
    jobs = [SimpleNamespace(name=name, versions={}) for name in row.series]
    given = {"memory": "private", "transport": "auto", "rounds": 3, "algorithm": None}
    table = BenchTable(given, jobs, [task])
    table.add(row)
    table.end([row])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-1].startswith(mark)
    assert lines[0].split()[-1].startswith("~") == bool(mark)
    assert any("the ratio says little" in line for line in lines) == bool(mark)
    assert row.to_dict()["unsteady"] == (["gloo"] if mark else [])
    assert row.to_dict()["contestants"]["gloo"]["in"]["spread"] == max(slowest, 2) / min(3, 1 + slowest)


def test_one_round_has_no_spread_and_no_steady_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    task = BenchTask("all_reduce", "float32", "sum", 2, 1024)
    row = BenchRow(task, None, {"weft": {}, "gloo": {}})
    row.series = {name: {"in": Series(1, 1, 0, seconds=[1.0], cpu_seconds=[1.0])} for name in row.ran}
    jobs = [SimpleNamespace(name=name, versions={}) for name in row.series]
    given = {"memory": "private", "transport": "auto", "rounds": 1, "algorithm": None}
    table = BenchTable(given, jobs, [task])
    table.begin()
    table.add(row)
    table.end([row])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("median of 1 round")
    (line,) = (line.split() for line in lines if not line.startswith("#"))
    assert line[-5:] == ["-", "-", "-", "-", "~1.00"]  # spread, bound, algorithm, digest, ratio
    assert any(line.startswith("# ~: one round has no spread") for line in lines)
    document = row.to_dict()
    assert document["contestants"]["gloo"]["in"]["spread"] is None
    assert document["unsteady"] == ["gloo"]


@pytest.mark.parametrize(
    "launcher",
    [
        (str(WEFT), "run", "-n", "2", "--"),
        (sys.prefix + "/bin/mpirun", "--map-by", ":OVERSUBSCRIBE", "-n", "2"),
    ],
    ids=["weft run", "mpirun"],
)
def test_inside_a_job_rank_0_prints_what_all_ranks_measured(launcher: tuple[str, ...]) -> None:
    root = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
    job = {"WEFT_SECRET": secrets.token_hex(32), "WEFT_PORT": "29733"}
    done = subprocess.run(
        [*launcher, str(WEFT), "bench", *SMALL],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **root, **job},
    )
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
    rows = [line.split() for line in lines if line and line[0] == " "]
    assert [row[0] for row in rows] == ["4096", "65536"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "nccl"), "no such peer; known: gloo, mpi"),
        (("--against", "gloo,gloo"), "gloo is there twice"),
        (("--against", "mpi", "-d", "bfloat16"), "mpi has no type bfloat16"),
        (("-b", "2M", "-e", "1M"), "there is no size to measure"),
        (("-n", "0"), "give a whole number from 1, or auto"),
        (("--collective", "all_gather", "--place", "in"), "all_gather has only out"),
        (("-c", "all_gather"), "a collective is --collective"),
        (("-d", "floaty"), "float64, int32, int64, half, float, double"),
        (("-R", "3", "--topology", "ring:4"), "this job has 3"),
        (("--algorithm", "rign"), "ring"),
    ],
)
def test_bad_use_is_told_in_one_line(
    words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_peers_are_refused_inside_a_job() -> None:
    done = bench("--against", "gloo", WEFT_RANK="0", WEFT_SIZE="1")
    assert done.returncode == 2
    assert "run it outside of a job" in done.stderr


def test_bounds_are_what_the_topology_or_the_memory_allows() -> None:
    task = BenchTask("all_reduce", "float32", "sum", 4, 1 << 20)
    ring = topology_limit(task, load_topology("ring:4@bw=1GB/s"))
    assert ring.seconds == pytest.approx(6 * task.size_bytes / 8e9)
    assert memory_limit(BenchTask("all_reduce", "float32", "sum", 4, 1024)) is None
    assert copy_speed(1 << 20, 2) > 0


@pytest.fixture
def mark() -> Iterator[str]:
    """A value in the environment of everything that a test starts; what is left of it is killed."""
    mark = secrets.token_hex(16)
    yield mark
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str, variable: str = "WEFT_BENCH_PEER") -> dict[int, str]:
    """Processes that were started with this mark, and what a variable of theirs says."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "environ").read_bytes().decode("utf-8", "replace")
            except OSError:  # it has ended meanwhile
                continue
            if f"{MARK}={mark}" in text:
                found[int(folder.name)] = text.partition(f"{variable}=")[2].partition("\0")[0]
    return found


def begin(mark: str, *words: str) -> subprocess.Popen[str]:
    """Start a long measurement, and return once it is under way."""
    process = subprocess.Popen(
        [str(WEFT), "bench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark, "PYTHONUNBUFFERED": "1"},
        # Whoever runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "(elements)" in line:
            break
    return process


def assert_nothing_is_left(mark: str) -> None:
    deadline = time.monotonic() + 60
    while left := marked(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_contestants_that_wait_for_their_turn_use_no_processor(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, mark)
    with BenchSession(60.0) as stage:
        for name in ("weft", "gloo", "mpi"):
            stage.start(find_entry(name), 2, SETTINGS)
        workers = [pid for pid, name in marked(mark).items() if name]
        assert len(workers) >= 6

        def wait() -> float:
            before = [processor_seconds(pid) for pid in workers]
            time.sleep(1)
            return sum(processor_seconds(pid) - start for pid, start in zip(workers, before, strict=True))

        # Those that were slow to start may still have something to do the first time.
        measure_within(wait, lambda used: [f"{used:.2f} s of processor time"] if used >= 0.1 else [])


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_nothing_is_left_when_it_is_stopped(mark: str, number: signal.Signals) -> None:
    process = begin(mark, "-R", "2", "--against", "gloo,mpi", *LONG)
    folder = Path(max(marked(mark, "WEFT_BENCH_SOCKET").values())).parent
    assert folder.is_dir()
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert "Traceback" not in said
    assert_nothing_is_left(mark)
    assert not folder.exists()


@pytest.mark.parametrize("victim", ["weft", pytest.param("gloo", marks=pytest.mark.slow), "mpi"])
def test_a_worker_that_dies_is_told_and_ends_everything(mark: str, victim: str) -> None:
    process = begin(mark, "-R", "2", "--against", "gloo,mpi", *LONG)
    workers = [pid for pid, name in marked(mark).items() if name == victim]
    os.kill(max(workers), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert said.startswith(f"weft: error: {victim}: rank ")
    assert_nothing_is_left(mark)


@pytest.mark.parametrize("name", sorted(set(PEERS) - {"gloo", "mpi"}))
def test_a_peer_that_is_not_installed_says_how_to_get_it(name: str) -> None:
    nowhere = {"PATH": "/nowhere", "WEFT_MPICH": "/nowhere", "WEFT_ONECCL": "/nowhere"}
    done = bench("--against", name, **nowhere)
    assert done.returncode == 2
    assert f"--against {name}: " in done.stderr
    assert "install" in done.stderr
