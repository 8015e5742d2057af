"""Look for faults with random examples that nobody has seen yet, for a bounded time: ``make explore``.

In CI ``make test`` tries the same examples every time, so that a change is judged by what it changes. This
draws a fresh seed, prints it, and gives a share of the time each to the fuzzing of everything that reads
bytes from elsewhere, to random operations of the runtime on real processes, and to property tests (the
verifier beside brute force, the simulator beside the readable one, any cluster, any file). What fails is
printed with the command that repeats it, and fails the run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("verification", "simulation", "schedule", "packets", "topology", "planning", "algorithms")
"""Folders of property tests that compare two independent answers, or give a reader anything at all."""

EXAMPLES: Final = "0.2"
"""Factor of the examples of one round, which then takes some seconds and can be repeated as a whole."""

FUZZED: Final = 0.25
SOAKED: Final = 0.2
"""Shares of the time; property tests have the rest."""


def run(name: str, command: list[str], **variables: str) -> bool:
    """Run a command in the root of the repository; whether it ended well, and if not, how to repeat it."""
    everything = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, env=everything, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True
    prefix = "".join(f"{key}={value} " for key, value in variables.items())
    print(done.stdout + done.stderr, flush=True)
    print(f"explore: {name} found something; repeat: {prefix}{shlex.join(command)}", flush=True)
    return False


def explore_properties(seed: int, until: float) -> bool:
    """Run property tests, each round with the next seed, as long as another round has time."""
    longest = 0.0
    for number in itertools.count(seed):
        began = time.monotonic()
        if number > seed and began + longest > until:
            print(f"explore: {number - seed} rounds of property tests, seeds from {seed} on", flush=True)
            break
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "hypothesis"]
        command += [f"--hypothesis-seed={number}", *(f"tests/{room}" for room in ROOMS)]
        if not run("a property test", command, WEFT_EXAMPLES=EXAMPLES):
            return False
        longest = max(longest, time.monotonic() - began)
    return True


def main() -> int:
    """Explore; 1 if something was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="By default another one each time.")
    words = parser.parse_args()
    seed = secrets.randbits(31) if words.seed is None else words.seed
    seconds: float = words.seconds
    print(f"explore: seed {seed}, {seconds:g} s; the same again: make explore SEED={seed}", flush=True)
    began = time.monotonic()
    fuzz = [sys.executable, "tools/fuzz.py", "--seed", str(seed), "--minutes", f"{FUZZED * seconds / 60:.3f}"]
    weft = str(Path(sys.executable).with_name("weft"))
    soak = [weft, "soak", "--seed", str(seed), "--seconds", f"{SOAKED * seconds:.1f}"]
    right = [run("fuzzing", fuzz), run("the test of the runtime", soak)]
    right.append(explore_properties(seed, began + seconds))
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())
