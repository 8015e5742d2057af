"""Weft's runtime beside Gloo, Open MPI 5 and 4, MPICH and oneCCL: one run for each number of ranks.

On each number of ranks one session has all jobs: Weft with private memory, Weft with memory of `comm.empty`,
Weft over TCP, and all peers. For each size the jobs take turns, round after round, in rotating order, and in
every round the limits of this machine are sampled as well (`machine_limits.py`). So whatever else the machine
does hits all alike. What is compared are all-reduces of float32 in place; at the end of a session come
float16 and bfloat16 at two sizes, on Weft and Gloo, which alone have them.

A peer is ahead of Weft where the 90th percentile of its rounds is below the 10th of Weft's. Each peer is held
against private and shared memory, and Gloo against TCP as well, which is its transport; the others would have
to be told to leave memory. Peers that poll while they wait can take seconds for one call where ranks
outnumber cores. One that takes longer than a cap at a size is measured no further, there and at all larger
sizes; the cap, and what it took, are recorded.

Each number of ranks becomes one file in ``peers`` beside this script, written anew after each size. What is
not installed stops the run with how to get it; ``docs/bench.md`` has the list.

    python benchmarks/runtime/peers.py                     # 2, 4 and 8 ranks; 25 minutes, 35 at most
    python benchmarks/runtime/peers.py --only 8            # one of them; may be repeated
    python benchmarks/runtime/peers.py --minutes 15        # fewer rounds
    python benchmarks/runtime/peers.py --peers gloo,mpi    # not all peers
    python benchmarks/runtime/peers.py --quick --out DIR   # 2 ranks, few rounds: does everything run?
    python benchmarks/runtime/peers.py --table --out DIR   # ratios of what is there, for docs/bench.md
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from machine_limits import MemoryLimit, WireLimit

from weft.bench.bench_session import BenchSession, PeerJob
from weft.bench.measure import Series
from weft.bench.peers import PEERS, find_entry
from weft.bench.task import ITEM_BYTES, BenchTask
from weft.errors import RuntimeFailure, TimedOut

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files
from bounded_run import BoundedRun

FOLDER = Path(__file__).with_name("peers")
RANKS = (2, 4, 8)
OWN = {
    "weft": {"memory": "private", "transport": "auto"},
    "weft shared": {"memory": "shared", "transport": "auto"},
    "weft tcp": {"memory": "private", "transport": "tcp"},
}
"""Weft's jobs, which choose their algorithms by themselves."""

KINDS = {"private": "weft", "shared": "weft shared", "tcp": "weft tcp"}
_NOTHING_GIVEN = dict.fromkeys(("topology", "algorithm", "plan", "schedule"))
SIZES = (4, 32, 256, 4 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20)
QUICK_SIZES, QUICK_ROUNDS = (4, 16 << 10, 1 << 20), 3
HALVES = (16 << 20, 128 << 20)
TCP_FROM = 4 << 10
"""Bytes from which TCP is compared; below it is latency alone, which nobody chooses TCP for."""

MEMORY_FROM = 1 << 20
"""Bytes from which memory is what limits; below it is how soon ranks notice each other."""

MINUTES = 35.0
FEWEST = 5
ROUND_S, LONGEST_ROUND_S = 0.05, 2.0
"""What a round of short operations should take, and from when the next one has fewer operations."""

START_TIMEOUT_S, ORDER_TIMEOUT_S = 180.0, 60.0


def rounds_of(size_bytes: int) -> int:
    """How many rounds a size has where there is time."""
    if size_bytes < MEMORY_FROM:
        return 31
    return 25 if size_bytes < 16 << 20 else 21 if size_bytes < 128 << 20 else 15


def cap_s(size_bytes: int) -> float:
    """Seconds of one operation from which a peer is left out."""
    return 0.5 if size_bytes < 16 << 20 else 4.0


def expected_s(ranks: int, size_bytes: int, jobs: int) -> float:
    """Seconds that a size takes with all its rounds, for estimates only."""
    moved = ranks * size_bytes
    operation = max(ROUND_S, 3 * moved / 1.5e9 if size_bytes < 128 << 20 else moved / 1.5e9)
    checks = 2 * (0.05 + moved / 1e9)
    return jobs * (rounds_of(size_bytes) * 1.3 * operation + checks)


@dataclass
class Case:
    """One size and type on one number of ranks: who takes part, and what was measured."""

    task: BenchTask
    series: dict[str, Series] = field(default_factory=dict)
    ran: dict[str, dict[str, str]] = field(default_factory=dict)
    capped: dict[str, dict[str, Any]] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For a result file; an entrant without a single round is left out."""
        return {
            "dtype": self.task.dtype,
            "ranks": self.task.ranks,
            "size_bytes": self.task.size_bytes,
            "limit": self.limit,
            "contestants": {
                name: {**self.ran[name], **describe(series)}
                for name, series in self.series.items()
                if series.seconds
            },
            "capped": self.capped,
        }


def describe(series: Series) -> dict[str, Any]:
    """The rounds of one job, and what is compared of them."""
    return {
        "p10_s": percentile(series.seconds, 10),
        "median_s": statistics.median(series.seconds),
        "p90_s": percentile(series.seconds, 90),
        "median_cpu_s": statistics.median(series.cpu_seconds),
        "iterations": series.iterations,
        "warmups": series.warmups,
        "wrong": series.wrong,
        "seconds": series.seconds,
        "cpu_seconds": series.cpu_seconds,
    }


def percentile(values: list[float], percent: int) -> float:
    """The percentile by linear interpolation, as numpy has it."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


class Contest:
    """All jobs of one number of ranks, and those peers that are too slow to go on.

    Parameters
    ----------
    session, ranks, peers
        Where the jobs are started, on how many ranks, and beside whom.
    """

    def __init__(self, session: BenchSession, ranks: int, peers: list[str]) -> None:
        self.ranks = ranks
        self.out: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, PeerJob] = {}
        for name in (*OWN, *peers):
            settings = {**OWN.get(name, OWN["weft"]), **_NOTHING_GIVEN}
            entry = find_entry("weft" if name in OWN else name)
            self.jobs[name] = session.start(entry, ranks, settings, name=name)
        session.timeout = ORDER_TIMEOUT_S  # for each order; a start may take longer
        self.versions = {name: job.versions for name, job in self.jobs.items()}

    def leave(self) -> None:
        """Let all jobs end that are still there."""
        for job in self.jobs.values():
            job.leave()

    def hold(self, case: Case, entrants: list[str], wire: WireLimit, rounds: int, until: float) -> None:
        """Measure a case, round after round; after `FEWEST` rounds only until `until`, a monotonic time."""
        size = case.task.size_bytes
        case.capped.update({name: why for name, why in self.out.items() if name in entrants})
        for name in entrants:
            if name in self.jobs and name not in self.out:
                self._prepare(name, case)
        with ExitStack() as resources:
            memory = None
            if size >= MEMORY_FROM:
                memory = resources.enter_context(MemoryLimit(self.ranks, size))
            for turn in range(rounds):
                if turn >= FEWEST and time.monotonic() > until:
                    break
                names = list(case.series)
                for index in range(len(names)):
                    self._play(names[(index + turn) % len(names)], case)
                if memory is not None:
                    memory.sample()
                    case.limit.update(memory.to_dict())
                if size >= TCP_FROM and "weft tcp" in case.series:
                    wire.sample(max(1 << 20, min(size, 16 << 20)))
                    case.limit.update(wire.to_dict(size))
        for name in [name for name in case.series if name not in self.out]:
            self._recheck(name, case)

    def _prepare(self, name: str, case: Case) -> None:
        """Make a job ready, check its result, and find out how often it fits into a round."""
        task = msgspec.to_builtins(case.task)
        try:
            self.jobs[name].do({"do": "prepare", "task": task, "places": ["in"]})
            wrong, case.ran[name] = self._check(name)
            once = max(answer["seconds"] for answer in self._time(name, 0, 1))
            cap = cap_s(case.task.size_bytes)
            if name not in OWN and once > cap:  # it may have been an accident once
                once = min(once, max(answer["seconds"] for answer in self._time(name, 0, 1)))
            if name not in OWN and once > cap:
                self._leave_out(name, case, f"an operation took {once:.2f} s")
                return
            often = 3 * once < ROUND_S
            if often:
                once = max(answer["seconds"] for answer in self._time(name, 1, 3))
        except RuntimeFailure as failure:
            self._lose(name, case, failure)
            return
        iterations = min(1000, math.ceil(ROUND_S / once)) if often else 1
        warmups = min(20, max(1, iterations // 4)) if case.task.size_bytes < 128 << 20 else 0
        case.series[name] = Series(iterations, warmups, wrong)

    def _play(self, name: str, case: Case) -> None:
        """One round of one job; a peer whose median is slower than the cap is measured no further."""
        series = case.series[name]
        if name in self.out:
            return
        try:
            answers = self._time(name, series.warmups, series.iterations)
        except RuntimeFailure as failure:
            self._lose(name, case, failure)
            return
        series.seconds.append(max(answer["seconds"] for answer in answers))
        series.cpu_seconds.append(sum(answer["cpu_seconds"] for answer in answers))
        took = series.seconds[-1] * (series.iterations + series.warmups)
        if took > LONGEST_ROUND_S:
            series.iterations = max(1, int(series.iterations * LONGEST_ROUND_S / took))
            series.warmups = min(series.warmups, max(1, series.iterations // 4))
        median = statistics.median(series.seconds)
        if name not in OWN and len(series.seconds) >= FEWEST and median > cap_s(case.task.size_bytes):
            self._leave_out(name, case, f"an operation took {median:.2f} s")

    def _recheck(self, name: str, case: Case) -> None:
        series = case.series[name]
        try:
            series.wrong = (series.wrong or 0) + self._check(name)[0]
        except RuntimeFailure as failure:
            self._lose(name, case, failure)

    def _check(self, name: str) -> tuple[int, dict[str, str]]:
        answers = self.jobs[name].do({"do": "check", "place": "in", "compare": True})
        ran = {key: value for key, value in answers[0].items() if key != "wrong"}
        return sum(answer["wrong"] for answer in answers), ran

    def _time(self, name: str, warmups: int, iterations: int) -> list[dict[str, Any]]:
        order = {"do": "time", "place": "in", "warmups": warmups, "iterations": iterations}
        return self.jobs[name].do(order)

    def _leave_out(self, name: str, case: Case, why: str) -> None:
        """Measure a peer no more; the rounds that it has of this case are kept."""
        size = case.task.size_bytes
        self.out[name] = {"cap_s": cap_s(size), "size_bytes": size, "why": why}
        case.capped[name] = self.out[name]
        print(f"  {name} is left out from {format_size(size)} on: {why}", file=sys.stderr, flush=True)

    def _lose(self, name: str, case: Case, failure: RuntimeFailure) -> None:
        """End a peer that failed or answers too late; a failure of Weft ends the run."""
        if name in OWN:
            raise failure
        self.jobs.pop(name).end()
        case.series.pop(name, None)
        late = f"no answer within {ORDER_TIMEOUT_S:g} s"
        self._leave_out(name, case, late if isinstance(failure, TimedOut) else str(failure))


def run(ranks: int, given: argparse.Namespace, clock: BoundedRun, share: float, later_s: float) -> bool:
    """Measure all sizes on one number of ranks; whether every result was right.

    `share` is the part of the time left that is for these ranks.
    """
    started, until = result_files.start(), clock.spent_s + share * clock.left_s
    cases = list(all_cases(ranks, given))
    costs = [expected_s(ranks, task.size_bytes, len(names)) for task, names in cases]
    rows: list[dict[str, Any]] = []
    versions: dict[str, dict[str, str]] = {}
    path = given.out / f"ranks-{ranks}.json"

    def keep() -> None:
        if rows:
            facts = {"ranks": ranks, "peers": given.peers, "minutes": given.minutes, "stopped": clock.stopped}
            caps = {"cap_s": {format_size(size): cap_s(size) for size in SIZES}, "timeout_s": ORDER_TIMEOUT_S}
            parameters = {**facts, "place": "in", "own": OWN, **caps}
            told = flatten(versions)
            result_files.write(path, started, parameters=parameters, results=rows, versions=told)

    wire = WireLimit(ranks)
    with clock.stoppable(), wire, BenchSession(START_TIMEOUT_S) as session:
        clock.tell(f"{ranks} ranks: starting {', '.join((*OWN, *given.peers))}", sum(costs) + later_s)
        contest = Contest(session, ranks, given.peers)
        versions = contest.versions
        for index, (task, names) in enumerate(cases):
            to_go = sum(costs[index:])
            if clock.is_over():
                break
            clock.tell(f"{ranks} ranks, {task.dtype}, {format_size(task.size_bytes)}", to_go + later_s)
            fair = (until - clock.spent_s) * costs[index] / to_go
            case, rounds = Case(task), QUICK_ROUNDS if given.quick else rounds_of(task.size_bytes)
            contest.hold(case, names, wire, rounds, time.monotonic() + fair)
            rows.append(case.to_dict())
            keep()
        contest.leave()
    for row in rows:
        if "wire_s" in row["limit"]:  # the best of all sizes is the limit of each
            row["limit"].update(wire.to_dict(row["size_bytes"]))
    keep()
    return all(not one["wrong"] for row in rows for one in row["contestants"].values())


def all_cases(ranks: int, given: argparse.Namespace) -> Iterator[tuple[BenchTask, list[str]]]:
    """Every task of one number of ranks with those who take part in it, small ones first."""
    for size in QUICK_SIZES if given.quick else SIZES:
        names = [*OWN, *given.peers]
        if size < TCP_FROM:
            names.remove("weft tcp")
        yield BenchTask("all_reduce", "float32", "sum", ranks, size // ITEM_BYTES["float32"]), names
    for dtype in ("float16", "bfloat16"):
        names = ["weft", "weft shared", *(["gloo"] if "gloo" in given.peers else [])]
        for size in () if given.quick else HALVES:
            yield BenchTask("all_reduce", dtype, "sum", ranks, size // ITEM_BYTES[dtype]), names


def flatten(versions: dict[str, dict[str, str]]) -> dict[str, str]:
    """Versions of all jobs; those of Weft's are the same."""
    return {
        what if what == name or name == "gloo" else f"{name} {what}": version
        for name, some in versions.items()
        for what, version in some.items()
        if name not in OWN or name == "weft"
    }


# What is made of the files.


@dataclass(frozen=True)
class Cell:
    """One peer beside one kind of Weft's tensors, at one size; `theirs` is None where it was capped."""

    kind: str
    dtype: str
    ranks: int
    peer: str
    size_bytes: int
    own: dict[str, Any]
    theirs: dict[str, Any] | None
    limit_s: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as long the peer takes, by medians."""
        return None if self.theirs is None else float(self.theirs["median_s"] / self.own["median_s"])

    @property
    def is_peer_ahead(self) -> bool:
        """Whether nine tenths of its rounds are faster than nine tenths of Weft's."""
        return self.theirs is not None and bool(self.theirs["p90_s"] < self.own["p10_s"])

    @property
    def of_limit(self) -> float | None:
        """The least that this machine takes over what Weft takes, if that was measured."""
        return None if self.limit_s is None else self.limit_s / float(self.own["median_s"])


def files_of(folder: Path) -> list[Path]:
    """The results of runs in which everything was beside each other, if there are any."""
    return sorted(folder.glob("ranks-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))


def read_cells(folder: Path = FOLDER) -> list[Cell]:
    """Every comparison in the files of a folder."""
    return [
        cell
        for path in files_of(folder)
        for row in result_files.read(path)["results"]
        for cell in cells_of(row)
    ]


def cells_of(row: dict[str, Any]) -> Iterator[Cell]:
    """The comparisons of one size: each peer beside each kind, but TCP only beside Gloo."""
    who = row["contestants"]
    for kind, own in KINDS.items():
        limit_s = row["limit"].get("wire_s" if kind == "tcp" else "memory_s")
        for peer in PEERS:
            there = peer in who or peer in row["capped"]
            if own in who and there and (kind != "tcp" or peer == "gloo"):
                place = (kind, row["dtype"], row["ranks"], peer, row["size_bytes"])
                yield Cell(*place, who[own], who.get(peer), limit_s)


def table(folder: Path = FOLDER) -> str:
    """The ratios of all sets and who is ahead, for docs/bench.md; of older files the ratios alone."""
    if not files_of(folder):
        return old_table(folder)
    cells = read_cells(folder)
    sizes = sorted({cell.size_bytes for cell in cells})
    lines = [
        f"| tensors | ranks | peer | {' | '.join(map(format_size, sizes))} |",
        "|---|---|---" + "|---" * len(sizes) + "|",
    ]
    rows: dict[tuple[int, str, str, str], dict[int, Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.ranks, cell.dtype, cell.kind, cell.peer), {})[cell.size_bytes] = cell
    order = sorted(rows, key=lambda row: (row[0], row[1] != "float32", row[1], list(KINDS).index(row[2])))
    for ranks, dtype, kind, peer in order:
        found = rows[ranks, dtype, kind, peer]
        texts = [format_cell(found[size]) if size in found else "" for size in sizes]
        name = kind if dtype == "float32" else f"{kind}, {dtype}"
        lines.append(f"| {name} | {ranks} | {peer} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n\n" + who_is_ahead(cells)


def format_cell(cell: Cell) -> str:
    """A ratio, bold where the peer is ahead."""
    if cell.ratio is None:
        return "capped"
    return f"**{cell.ratio:.2f}**" if cell.is_peer_ahead else f"{cell.ratio:.2f}"


def who_is_ahead(cells: list[Cell]) -> str:
    """In how many of the cells a peer is ahead, and in which."""
    measured = [cell for cell in cells if cell.ratio is not None]
    ahead = [cell for cell in measured if cell.is_peer_ahead]
    capped = len(cells) - len(measured)
    share = len(ahead) / max(1, len(measured))
    text = f"A peer is ahead in {len(ahead)} of {len(measured)} cells ({share:.1%})"
    text = text.replace("%", " %") + (f"; {capped} more are capped. " if capped else ". ")
    text += " ".join(f"{peer} in {count}." for peer, count in count_by_peer(ahead).items())
    return "\n".join(textwrap.wrap(text, 120)) + "\n"


def count_by_peer(cells: list[Cell]) -> dict[str, int]:
    """How many of some cells each peer has, those with none left out."""
    counts = {peer: sum(cell.peer == peer for cell in cells) for peer in PEERS}
    return {peer: count for peer, count in counts.items() if count}


def format_size(size_bytes: int) -> str:
    """As ``4 B``, ``16 KiB`` or ``128 MiB``."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes} B"


# Files of runs with one kind of tensors each, which those of this script replace.

OLD_KINDS = ("private-float32", "shared-float32", "tcp-ring", "private-float16", "private-bfloat16")
OLD_SIZES = tuple(4 << 10 << 3 * step for step in range(6))


def old_table(folder: Path) -> str:
    """The ratios of all sets that are there."""
    lines = [
        "| tensors | ranks | peer | " + " | ".join(map(format_size, OLD_SIZES)) + " |",
        "|---|---|---" + "|---" * len(OLD_SIZES) + "|",
    ]
    for ranks in RANKS:
        for kind in OLD_KINDS:
            path = folder / f"{kind}-{ranks}.json"
            if not path.exists():
                continue
            rows = {row["size_bytes"]: row for row in result_files.read(path)["results"]}
            for peer in rows[OLD_SIZES[-1]]["ratios"]:
                ratios = [f"{rows[size]['ratios'][peer]:.2f}" if size in rows else "" for size in OLD_SIZES]
                lines.append(f"| {kind} | {ranks} | {peer} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Do what the command line says; 1 if it is not complete or a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", type=int, metavar="RANKS", help="2, 4 and 8 by default")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"{MINUTES:g} by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.table:
        print(table(given.out), end="")
        return 0
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"--peers: there is no {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    if given.quick and given.out == FOLDER:
        parser.error("--quick needs --out: its figures are nothing to keep")
    clock, right = BoundedRun(given.minutes), True
    all_ranks = given.only or (RANKS[:1] if given.quick else RANKS)
    costs = {
        ranks: sum(expected_s(ranks, task.size_bytes, len(names)) for task, names in all_cases(ranks, given))
        for ranks in all_ranks
    }
    for index, ranks in enumerate(all_ranks):
        later_s = sum(costs[one] for one in all_ranks[index + 1 :])
        right &= run(ranks, given, clock, costs[ranks] / (costs[ranks] + later_s), later_s)
        if clock.stopped:
            break
    if files_of(given.out):
        print(table(given.out), end="")
    return 0 if right and not clock.stopped else 1


if __name__ == "__main__":
    sys.exit(main())
