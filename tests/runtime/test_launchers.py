"""Jobs under real launchers, with nothing set by hand; what each leaves behind is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.jobs import finish
from support.ports import free_port

JOBS = Path(__file__).with_name("jobs")
BIN = Path(sys.executable).parent
TORCHRUN, MPIRUN = str(BIN / "torchrun"), str(BIN / "mpirun")
WORDS = ("WEFT_", "OMPI_", "PMI", "SLURM_")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir(mode=0o700)
    return folder


def variables(scratch: Path) -> dict[str, str]:
    """This process's environment without what launchers say, and a temporary directory of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(WORDS)}
    kept.pop("XDG_RUNTIME_DIR", None)
    return kept | {"TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}


def start(words: list[str], scratch: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        env=variables(scratch) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(outputs: list[tuple[int, str]], launcher: str, exchange: str) -> bool:
    """Whether all four ranks have done their work."""
    assert [code for code, _ in outputs] == [0] * len(outputs), outputs
    lines = {line for _, output in outputs for line in output.splitlines()}
    return lines >= {f"done {rank} {launcher} {exchange}" for rank in range(4)}


def weft_files(scratch: Path) -> list[Path]:
    return [path for path in scratch.rglob("*") if path.name.startswith("weft")]


@pytest.fixture
def script() -> str:
    return str(JOBS / "launchers_done.py")


def test_torchrun_on_one_machine(script: str, scratch: Path) -> None:
    job = start([TORCHRUN, "--nproc-per-node", "4", script], scratch)
    assert done(finish([job]), "torchrun", "FileExchange")
    assert weft_files(scratch) == []


def test_torchrun_on_two_nodes_hands_the_secret_over_in_its_store(script: str, scratch: Path) -> None:
    where = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    nodes = [
        start([TORCHRUN, "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2", *where, script], scratch)
        for node in range(2)
    ]
    assert done(finish(nodes), "torchrun", "StoreExchange")


def test_open_mpi_on_one_machine(script: str, scratch: Path) -> None:
    words = [MPIRUN, "--oversubscribe", "-n", "4", sys.executable, script]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # The daemons of Open MPI keep sockets in it, whose names must be short.
    job = start(words, scratch, **root, TMPDIR="/tmp", XDG_RUNTIME_DIR=str(scratch))
    assert done(finish([job]), "mpirun", "FileExchange")
    assert weft_files(scratch) == []


def ask_processes(*words: str) -> str:
    """What pgrep or pkill prints; without a sanitizer's library, in which pgrep may wait for ever."""
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables, timeout=60)
    assert done.returncode in {0, 1}, done.stderr  # 1: there is no such process
    return done.stdout


@pytest.mark.parametrize("launcher", ["weft run", "torchrun", "mpirun"])
def test_the_children_of_a_launcher_are_its_ranks_and_take_the_signal(
    launcher: str, tmp_path: Path, scratch: Path
) -> None:
    folder = tmp_path / "flights"
    folder.mkdir()
    words = {
        "weft run": [str(BIN / "weft"), "run", "-n", "2"],
        "torchrun": [TORCHRUN, "--nproc-per-node", "2"],
        "mpirun": [MPIRUN, "--oversubscribe", "-n", "2", sys.executable],
    }[launcher]
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": "/tmp"}
    more |= {"WEFT_FLIGHT_DIR": str(folder), "XDG_RUNTIME_DIR": str(scratch)}
    job = start([*words, str(JOBS / "launchers_signalled.py"), str(folder)], scratch, **more)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("ready*"))) < 2 and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.05)
    deadline += 60
    assert str(job.pid) in ask_processes("pgrep", "-f", "weft run|torchrun|prterun").split()
    children = ask_processes("pgrep", "-P", str(job.pid))
    ask_processes("pkill", "-USR2", "-P", str(job.pid))
    while len(list(folder.glob("flight-*.json"))) < 2 and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.05)
    left = ask_processes("pgrep", "-P", str(job.pid))
    (folder / "looked").touch()
    ((code, output),) = finish([job])
    assert code == 0, output
    assert len(list(folder.glob("flight-*.json"))) == 2
    if launcher == "weft run":  # whose other child must not die of the signal
        assert len(children.split()) == 3
        assert children == left


def test_what_mpich_says_is_enough_on_one_machine(script: str, scratch: Path) -> None:
    def said(rank: int) -> dict[str, str]:
        numbers = {"PMI_RANK": rank, "PMI_SIZE": 4, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": 4}
        return {name: str(value) for name, value in numbers.items()}

    ranks = [start([sys.executable, script], scratch, **said(rank)) for rank in range(4)]
    assert done(finish(ranks), "mpirun", "FileExchange")
    assert weft_files(scratch) == []


def test_a_secret_that_is_given_is_what_counts(script: str, scratch: Path) -> None:
    port = free_port(2)  # rank 0 listens beside torchrun, at the next one
    words = [TORCHRUN, "--nproc-per-node", "4", "--master-port", str(port), script]
    job = start(words, scratch, WEFT_SECRET="ab" * 32)
    assert done(finish([job]), "torchrun", "NoneType")


@pytest.mark.parametrize("backend", ["gloo", "weft"])
def test_weft_run_starts_scripts_that_were_written_for_torchrun(backend: str, scratch: Path) -> None:
    words = [sys.executable, "-m", "weft", "run", "-n", "2", str(JOBS / "launchers_for_torchrun.py")]
    ((code, output),) = finish([start(words, scratch, BACKEND=backend)], 120)
    assert code == 0, output
    assert {line[-6:] for line in output.splitlines()} >= {"done 0", "done 1"}
