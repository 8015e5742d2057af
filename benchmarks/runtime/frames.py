"""Frames that are damaged on their way, or come from somebody who does not know the job's secret.

    python benchmarks/runtime/frames.py damaged      # data between two ranks over TCP: flipped, repeated, ...
    python benchmarks/runtime/frames.py control      # what ranks say to each other through rank 0
    python benchmarks/runtime/frames.py strangers    # frames from connections without the secret

Each takes ``--cases``; reports go into the folder faults beside this file.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import result_files  # noqa: E402
from support.faults import Nursery  # noqa: E402
from support.faults.control_frames import damage_control_frames  # noqa: E402
from support.faults.damage import ENDINGS, KINDS, Damage  # noqa: E402
from support.faults.frame_trial import Suffered, run_damages  # noqa: E402
from support.faults.frames import draw_damage  # noqa: E402
from support.faults.strangers import Heard, bother_job  # noqa: E402

FOLDER = Path(__file__).parent / "faults"
BATCH = 250
"""Damages that one pair of processes suffers."""

MOST_JOBS = 100


def save(
    wanted: argparse.Namespace,
    started: result_files.Start,
    summary: dict[str, Any],
    rows: list[dict[str, Any]],
) -> None:
    """Write a report with the words of the command line as its parameters."""
    words = {name: getattr(wanted, name) for name in ("cases", "seed", "at_once")}
    path = FOLDER / f"{wanted.output}.json"
    print(result_files.write(path, started, parameters=words, summary=summary, results=rows))


def damaged(wanted: argparse.Namespace) -> None:
    """Damage data on its way between two ranks."""
    chance, started = random.Random(wanted.seed), result_files.start()
    began = time.monotonic()
    damages = [draw_damage(KINDS[number % len(KINDS)], chance) for number in range(wanted.cases)]
    batches = [damages[first : first + BATCH] for first in range(0, len(damages), BATCH)]
    with Nursery() as nursery, ThreadPoolExecutor(wanted.at_once) as pool:

        def run_batch(batch: list[Damage]) -> tuple[list[Suffered], list[str]]:
            found, left = run_damages(batch, nursery)
            print(f"{time.monotonic() - began:.0f} s: {len(found)} more cases", *left, flush=True)
            return found, left

        results = list(pool.map(run_batch, batches))
    found = [suffered for batch, _ in results for suffered in batch]
    left = [line for _, some in results for line in some]
    rows = []
    for kind in KINDS:
        some = [one for one in found if one.damage.kind == kind and one.happened]
        ends = collections.Counter(" and ".join(sorted(end["end"] for end in one.ends)) for one in some)
        rows.append(
            {
                "kind": kind,
                "damaged": len(some),
                "detected": sum(one.detected for one in some),
                "wrong_sums": sum(end["wrong"] > 0 for one in some for end in one.ends),
                "ends": dict(ends.most_common()),
            }
        )
        print(rows[-1])
    missed = [one.summary() for one in found if one.problems() or (one.happened and not one.detected)]
    frames = [row for row in rows if row["kind"] not in ENDINGS]
    summary = {
        "frames_damaged": sum(row["damaged"] for row in frames),
        "frames_detected": sum(row["detected"] for row in frames),
        "wrong_sums": sum(row["wrong_sums"] for row in rows),
        "left_behind": left,
    }
    print(summary, *missed[:10], sep="\n")
    save(wanted, started, {**summary, "missed": missed}, rows)


def control(wanted: argparse.Namespace) -> None:
    """Damage what ranks say to each other through rank 0."""
    chance, started = random.Random(wanted.seed), result_files.start()
    counts: dict[str, collections.Counter[str]] = {}
    missed = []
    for number in range(wanted.cases):
        kind = KINDS[number % len(KINDS)]
        end, wrong = damage_control_frames(kind, chance)
        counts.setdefault(kind, collections.Counter())[end] += 1
        if wrong:
            missed.append({"kind": kind, "number": number, "end": end, "problems": [wrong]})
    summary = {
        "frames_damaged": wanted.cases - sum(some["unchanged"] for some in counts.values()),
        "taken_although_damaged": len(missed),
        "missed": missed,
    }
    rows = [{"kind": kind, "ends": dict(some)} for kind, some in counts.items()]
    print(summary, rows)
    save(wanted, started, summary, rows)


def strangers(wanted: argparse.Namespace) -> None:
    """Send frames from connections that do not know the secret, to rank 0 and to where data is expected."""
    chance, started = random.Random(wanted.seed), result_files.start()
    heard: list[tuple[str, Heard]] = []
    problems: list[str] = []
    jobs = 0
    with Nursery() as nursery:
        while len(heard) < wanted.cases and jobs < MOST_JOBS:
            more, trouble = bother_job(nursery, wanted.cases - len(heard), chance)
            heard += more
            problems += trouble
            jobs += 1
            print(len(heard), problems, flush=True)
    summary = {
        "frames": len(heard),
        "jobs": jobs,
        "hung_up_on": sum(one.hung_up for _, one in heard),
        "most_bytes_sent_back": max(one.bytes for _, one in heard),
        "problems_of_the_jobs": problems,
    }
    counts = collections.Counter(kind for kind, _ in heard)
    rows = [{"kind": kind, "frames": frames} for kind, frames in counts.items()]
    print(summary, rows)
    save(wanted, started, summary, rows)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(required=True)
    for mode, cases in ((damaged, 14_700), (control, 14_400), (strangers, 10_000)):
        words = modes.add_parser(mode.__name__, help=mode.__doc__)
        words.set_defaults(run=mode)
        words.add_argument("--cases", type=int, default=cases)
        words.add_argument("--seed", type=int, default=1)
        words.add_argument("--output", default=mode.__name__)
        words.add_argument("--at-once", type=int, default=4)
    wanted = parser.parse_args()
    wanted.run(wanted)


if __name__ == "__main__":
    main()
