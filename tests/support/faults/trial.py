"""Runs one case: starts the ranks, waits for what they report, thaws whom it froze, looks what is left."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from support.engines import AS_ROOT, MPIRUN
from support.faults.case import Case, Fault, Setting
from support.faults.nursery import Nursery
from support.faults.outcome import Facts, Outcome, read_flights, read_reports
from support.hosts import Network
from support.ports import free_port
from support.rank_pool import PooledRank
from weft.runtime.bootstrap.meeting_point import reserve_port

LONGEST_S = 75.0
STARTING_S = 40.0
"""For the processes themselves, before the job begins: on a busy machine one takes many seconds."""
EXITING_S = 60.0
"""Half a second of processor time is needed to unload torch, by each rank, on a machine that may be busy."""
_POLL_S = 0.02


def run(
    setting: Setting,
    fault: Fault,
    nursery: Nursery | None = None,
    *,
    network: Network | None = None,
    longest: float = LONGEST_S,
) -> Outcome:
    """Run one case.

    Parameters
    ----------
    nursery
        Starts the ranks; by default one is made for this case alone. Not used under ``mpirun``.
    network
        For the way ``hosts``: ranks are spread evenly over its hosts.
    longest
        Seconds, from when all processes have started, after which whatever is left of the job is killed.
    """
    with case_folder() as folder, ExitStack() as stack:
        case = Case(setting, fault, stack.enter_context(job_variables(folder, setting)))
        case.save(folder)
        if setting.way == "mpi":
            return _run_mpi(case, folder, longest)
        if nursery is None:
            nursery = stack.enter_context(Nursery(torch=setting.way in ("torch", "group")))
        return _run_ranks(case, folder, nursery, network, longest)


@contextmanager
def case_folder() -> Iterator[Path]:
    """A folder for one case, with a scratch folder in it where nothing may be left."""
    folder = Path(tempfile.mkdtemp(prefix="weft-fault-"))
    try:
        (folder / "scratch").mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def job_variables(folder: Path, setting: Setting) -> Iterator[dict[str, str]]:
    """What ranks need to find each other, at a port that nobody else gets as long as the block runs."""
    holder, port = reserve_port("127.0.0.1")
    scratch = str(folder / "scratch")
    store = free_port()
    variables = {
        "WEFT_SIZE": str(setting.ranks),
        "WEFT_ADDRESS": "127.0.0.1",
        "WEFT_PORT": str(port),
        "WEFT_JOB": folder.name,
        "WEFT_SECRET": secrets.token_hex(32),
        "WEFT_TEST_STORE_PORT": str(store),
        "WEFT_FLIGHT_DIR": str(folder),
        "TMPDIR": scratch,
        "XDG_RUNTIME_DIR": scratch,
    }
    with holder:
        yield variables


def run_cycles(setting: Setting, count: int, nursery: Nursery) -> dict[int, list[Facts]]:
    """Let the last rank of a job die so many times, a new process each time; what the others report."""
    last = setting.ranks - 1
    with case_folder() as folder, job_variables(folder, setting) as variables:
        Case(setting, replace(Fault.kill(last), count=count), variables).save(folder)

        def start(rank: int) -> PooledRank:
            order = {**variables, "WEFT_RANK": str(rank), "WEFT_FLIGHT_DIR": ""}
            return nursery.start_program(folder, rank, program="cycles", variables=order)

        survivors = [start(rank) for rank in range(last)]
        try:
            for _ in range(count):
                if not start(last).ends_within(LONGEST_S):
                    break
            for rank in survivors:
                rank.ends_within(LONGEST_S)
        finally:
            for rank in survivors:
                rank.send_signal(signal.SIGKILL)
        return read_reports(folder, last)


def _run_ranks(
    case: Case, folder: Path, nursery: Nursery, network: Network | None, longest: float
) -> Outcome:
    ranks: list[PooledRank] = []
    try:
        for rank in range(case.setting.ranks):
            variables = {**case.variables, "WEFT_RANK": str(rank)}
            options = {}
            if network is not None:
                host = rank * network.hosts // case.setting.ranks
                variables |= {"WEFT_ADDRESS": network.address(0), "WEFT_INTERFACE": network.address(host)}
                options["network"] = network.host(host)
            ranks.append(nursery.start_program(folder, rank, variables=variables, **options))
        numbers = range(case.setting.ranks)
        _await(
            lambda: all(_reported(folder, number, "started") is not None for number in numbers),
            time.monotonic() + STARTING_S,
        )
        _see_through(case, folder, ranks, time.monotonic() + longest)
    finally:
        codes = {number: rank.returncode for number, rank in enumerate(ranks)}
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
        for rank in ranks:
            rank.ends_within(10)
    reports = read_reports(folder, case.setting.ranks)
    output = "".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("rank-*.txt")))
    flights = read_flights(folder)
    return Outcome(case, reports, codes, leftovers(folder), output, flights=flights)


def _see_through(case: Case, folder: Path, ranks: list[PooledRank], deadline: float) -> None:
    """Wait for all ranks to end, but for one that is frozen for good; thaw it if it is not."""
    fault = case.fault
    if fault.action == "pause":
        _await(lambda: _reported(folder, fault.rank, "struck") is not None, deadline)
        time.sleep(fault.seconds)
        ranks[fault.rank].send_signal(signal.SIGCONT)
    if fault.action == "freeze" and fault.thaws:
        numbers = [number for number in range(case.setting.ranks) if number != fault.rank]
        key = "closed" if case.setting.closes_first or fault.phase == "close" else "waits"
        _await(lambda: all(_reported(folder, number, key) is not None for number in numbers), deadline)
        # Where nobody waits for it, as in close, the others may be ahead of the fault.
        _await(
            lambda: ranks[fault.rank].poll() is not None or _state_of(ranks[fault.rank].pid) in "TZ", deadline
        )
        ranks[fault.rank].send_signal(signal.SIGCONT)
        (folder / "thawed").touch()
    frozen = fault.rank if fault.action == "freeze" and not fault.thaws else -1
    for number, rank in enumerate(ranks):
        if number != frozen and not rank.ends_within(max(0.0, deadline - time.monotonic())):
            # A rank that has left the job and said so has only its interpreter to end.
            rank.ends_within(EXITING_S if _reported(folder, number, "left") is not None else 0.0)


def _reported(folder: Path, rank: int, name: str) -> Facts | None:
    path = folder / f"rank-{rank}.jsonl"
    if not path.exists() or f'"{name}"' not in path.read_text("utf-8"):
        return None
    found = read_reports(folder, rank + 1)[rank]
    return next((facts for facts in found if name in facts), None)


def _await(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _run_mpi(case: Case, folder: Path, longest: float) -> Outcome:
    """Under ``mpirun``, which ends the job when a rank is lost: measured is when all of it is gone."""
    size, deadline = case.setting.ranks, time.monotonic() + longest
    python = [sys.executable, "-m", "mpi4py", "-m", "support.faults.rank"]
    command = [MPIRUN, "--oversubscribe", "-n", str(size), *python, folder]
    tests = str(Path(__file__).resolve().parents[2])
    with (folder / "mpirun.txt").open("w") as output:
        launcher = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, **AS_ROOT, **case.variables, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1"},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    gone_after = None
    try:
        _await(
            lambda: _reported(folder, case.fault.rank, "struck") is not None or launcher.poll() is not None,
            deadline,
        )
        struck = _reported(folder, case.fault.rank, "struck")
        pids = [_reported(folder, rank, "pid") for rank in range(size)]
        watched = [facts["pid"] for facts in pids if facts is not None]
        if _await(lambda: not any(_is_running(pid) for pid in watched), deadline) and struck is not None:
            gone_after = round(time.monotonic() - struck["struck"], 3)
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(max(0.0, deadline - time.monotonic()))
    finally:
        code = launcher.poll()
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
    text = (folder / "mpirun.txt").read_text("utf-8", "replace")
    reports = read_reports(folder, size)
    return Outcome(case, reports, dict.fromkeys(range(size), code), leftovers(folder), text, gone_after)


def _is_running(pid: int) -> bool:
    return _state_of(pid) != "Z"


def _state_of(pid: int) -> str:
    """The kernel's letter for what a process does: T if it is stopped, Z if it has ended or is gone."""
    try:
        return Path("/proc", str(pid), "stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def leftovers(folder: Path) -> list[str]:
    """Processes that work in the folder of a case, and files in its scratch folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder) and _is_running(int(process.name)):
                found.append(f"process {process.name} was left")
    found += [f"{path} was left" for path in sorted((folder / "scratch").iterdir())]
    return found
