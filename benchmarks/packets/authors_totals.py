"""Total cycles of our engine, packet by packet and flit by flit, beside the simulator of MultiTree's authors.

Their totals are those of `src/weft/papers/multitree/totals.csv`. Each is run packet by packet, flit by flit,
and flit by flit with the priority of earlier steps. Their scripts ask for that with MultiTree alone; other
algorithms have no third run of their own.

    python benchmarks/packets/authors_totals.py     # into results/authors_totals.json beside this file
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, PaperMachine, times
from weft.papers.multitree.reference import ALGORITHMS, authors_totals

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

RESULTS = Path(__file__).parent / "results" / "authors_totals.json"
DETAILS = {
    "packet": "packet by packet",
    "flit": "flit by flit",
    "flit_prioritised": "flit by flit, prioritised",
}
NETWORKS = {"fattree": "fat-tree", "bigraph": "BiGraph"}
FAR = 0.05
APART = 0.04


def compare(most_kib: int) -> list[dict[str, Any]]:
    """Run every total in all details."""
    machines: dict[tuple[str, int], PaperMachine] = {}
    rows = []
    for row in authors_totals():
        network, nodes, kib = row["network"], int(row["nodes"]), int(row["KiB"])
        machine = machines.setdefault((network, nodes), PaperMachine(network, nodes))
        for algorithm in ALGORITHMS:
            if not row[algorithm] or kib > most_kib:
                continue
            theirs = int(row[algorithm])
            began = time.process_time()
            cycles = {
                "packet": machine.run(algorithm, kib << 10).total_cycles,
                "flit": machine.run(algorithm, kib << 10, detail="flit").total_cycles,
            }
            cycles["flit_prioritised"] = cycles["flit"]
            if algorithm in (MULTITREE, MULTITREE_MSG):
                found = machine.run(algorithm, kib << 10, detail="flit", prioritised=True)
                cycles["flit_prioritised"] = found.total_cycles
            ours = {detail: times(algorithm) * count for detail, count in cycles.items()}
            rows.append(
                {
                    "network": network,
                    "nodes": nodes,
                    "size_kib": kib,
                    "algorithm": algorithm,
                    "authors_cycles": theirs,
                    "cycles": ours,
                    "deviation": {detail: round(count / theirs - 1, 5) for detail, count in ours.items()},
                    "cpu_seconds": round(time.process_time() - began, 2),
                }
            )
            print(network, nodes, kib, algorithm, rows[-1]["deviation"], rows[-1]["cpu_seconds"], flush=True)
    return rows


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far each detail is off."""
    found = []
    for detail in DETAILS:
        off = [abs(row["deviation"][detail]) for row in rows]
        found.append(
            {
                "detail": detail,
                "mean": round(statistics.fmean(off), 5),
                "far": sum(one > FAR for one in off),
                "most": max(off),
            }
        )
    return found


def summary() -> str:
    """The table of docs/papers/multitree.md that has a row for each detail."""
    lines = [f"| | mean deviation | more than {100 * FAR:.0f} % off | most |", "|---|---|---|---|"]
    for one in result_files.read(RESULTS)["summary"]:
        name = DETAILS[one["detail"]]
        lines.append(f"| {name} | {100 * one['mean']:.1f} % | {one['far']} | {100 * one['most']:.1f} % |")
    return "".join(f"{line}\n" for line in lines)


def apart() -> str:
    """The table of docs/papers/multitree.md of rows in which the details differ, or the last is far off."""
    head = ("network", "nodes", "KiB", "algorithm", "packet by packet", "flit by flit", "prioritised")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in result_files.read(RESULTS)["results"]:
        packet, flit, last = (row["deviation"][detail] for detail in DETAILS)
        if abs(packet - last) > APART or abs(last) > FAR:
            name = NETWORKS.get(row["network"], row["network"])
            off = " | ".join(f"{100 * one:+.1f} %" for one in (packet, flit, last))
            lines.append(f"| {name} | {row['nodes']} | {row['size_kib']:,} | {row['algorithm']} | {off} |")
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Run all totals and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--most-kib", type=int, default=2048, help="largest buffer that is run")
    arguments = parser.parse_args()
    started = result_files.start()
    rows = compare(arguments.most_kib)
    result_files.write(
        arguments.output,
        started,
        parameters={"most_kib": arguments.most_kib},
        summary=summarise(rows),
        results=rows,
    )


if __name__ == "__main__":
    main()
