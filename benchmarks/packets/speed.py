"""What it costs to simulate all-reduces packet by packet, and how that compares.

MultiTree on a 4x4 torus beside the cycle-level simulator of its authors, taking turns; 64 MiB on an 8x8
torus, packet by packet and in units of messages; three sizes, for how cost grows with packets. CPU seconds of
ours include making the tables, save where the two details are compared; of theirs, the whole process.

    python benchmarks/packets/speed.py                  # ours alone, into results/speed.json beside this file
    python benchmarks/packets/speed.py --peer FOLDER    # beside theirs, built there, with a v/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from weft.packets import Rules, make_tables, simulate_tables
from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, RULES, PaperMachine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

REPEATS = 3
PEER_KIB = 512
LARGE = 64 << 20
GROWTH = (4 << 20, 16 << 20, 64 << 20)


def ours(machine: PaperMachine, algorithm: str, size_bytes: int, detail: str = "packet") -> dict[str, Any]:
    """CPU seconds and cycles of one run."""
    schedule = machine.schedule(algorithm)
    rules = RULES.get(algorithm, Rules())
    began = time.process_time()
    tables = make_tables(schedule, size_bytes, ports=machine.ports(algorithm), max_work=None)
    found = simulate_tables(tables, rules=rules, detail=detail, max_work=None)
    return {
        "cpu_seconds": time.process_time() - began,
        "running_seconds": found.cpu_seconds,
        "total_cycles": found.total_cycles,
        "packets": found.packets,
        "units": found.units,
    }


def theirs(folder: Path, kib: int) -> dict[str, Any]:
    """The same in the authors' simulator, by the options of its own scripts."""
    source = folder / "src"
    options = [
        *(
            "--num-hmcs",
            "16",
            "--run-name",
            "peer",
            "--allreduce",
            "multitree",
            "--kary",
            "5",
            "--radix",
            "4",
        ),
        *("--booksim-config", str(source / "booksim2/runfiles/ctorus44multitree.cfg")),
        *("--booksim-network", "torus", "--message-buffer-size", "32", "--message-size", "256"),
        *("--sub-message-size", "256", "--strict-schedule", "--prioritize-schedule", "--estimate-lockstep"),
        *("--only-allreduce", "--synthetic-data-size", str(kib * 256)),
    ]
    environment = os.environ | {"SIMHOME": str(folder), "BOOKSIMSRC": str(source / "booksim2/src")}
    with tempfile.TemporaryDirectory() as results:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [folder / "v/bin/python", "simulate.py", *options, "--outdir", results],
            cwd=source,
            env=environment,
            check=True,
            capture_output=True,
            timeout=1800,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        (written,) = Path(results).glob("*.json")
        total = json.loads(written.read_text())["results"]["performance"]["total"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": spent, "total_cycles": total}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and each of the CPU seconds, with what is the same in all runs."""
    each = [round(run["cpu_seconds"], 4) for run in runs]
    return runs[-1] | {"cpu_seconds": statistics.median(each), "cpu_seconds_each": each}


def beside_peer(folder: Path | None) -> dict[str, Any]:
    """Take turns on a 4x4 torus."""
    machine = PaperMachine("torus", 16)
    mine, peers = [], []
    for _ in range(REPEATS):
        mine.append(ours(machine, MULTITREE, PEER_KIB << 10))
        if folder is not None:
            peers.append(theirs(folder, PEER_KIB))
    found: dict[str, Any] = {
        "kind": "beside the authors' simulator",
        "topology": "torus:4x4",
        "size_bytes": PEER_KIB << 10,
        "ours": summary(mine),
    }
    if peers:
        found["theirs"] = summary(peers)
        found["times_as_fast"] = found["theirs"]["cpu_seconds"] / found["ours"]["cpu_seconds"]
    print(json.dumps(found), flush=True)
    return found


def details(algorithm: str) -> dict[str, Any]:
    """64 MiB on an 8x8 torus in both details, taking turns."""
    machine = PaperMachine("torus", 64)
    runs: dict[str, list[dict[str, Any]]] = {"packet": [], "message": []}
    for _ in range(REPEATS):
        for detail, done in runs.items():
            done.append(ours(machine, algorithm, LARGE, detail))
    found: dict[str, Any] = {
        "kind": "packets and messages",
        "topology": "torus:8x8",
        "size_bytes": LARGE,
        "algorithm": algorithm,
    }
    found |= {detail: summary(done) for detail, done in runs.items()}
    medians = {
        detail: statistics.median(run["running_seconds"] for run in done) for detail, done in runs.items()
    }
    found["share_of_time"] = medians["message"] / medians["packet"]
    found["deviation"] = found["message"]["total_cycles"] / found["packet"]["total_cycles"] - 1
    print(json.dumps(found), flush=True)
    return found


def growth() -> list[dict[str, Any]]:
    """CPU seconds over packets."""
    machine = PaperMachine("torus", 64)
    rows = []
    for size in GROWTH:
        run = summary([ours(machine, MULTITREE_MSG, size) for _ in range(REPEATS)])
        cost = 1e9 * run["cpu_seconds"] / run["packets"]
        case = {"kind": "growth", "topology": "torus:8x8", "size_bytes": size}
        rows.append({**case, **run, "ns_per_packet": cost})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", type=Path)
    here = Path(__file__).parent / "results" / "speed.json"
    parser.add_argument("--output", type=Path, default=here)
    chosen = parser.parse_args()
    started = result_files.start()
    rows = [beside_peer(chosen.peer), *(details(name) for name in (MULTITREE, MULTITREE_MSG)), *growth()]
    result_files.write(chosen.output, started, parameters={"repeats": REPEATS}, results=rows)


if __name__ == "__main__":
    main()
