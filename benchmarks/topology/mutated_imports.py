"""Mutated files of every import: each has to be a topology, or one error of one line.

The samples are those of the tests, in tests/data/topology. Of each format so many damaged copies are made,
in turn of each of its samples: pieces are replaced and lines repeated at random. Each copy is read in three
ways: alone, as one of two machines, and merged with a file that is right. A finding is whatever is neither a
topology nor one error of Weft in one line, and a reading that takes longer than is allowed.

    python benchmarks/topology/mutated_imports.py             # 10,000 of each, into mutated_imports.json
    python benchmarks/topology/mutated_imports.py --count 500 --seed 7 --output found.json

The work is bounded: after `--minutes` it writes what there is, says how far it came, and exits with 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.damaged_files import FORMATS, READERS, SAMPLES, damage, read_once  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files  # noqa: E402

_LONGEST_S = 10.0
"""CPU seconds of one reading, beyond which it is a finding."""

_REPORT_EVERY_S = 10.0
_MOST_TEXTS = 20


def try_format(name: str, count: int, seed: int, deadline: float) -> dict[str, Any]:
    """Read damaged copies of the samples of a format; what came of them."""
    samples = [sample for sample in SAMPLES if sample.name.endswith(FORMATS[name])]
    chance = random.Random(f"{seed} {name}")
    outcomes: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    findings: list[str] = []
    inputs, slowest, told, began = 0, 0.0, time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input"
        while inputs < count and time.monotonic() < deadline:
            sample = samples[inputs % len(samples)]
            file.write_bytes(damage(sample.read_bytes(), chance))
            for way in READERS:
                found = read_once(way, file, sample)
                is_slow = found.cpu_seconds > _LONGEST_S
                outcomes["finding" if is_slow else found.outcome] += 1
                taken[way] += found.outcome == "taken"
                slowest = max(slowest, found.cpu_seconds)
                if is_slow or found.outcome == "finding":
                    where = f"input {inputs} ({sample.name}), {way}"
                    findings.append(f"{where}: {found.cpu_seconds:.1f} s, {found.said}")
            inputs += 1
            if time.monotonic() > told + _REPORT_EVERY_S:
                told = time.monotonic()
                said = f"{name}: {inputs:,} of {count:,}, {len(findings)} findings"
                print(said, file=sys.stderr, flush=True)
    return {
        "format": name,
        "samples": [sample.name for sample in samples],
        "inputs": inputs,
        "readings": outcomes.total(),
        "taken": outcomes["taken"],
        "taken_by_way": {way: taken[way] for way in READERS},
        "refused": outcomes["refused"],
        "findings": len(findings),
        "finding_texts": findings[:_MOST_TEXTS],
        "cpu_seconds": round(time.process_time() - began, 1),
        "slowest_reading_cpu_s": round(slowest, 3),
    }


def main() -> None:
    """Try every format, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000, help="damaged files of each format")
    parser.add_argument("--seed", type=int, default=20_240_229)
    parser.add_argument("--minutes", type=float, default=120.0, help="the longest that all of it may take")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    started, deadline = result_files.start(), time.monotonic() + 60 * given.minutes
    results = [try_format(name, given.count, given.seed, deadline) for name in FORMATS]
    totals = {
        key: sum(row[key] for row in results)
        for key in ("inputs", "readings", "taken", "refused", "findings", "cpu_seconds")
    }
    result_files.write(
        given.output,
        started,
        parameters={"seed": given.seed, "inputs_of_each": given.count, "ways": list(READERS)},
        summary=totals,
        results=results,
    )
    done, asked = totals["inputs"], given.count * len(FORMATS)
    print(f"{done:,} of {asked:,} damaged files, {totals['findings']} findings")
    sys.exit(1 if totals["findings"] or done < asked else 0)


if __name__ == "__main__":
    main()
