"""``python -m torch_suite``: run a part of the suite, compare it with gloo's record, or record gloo.

The exit code is 0 if every test that passes on gloo passes, except those on the list, and the list is right;
1 if not; 2 if the tests could not be run; 3 if the time was up before all were.
"""

from __future__ import annotations

import argparse
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from torch_suite.comparison import Comparison, compare, read_reasons, report
from torch_suite.outcomes import Outcome, Record, counts, read_record, write_record
from torch_suite.shards import Shard, share
from torch_suite.translation import GLOO
from torch_suite.watch import Setting, Watch, list_tests

HERE: Final = Path(__file__).parent
REASONS: Final = HERE / "differences.toml"
OK, WORSE, BROKEN, UNFINISHED = range(4)


def record_path(torch: str, ranks: int) -> Path:
    """Where gloo's outcome with a version of torch is kept; builds of one version, such as +cpu, share it."""
    return HERE / f"gloo-{torch.partition('+')[0]}-{ranks}-ranks.json"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="torch_suite", description="PyTorch's own tests of its backends.")
    parser.add_argument("--backend", default="weft", help="the backend that is judged (default: weft)")
    parser.add_argument(
        "--shard", type=Shard.parse, default=Shard(1, 1), metavar="I/N", help="a part of the suite"
    )
    parser.add_argument("--test", action="append", metavar="NAME", help="only this test; may be repeated")
    parser.add_argument(
        "--record", action="store_true", help="with --backend gloo: keep what came of all tests"
    )
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    parser.add_argument("--minutes", type=float, default=55.0, help="stop after so long (default: 55)")
    parser.add_argument("--limit", type=int, default=120, help="seconds that a test may take (default: 120)")
    parser.add_argument("--ranks", type=int, default=4, help="processes of a test (default: 4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report there")
    parser.add_argument("--folder", type=Path, default=Path("build/torch-suite"), help="for journal and log")
    options = parser.parse_args(arguments)
    if options.record and (options.backend != GLOO or options.test or options.shard.of > 1):
        parser.error("--record keeps a whole run of gloo: give --backend gloo, no --shard and no --test")
    return options


def prepare(options: argparse.Namespace) -> Setting:
    """Folders and files of a run."""
    part = f"{options.shard.number}-of-{options.shard.of}"
    options.folder.mkdir(parents=True, exist_ok=True)
    stem = options.folder.absolute() / f"{options.backend}-{'some' if options.test else part}"
    journal, log = stem.with_suffix(".jsonl"), stem.with_suffix(".log")
    if not options.resume:
        journal.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    return Setting(options.backend, options.ranks, options.limit, journal, log)


def choose(options: argparse.Namespace, every: list[str], usual: dict[str, float]) -> list[str]:
    """Tests of a run.

    Raises
    ------
    ValueError
        If one that was asked for is not there.
    """
    if not options.test:
        return share(every, usual, options.shard)
    unknown = sorted(set(options.test) - set(every))
    if unknown:
        msg = f"torch {version('torch')} has no test {', '.join(unknown)}"
        raise ValueError(msg)
    return sorted(set(options.test))


def keep(options: argparse.Namespace, outcomes: dict[str, Outcome]) -> None:
    """Keep gloo's outcome."""
    path = record_path(version("torch"), options.ranks)
    now = datetime.now(UTC).date().isoformat()
    command = f"python -m torch_suite --backend gloo --record --ranks {options.ranks} --limit {options.limit}"
    python = platform.python_version()
    record = Record(options.backend, version("torch"), python, options.ranks, now, command, outcomes)
    write_record(path, record)
    print(f"torch-suite: gloo: {counts(outcomes)}; kept in {path}")


def write_report(path: Path, options: argparse.Namespace, comparison: Comparison, left: list[str]) -> None:
    """Write all that is known about a run as JSON."""
    content = {
        "backend": options.backend,
        "torch": version("torch"),
        "ranks": options.ranks,
        "shard": str(options.shard),
        "counts": {GLOO: counts(comparison.gloo), options.backend: counts(comparison.judged)},
        "ok": comparison.ok and not left,
        "not_run": left,
        "comparison": comparison,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; the exit code."""
    options = parse(arguments)
    setting = prepare(options)
    path = record_path(version("torch"), options.ranks)
    known = read_record(path).outcomes if path.exists() else {}
    if not known and not options.record:
        again = f"--backend gloo --record --ranks {options.ranks}"
        print(f"torch-suite: gloo has no record {path.name}; {again} makes it", file=sys.stderr)
        return BROKEN
    usual = {test: outcome.seconds for test, outcome in known.items()}
    try:
        reasons = read_reasons(REASONS)
        every = list_tests(setting)
        tests = choose(options, every, usual)
        print(
            f"torch-suite: {len(tests)} of {len(every)} tests, {options.ranks} ranks each; log {setting.log}"
        )
        outcomes = Watch(setting, tests, lambda line: print(line, flush=True)).run(options.minutes, usual)
    except (RuntimeError, ValueError) as error:
        print(f"torch-suite: {error}", file=sys.stderr)
        return BROKEN
    left = [test for test in tests if test not in outcomes]
    if options.record and not left:
        keep(options, outcomes)
        return OK
    # Expected differences are Weft's: of gloo itself none are.
    comparison = compare(known, outcomes, {} if options.backend == GLOO else reasons, set(every))
    if options.json:
        write_report(options.json, options, comparison, left)
    print(report(comparison, options.backend))
    if left:
        print(
            f"torch-suite: {len(left)} tests were not run in {options.minutes:.0f} minutes; --resume goes on"
        )
        return UNFINISHED
    return OK if comparison.ok else WORSE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
