"""Runs tests one after the other and writes what came of each to a journal; `torch_suite.watch` watches it.

``python -m torch_suite.worker JOURNAL < names``; the environment says which backend (``BACKEND``) and how
many ranks (``WORLD_SIZE``).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Final

from torch_suite.outcomes import Entry, Outcome, reason_of, write_entry
from torch_suite.translation import GLOO

LIST: Final = "--list"


def run(name: str) -> Outcome:
    """Run a test."""
    from torch_suite import cases

    print(f"=== {name}", flush=True)
    result = unittest.TestResult()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as ledger:
        os.environ[cases.LEDGER] = ledger
        test = cases.TorchSuite(name)
        test.run(result)
        groups = sum(int(file.read_text() or 0) for file in Path(ledger).iterdir())
    seconds = round(time.monotonic() - began, 1)
    if result.skipped:
        return Outcome("skipped", seconds, result.skipped[0][1])
    problems = [*result.errors, *result.failures]
    if problems:
        text = "\n".join(text for _, text in problems)
        print(text, flush=True)
        return Outcome("failed", seconds, test.deaths + reason_of(text), groups)
    if cases.BACKEND != GLOO and not groups:
        return Outcome("failed", seconds, f"passed, but made no group of {cases.BACKEND}")
    return Outcome("passed", seconds, groups=groups)


def main() -> None:
    """Run the tests that standard input names, or list all."""
    if sys.argv[1] == LIST:
        from torch_suite import cases

        print("\n".join(cases.names()))
        return
    journal = Path(sys.argv[1])
    for name in sys.stdin.read().split():
        write_entry(journal, Entry(name))
        write_entry(journal, Entry(name, run(name)))


if __name__ == "__main__":
    main()
