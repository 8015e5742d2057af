"""One page of results: each row the work, what Weft and its peers take, and what is possible at most.

    python benchmarks/results_page.py                                  # the table of docs/results.md
    python benchmarks/results_page.py --peers DIR --training DIR       # from files elsewhere

A row needs all of it from one interleaved run: the generator refuses one whose parts come from different
runs, since nobody could say in which of them the machine had more else to do. Work without a peer or a limit,
such as start-up, has a table of its own elsewhere and no row here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), *(str(FOLDER / name) for name in ("runtime", "lab", "torch"))]

import gallery  # noqa: E402
import lab_training  # noqa: E402
import peers  # noqa: E402
import result_files  # noqa: E402

from weft.bounds.collective_bound import lower_bound  # noqa: E402
from weft.lab.expected_time import emulated  # noqa: E402

TENSORS = {"private": "private memory", "shared": "memory of `comm.empty`", "tcp": "over TCP"}


class DifferentRunsError(Exception):
    """Parts of a row were not measured in one run."""


@dataclass(frozen=True)
class Figure:
    """Seconds, and the run that they were measured in; None where a peer was too slow to be measured."""

    seconds: float | None
    run: str


@dataclass(frozen=True)
class Row:
    """One piece of work; what a limit is of is said in words.

    Raises
    ------
    DifferentRunsError
        If peers, limit and Weft are not from one run.
    """

    work: str
    own: Figure
    peers: dict[str, Figure]
    limit: Figure
    limit_of: str

    def __post_init__(self) -> None:
        parts = {"Weft": self.own, "the limit": self.limit, **self.peers}
        for name, figure in parts.items():
            if figure.run != self.own.run:
                msg = (
                    f"{self.work}: {name} is from the run {figure.run}, Weft from {self.own.run}; "
                    f"measure them in one run"
                )
                raise DifferentRunsError(msg)

    def cells(self) -> list[str]:
        """As in the table."""
        assert self.own.seconds is not None
        assert self.limit.seconds is not None
        own = self.own.seconds
        others = [
            f"{name} capped"
            if figure.seconds is None
            else f"{name} {format_s(figure.seconds)} ({figure.seconds / own:.2f}x)"
            for name, figure in self.peers.items()
        ]
        limit = f"{format_s(self.limit.seconds)}, {self.limit_of}"
        return [self.work, format_s(own), "; ".join(others), limit, f"{100 * self.limit.seconds / own:.0f} %"]


def format_s(seconds: float) -> str:
    """Three significant digits, with a unit that suits."""
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if seconds >= least:
            return f"{seconds * factor:.3g} {unit}"
    raise ValueError(seconds)


def run_of(path: Path, found: dict[str, Any]) -> str:
    """What tells one run from another: its file, and when it was written."""
    return f"{path.name} of {found['provenance']['date']}"


def rows_of_peers(folder: Path) -> Iterator[Row]:
    """All-reduces on this machine, where memory or sockets are what limits."""
    for path in peers.files_of(folder):
        found = result_files.read(path)
        run = run_of(path, found)
        for row in found["results"]:
            groups: dict[str, list[peers.Cell]] = {}
            for cell in peers.cells_of(row):
                groups.setdefault(cell.kind, []).append(cell)
            for kind, cells in groups.items():
                first = cells[0]
                if first.limit_s is None:
                    continue
                size, ranks = peers.format_size(first.size_bytes), first.ranks
                yield Row(
                    f"all-reduce of {size} {first.dtype}, {ranks} ranks, {TENSORS[kind]}",
                    Figure(first.own["median_s"], run),
                    {cell.peer: Figure(cell.theirs and cell.theirs["median_s"], run) for cell in cells},
                    Figure(first.limit_s, run),
                    "sockets" if kind == "tcp" else "memory",
                )


def rows_of_lab(folder: Path) -> Iterator[Row]:
    """All-reduces on emulated networks, whose bound is the limit."""
    for case in gallery.CASES:
        path = folder / f"{case.name}.json"
        if not path.exists():
            continue
        found = result_files.read(path)
        run = run_of(path, found)
        medians = {one["name"]: Figure(one["median_seconds"], run) for one in found["results"]}
        bound = lower_bound(emulated(gallery.load(case)), "all_reduce", case.size_bytes).seconds
        others = {name: one for name, one in medians.items() if not name.startswith("weft")}
        yield Row(f"all-reduce: {case.title}", medians["weft"], others, Figure(bound, run), "network")


def rows_of_training(folder: Path) -> Iterator[Row]:
    """Iterations of training on emulated networks, beside what no policy can beat there."""
    for name, asked in lab_training.SET_UPS.items():
        path = folder / f"training-{name}.json"
        if not path.exists():
            continue
        found = result_files.read(path)
        ideal = lab_training.ideal_of(asked, found["results"], found["parameters"]["size_bytes"])
        if not ideal:  # there is no limit where computing alone was not measured
            continue
        run = run_of(path, found)
        medians = {row["way"]: statistics.median(row["iteration_s"]) for row in found["results"]}
        others = {
            f"DDP on gloo, {way.split()[1]} MB": Figure(took, run)
            for way, took in medians.items()
            if way.startswith("ddp") and "weft" not in way
        }
        work = f"training: {asked.title}"
        yield Row(work, Figure(medians["auto"], run), others, Figure(ideal["bound_s"], run), "network")


def table(
    peers_folder: Path = peers.FOLDER,
    lab_folder: Path = gallery.FOLDER,
    training_folder: Path = FOLDER / "torch" / "results",
) -> str:
    """All rows, for docs/results.md."""
    rows = [
        *rows_of_peers(peers_folder),
        *rows_of_lab(lab_folder),
        *rows_of_training(training_folder),
    ]
    lines = ["| work | Weft | peers | limit | of the limit |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells())} |" for row in rows)]) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=peers.FOLDER)
    parser.add_argument("--lab", type=Path, default=gallery.FOLDER)
    parser.add_argument("--training", type=Path, default=FOLDER / "torch" / "results")
    given = parser.parse_args()
    print(table(given.peers, given.lab, given.training), end="")


if __name__ == "__main__":
    main()
