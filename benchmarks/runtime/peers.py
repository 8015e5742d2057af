"""Weft's runtime beside its peers on this machine: every set through ``weft bench``, raw times into JSON.

A set is one kind of tensor on so many ranks against some peers; it becomes one file in ``peers`` beside this
script. What is not installed stops the set with how to get it; ``docs/bench.md`` has the list. Small sets
first, so that a run that is stopped has something to show.

    python benchmarks/runtime/peers.py                     # all sets; half an hour on 2 cores
    python benchmarks/runtime/peers.py --only tcp-ring-4   # one of them; may be repeated
    python benchmarks/runtime/peers.py --quick             # two small sizes, two rounds: does everything run?
    python benchmarks/runtime/peers.py --summary           # ratios of what is there already
    python benchmarks/runtime/peers.py --table             # the same for docs/bench.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

FOLDER = Path(__file__).with_name("peers")
RANKS = (2, 4, 8)
PRIVATE_PEERS = {2: "gloo,mpi,mpi4,mpich,oneccl", 4: "gloo,mpi,mpi4", 8: "gloo,mpi,mpi4"}
"""MPICH and oneCCL spin: with more ranks than cores a run of them would take all day."""
FULL = ("-b", "4K", "-e", "128M", "-f", "8", "-r", "9")
QUICK = ("-b", "4K", "-e", "256K", "-f", "64", "-r", "2", "-n", "2", "-w", "1")
SIZES = {
    4 << 10: "4 KiB",
    32 << 10: "32 KiB",
    256 << 10: "256 KiB",
    2 << 20: "2 MiB",
    16 << 20: "16 MiB",
    128 << 20: "128 MiB",
}
LARGE = 16 << 20
"""Bytes from which bandwidth decides; the summary shows these sizes."""


@dataclass(frozen=True)
class Set:
    """One run of ``weft bench``."""

    name: str
    words: tuple[str, ...]


def all_sets() -> list[Set]:
    """What is measured, in this order."""
    kinds: list[tuple[str, tuple[str, ...]]] = [
        ("shared-float32", ("--memory", "shared", "--against", "gloo")),
        ("tcp-ring", ("--transport", "tcp", "--algorithm", "ring", "--against", "gloo")),
        ("private-float16", ("-d", "float16", "--against", "gloo")),
        ("private-bfloat16", ("-d", "bfloat16", "--against", "gloo")),
    ]
    return [
        Set(f"{kind}-{ranks}", ("-R", str(ranks), *words))
        for ranks in RANKS
        for kind, words in [("private-float32", ("--against", PRIVATE_PEERS[ranks])), *kinds]
    ]


def run(one: Set, sizes: tuple[str, ...], timeout: float) -> dict[str, Any]:
    """Measure one set, in place."""
    weft = Path(sys.executable).with_name("weft")
    words = [str(weft), "bench", "--place", "in", "--timeout", str(timeout), "--json", *sizes, *one.words]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)  # weft bench has said why
    found: dict[str, Any] = json.loads(done.stdout)
    return {"set": one.name, "arguments": words[2:], **found}


def write(path: Path, started: result_files.Start, found: dict[str, Any]) -> None:
    """Write what one set measured into its file; the versions of the peers belong to the provenance."""
    names = ("set", "arguments", "ranks", "rounds", "settings")
    versions = {
        what if what == who or who == "gloo" else f"{who} {what}": version
        for who, some in found["versions"].items()
        for what, version in some.items()
    }
    result_files.write(
        path,
        started,
        parameters={name: found[name] for name in names},
        results=found["rows"],
        versions=versions,
    )


def summarise(found: dict[str, Any]) -> list[str]:
    """A line for each large size: how many times as long each peer takes."""
    lines = []
    for row in found["results"]:
        if row["size_bytes"] >= LARGE or row is found["results"][-1]:
            milliseconds = 1e3 * row["contestants"]["weft"]["in"]["median_seconds"]
            ratios = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in row["ratios"].items())
            size = f"{row['size_bytes'] / 2**20:g} MiB"
            lines.append(
                f"{found['parameters']['set']:<20} {size:>9}  weft {milliseconds:8.2f} ms;  times: {ratios}"
            )
    return lines


def table(folder: Path = FOLDER) -> str:
    """The ratios of all sets, for docs/bench.md."""
    lines = [
        "| tensors | ranks | peer | " + " | ".join(SIZES.values()) + " |",
        "|---|---|---" + "|---" * len(SIZES) + "|",
    ]
    for one in all_sets():
        path = folder / f"{one.name}.json"
        if not path.exists():
            continue
        rows = {row["size_bytes"]: row for row in result_files.read(path)["results"]}
        kind, ranks = one.name.rsplit("-", 1)
        for peer in rows[LARGE]["ratios"]:
            ratios = [f"{rows[size]['ratios'][peer]:.2f}" if size in rows else "" for size in SIZES]
            lines.append(f"| {kind} | {ranks} | {peer} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the sets, write what they measured, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=[one.name for one in all_sets()], metavar="SET")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one round")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.table:
        print(table(options.out), end="")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for one in all_sets():
        path = options.out / f"{one.name}.json"
        if options.only and one.name not in options.only:
            continue
        if not options.summary:
            started = result_files.start()
            write(path, started, run(one, QUICK if options.quick else FULL, options.timeout))
            print(f"{path.name}: {time.monotonic() - started.monotonic_s:.0f} s", flush=True)
        if path.exists():
            print("\n".join(summarise(result_files.read(path))), flush=True)


if __name__ == "__main__":
    main()
