"""Cost of synthesising, verifying and simulating the ring all-reduce as the ring grows.

The table of transfers grows with the square of the ranks, so the cost per transfer shows whether a stage is
linear; the share in user mode is given beside it, because a system may charge much for each page of memory.
Every measurement is a fresh process of ``ring_stage.py``; with ``--peer`` another simulator of the same
1024-rank case runs right after ours in every repetition, so that both meet the same machine. Our processes
find their modules compiled, as those of an installed package are, and numpy's library of linear algebra,
which nothing here calls, gets one thread instead of one for each core: others would wait for work, and CPU
seconds count that.

    python benchmarks/simulation/ring_scaling.py
    python benchmarks/simulation/ring_scaling.py --peer "simulator --its --arguments" --peer-name "its name"
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files
from ring_stage import SIZE

SPEC: Final = "ring:{ranks}@bw=50GiB/s,lat=500ns"
STAGE_SCRIPT: Final = Path(__file__).with_name("ring_stage.py")
ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
STAGES: Final = ("synthesis", "verification", "simulation")
PEER_RANKS: Final = 1024
PEER_TIME: Final = r"finished, (\d+) cycles"
"""How the default peer tells a rank's simulated time, in nanoseconds; the last rank to finish counts."""


@dataclass(frozen=True, slots=True)
class Run:
    """One process: its own cost, and what it said."""

    cpu_seconds: float
    user_seconds: float
    peak_mib: float
    output: str
    problem: str | None

    def cost(self) -> dict[str, float]:
        """What the process took, as it is kept among the samples."""
        return {"process": self.cpu_seconds, "process_user": self.user_seconds, "peak_mib": self.peak_mib}


def main() -> None:
    """Measure, print a table, write the figures."""
    options = _parse()
    started = result_files.start()
    samples = measure(options)
    rings = [summarise(ranks, samples) for ranks in options.ranks]
    peer = compare_peer(options.peer_name, samples) if options.peer else None
    case = {"topology": SPEC, "size": SIZE, "collective": "all_reduce", "algorithm": "ring"}
    result_files.write(
        options.output,
        started,
        parameters={**case, "repetitions": options.repeat, "environment": ENVIRONMENT},
        results=[*rings, peer] if peer else rings,
        versions={"peer": options.peer_name} if peer else None,
    )
    print_tables(options.repeat, rings, peer)


def measure(options: argparse.Namespace) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Run everything the asked number of times, one after the other; keys are (stage or peer, ranks)."""
    samples: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as modules:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPYCACHEPREFIX": modules}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for stage in STAGES:  # not measured: compiles the modules
            run_process(stage_command(stage, min(options.ranks)), environment)
        for repetition in range(options.repeat):
            for ranks in options.ranks:
                for stage in STAGES:
                    run = run_process(stage_command(stage, ranks), environment)
                    said = {"problem": run.problem} if run.problem else json.loads(run.output)
                    samples[stage, ranks].append(said | run.cost())
                if options.peer and ranks == PEER_RANKS:
                    samples["peer", ranks].append(run_peer(options.peer, options.peer_time))
                print(f"repetition {repetition + 1} of {options.repeat}, {ranks} ranks", file=sys.stderr)
    return samples


def stage_command(stage: str, ranks: int) -> list[str]:
    """What runs one stage."""
    return [sys.executable, str(STAGE_SCRIPT), stage, SPEC.format(ranks=ranks)]


def run_peer(command: str, pattern: str) -> dict[str, Any]:
    """Run the peer once; without a simulated time in its output it did not simulate the case."""
    run = run_process(shlex.split(command))
    times = [int(match) for match in re.findall(pattern, run.output)]
    if run.problem or not times:
        sys.exit(f"the peer failed: {run.problem or f'nothing in its output matches {pattern!r}'}")
    return run.cost() | {"simulated_ns": max(times)}


def run_process(command: list[str], environment: dict[str, str] | None = None) -> Run:
    """Run a command in an empty folder, where it may leave logs; its CPU time is user and system together."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        # wait4 is RUSAGE_CHILDREN for one child, so that the peak is this one's, not the largest so far.
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        last = (err.read().decode(errors="replace").strip().splitlines() or [""])[-1]
        problem = f"exit code {child.returncode}: {last}" if child.returncode else None
        cpu = usage.ru_utime + usage.ru_stime
        return Run(cpu, usage.ru_utime, usage.ru_maxrss / 1024, out.read().decode(), problem)


def summarise(ranks: int, samples: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[str, Any]:
    """Put the repetitions of one ring together."""
    result: dict[str, Any] = {
        "kind": "weft",
        "ranks": ranks,
        "transfers": 2 * ranks * (ranks - 1),
        "stages": {},
    }
    for stage in STAGES:
        runs = samples[stage, ranks]
        problems = [run["problem"] for run in runs if "problem" in run]
        if problems:
            result["stages"][stage] = {"problem": problems[0]}
            continue
        cpu = spread([run["cpu_seconds"] for run in runs])
        user = spread([run["cpu_seconds"] - run["system_seconds"] for run in runs])
        result["stages"][stage] = {
            "cpu_seconds": cpu,
            "user_seconds": user,
            "ns_per_transfer": round(cpu["median"] * 1e9 / result["transfers"], 1),
            "user_ns_per_transfer": round(user["median"] * 1e9 / result["transfers"], 1),
            "process_cpu_seconds": spread([run["process"] for run in runs]),
            "process_peak_mib": round(max(run["peak_mib"] for run in runs)),
        }
        if stage == "simulation":
            result["simulated_ns"] = runs[0]["simulated_ns"]
    return result


def compare_peer(name: str, samples: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[str, Any]:
    """Compare the peer's process with ours, which starts Python, synthesises and simulates."""
    peer, ours = samples["peer", PEER_RANKS], samples["simulation", PEER_RANKS]
    result: dict[str, Any] = {
        "kind": "peer",
        "name": name,
        "ranks": PEER_RANKS,
        "process_cpu_seconds": spread([run["process"] for run in peer]),
        "process_peak_mib": round(max(run["peak_mib"] for run in peer)),
        "simulated_ns": peer[0]["simulated_ns"],
    }
    if not any("problem" in run for run in ours):
        pairs = list(zip(peer, ours, strict=True))
        result["peer_over_weft_process"] = spread([a["process"] / b["process"] for a, b in pairs])
        result["peer_over_weft_process_user"] = spread(
            [a["process_user"] / b["process_user"] for a, b in pairs]
        )
        result["peer_over_weft_simulation"] = spread([a["process"] / b["cpu_seconds"] for a, b in pairs])
        result["simulated_peer_over_weft"] = round(peer[0]["simulated_ns"] / ours[0]["simulated_ns"], 5)
    return result


def spread(values: list[float]) -> dict[str, float]:
    """Median and extremes, to the millisecond."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def show(values: dict[str, float]) -> str:
    """Write a spread in one line."""
    return f"{values['median']:.3f} ({values['min']:.3f}-{values['max']:.3f})"


def print_tables(repetitions: int, rings: list[dict[str, Any]], peer: dict[str, Any] | None) -> None:
    """Print what was measured, for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"ring all-reduce, {SIZE}, {repetitions} repetitions")
    for column in ("ranks", "stage", "CPU s (min-max)", "ns/transfer (user)", "process CPU s", "peak MiB"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for ring in rings:
        for name, stage in ring["stages"].items():
            if "problem" in stage:
                table.add_row(str(ring["ranks"]), name, "-", "-", "-", "-")
                continue
            cpu, whole = stage["cpu_seconds"], stage["process_cpu_seconds"]
            table.add_row(
                str(ring["ranks"]),
                name,
                show(cpu),
                f"{stage['ns_per_transfer']:.1f} ({stage['user_ns_per_transfer']:.1f})",
                f"{whole['median']:.3f}",
                str(stage["process_peak_mib"]),
            )
    if peer:
        cost = show(peer["process_cpu_seconds"])
        table.add_row(str(peer["ranks"]), peer["name"], "", "", cost, str(peer["process_peak_mib"]))
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)
    for ring in rings:
        problems = {name: stage["problem"] for name, stage in ring["stages"].items() if "problem" in stage}
        for name, problem in problems.items():
            console.print(f"{ring['ranks']} ranks, {name}: {problem}", markup=False)
    if peer and "simulated_peer_over_weft" in peer:
        console.print(f"peer/weft, whole process: {show(peer['peer_over_weft_process'])}")
        console.print(f"the same, user mode only: {show(peer['peer_over_weft_process_user'])}")
        console.print(f"simulated time, peer/weft: {peer['simulated_peer_over_weft']}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, PEER_RANKS, 4096])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--peer", help=f"a command that simulates the {PEER_RANKS}-rank case; use absolute paths"
    )
    parser.add_argument("--peer-name", default="peer", help="what to call it in the figures")
    parser.add_argument("--peer-time", default=PEER_TIME, help="finds its simulated nanoseconds: %(default)s")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    if options.peer and PEER_RANKS not in options.ranks:
        parser.error(f"--peer needs {PEER_RANKS} among --ranks")
    return options


if __name__ == "__main__":
    main()
