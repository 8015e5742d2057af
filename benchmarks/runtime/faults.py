"""What happens to a job when something breaks: every phase, every transport and engine, in real processes.

    python benchmarks/runtime/faults.py matrix       # kills and freezes in every phase
    python benchmarks/runtime/faults.py thaws        # freezes and thaws within an all-reduce on shared memory
    python benchmarks/runtime/faults.py cycles       # one loss after the other in the same processes
    python benchmarks/runtime/faults.py one tcp kill reduce --ranks 4 --victim 2     # a single case, printed

Reports go into the folder faults beside this file. Seconds are taken inside the library: from a stamp just
before the signal, on the clock that all processes of a machine share, to the moment when the exception is
raised. As root, for network namespaces.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import result_files  # noqa: E402
from support.faults import Fault, Nursery, Outcome, Setting, run  # noqa: E402
from support.faults.case import PHASES, START, WAYS  # noqa: E402
from support.faults.trial import run_cycles  # noqa: E402
from support.hosts import Network, make_network  # noqa: E402

FOLDER = Path(__file__).parent / "faults"
HOSTS = 2
SIZES = {2: (0, 1), 4: (0, 2, 3), 8: (0, 4, 7)}
"""Ranks of a job, and which are lost: the first, one in the middle, the last; in large jobs one of these."""

LARGE = 8
ELEMENTS = (1000, 300_000, 2_000_000)
ALGORITHMS = (None, "ring", "direct", "halving_doubling")
SHORT_S = 4.0
"""Of the start, where only the deadline tells of a rank that was never there or is frozen."""


@dataclass(frozen=True)
class Place:
    """Where cases run."""

    nurseries: dict[bool, Nursery]
    network: Network

    def run(self, setting: Setting, fault: Fault) -> Outcome:
        """Run one case."""
        nursery = self.nurseries.get(setting.way in ("torch", "group"))
        return run(setting, fault, nursery, network=self.network if setting.way == "hosts" else None)


@contextmanager
def make_place(ways: Iterable[str]) -> Iterator[Place]:
    """A nursery with torch, one without, and a network."""
    with ExitStack() as stack:
        wanted = {way in ("torch", "group") for way in ways if way != "mpi"}
        nurseries = {torch: stack.enter_context(Nursery(torch=torch)) for torch in wanted}
        yield Place(nurseries, stack.enter_context(make_network(HOSTS)))


def draw(way: str, ranks: int, phase: str, action: str, chance: random.Random) -> Setting:
    """A setting, with what the case does not say drawn by chance."""
    return Setting(
        way,
        ranks,
        elements=chance.choice(ELEMENTS),
        algorithm=chance.choice(ALGORITHMS),
        shared=chance.random() < 0.5,
        timeout=SHORT_S if is_found_by_deadline(action, phase) else 30.0,
        moment=chance.random(),
        closes_first=chance.random() < 0.5,
    )


def can_be(way: str, action: str, phase: str, ranks: int, victim: int) -> bool:
    """Whether there is such a case.

    Under mpirun nobody joins, and a frozen rank is found by the deadline alone. Who is lost among those that
    wait for another is not rank 0, whom others then never meet, and not one of two.
    """
    if way == "mpi":
        return action == "kill" and (phase not in START or phase == "connect")
    return phase != "admitted" or (victim > 0 and ranks > len(SIZES[2]))


def is_found_by_deadline(action: str, phase: str) -> bool:
    """Whether nobody can know sooner: of who never came, and of who froze before there were heartbeats."""
    return phase == "arrive" or (action == "freeze" and phase in START)


def make_fault(action: str, victim: int, phase: str) -> Fault:
    """Frozen ranks thaw in the end."""
    fault = Fault.kill(victim) if action == "kill" else Fault.freeze(victim).then_thaw()
    return fault.during(phase)


def cases_of(
    ways: Iterable[str], actions: Iterable[str], phases: Iterable[str], chance: random.Random
) -> list[tuple[Setting, Fault]]:
    """Every way, action, phase, size and victim once, in an order by chance."""
    found = []
    for way, action, phase in itertools.product(ways, actions, phases):
        for ranks, victims in SIZES.items():
            for victim in victims if ranks < LARGE else [chance.choice(victims)]:
                if not can_be(way, action, phase, ranks, victim):
                    continue
                setting = draw(way, ranks, phase, action, chance)
                found.append((setting, make_fault(action, victim, phase)))
    chance.shuffle(found)
    return found


def run_all(
    cases: list[tuple[Setting, Fault]], side_by_side: int, tell: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Run cases, so many at a time."""
    with (
        make_place({setting.way for setting, _ in cases}) as place,
        ThreadPoolExecutor(side_by_side) as pool,
    ):

        def one(case: tuple[Setting, Fault]) -> dict[str, Any]:
            facts = place.run(*case).summary()
            tell(facts)
            return facts

        return list(pool.map(one, cases))


def summarise(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each way and action, and whether a watch or the deadline tells."""
    rows: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for case in cases:
        by_deadline = is_found_by_deadline(case["action"], case["phase"])
        rows.setdefault((case["way"], case["action"], by_deadline), []).append(case)
    return [_row(*key, some) for key, some in sorted(rows.items())]


def _row(way: str, action: str, by_deadline: bool, cases: list[dict[str, Any]]) -> dict[str, Any]:
    waiting = [case for case in cases if case["phase"] != "close"]
    seconds = sorted(second for case in cases for second in case["seconds_each"])
    survivors = sum(case["ranks"] - 1 for case in waiting)
    return {
        "way": way,
        "action": action,
        "found_by": "deadline" if by_deadline else "watch",
        "cases": len(cases),
        "survivors": survivors,
        "raised": sum(case["raised"] for case in waiting),
        "named_wrongly": sum(case["named_wrongly"] for case in cases),
        "cases_with_problems": sum(bool(case["problems"]) for case in cases),
        "left_behind": sum(case["left_behind"] for case in cases),
        "seconds": {name: quantile(seconds, part) for name, part in (("p50", 50), ("p99", 99), ("max", 100))},
    }


def quantile(ordered: list[float], percent: int) -> float | None:
    """The smallest value that so many percent do not exceed."""
    return round(ordered[max(0, -(-percent * len(ordered) // 100) - 1)], 4) if ordered else None


def tell(facts: dict[str, Any]) -> None:
    """One line on a case."""
    what = " ".join(str(facts[key]) for key in ("way", "action", "phase", "ranks", "victim", "seconds"))
    print(what, *(f"\n    {problem[:300]}" for problem in facts["problems"]), flush=True)


def save(
    wanted: argparse.Namespace,
    started: result_files.Start,
    summary: dict[str, Any] | None,
    cases: list[dict[str, Any]],
) -> None:
    """Write a report with the words of the command line as its parameters."""
    words = {name: value for name, value in vars(wanted).items() if name not in ("run", "output")}
    path = FOLDER / f"{wanted.output}.json"
    print(result_files.write(path, started, parameters=words, summary=summary, results=cases))


def matrix(wanted: argparse.Namespace) -> None:
    """Kill and freeze in every phase."""
    chance, started = random.Random(wanted.seed), result_files.start()
    found = []
    for action, side_by_side in (("kill", wanted.kills_at_once), ("freeze", wanted.freezes_at_once)):
        if action in wanted.actions:
            cases = cases_of(wanted.ways, [action], wanted.phases, chance)[: wanted.cases]
            found += run_all(cases, side_by_side, tell)
    rows = summarise(found)
    for row in rows:
        print(json.dumps(row))
    save(wanted, started, {"by_way": rows}, found)


def thaws(wanted: argparse.Namespace) -> None:
    """Freeze within an all-reduce on shared memory, and see what a rank does that goes on afterwards."""
    chance, started = random.Random(wanted.seed), result_files.start()
    cases = []
    for number in range(wanted.cases):
        ranks = chance.choice((2, 3, 4))
        setting = Setting(
            "memory",
            ranks,
            elements=chance.choice((300_000, 2_000_000, 6_000_000)),
            algorithm=chance.choice(("direct", None, "ring")),
            shared=chance.random() < 0.7,
            moment=chance.random(),
            closes_first=chance.random() < 0.3,
        )
        fault = Fault.freeze(number % ranks).during(chance.choice(("reduce", "gather", "gather")))
        cases.append((setting, fault.then_thaw()))
    found = run_all(cases, wanted.freezes_at_once, tell)
    facts = {
        "freezes": len(found),
        "survivors": sum(case["ranks"] - 1 for case in found),
        "bytes_watched": sum(case["bytes_watched"] for case in found),
        "bytes_changed": sum(case["bytes_changed"] for case in found),
        "cases_with_changes": sum(case["bytes_changed"] > 0 for case in found),
        "cases_with_problems": sum(bool(case["problems"]) for case in found),
    }
    print(facts)
    save(wanted, started, facts, found)


def cycles(wanted: argparse.Namespace) -> None:
    """Lose a rank again and again in the same processes, and see what accumulates."""
    started, found = result_files.start(), []
    with Nursery() as nursery:
        for way in ("memory", "tcp"):
            reports = run_cycles(Setting(way, 3, elements=100_000), wanted.cases, nursery)
            for rank, facts in reports.items():
                named = [one for one in facts if one.get("names") == [2]]
                ending: dict[str, Any] = next(
                    (one for one in facts if "left" in one), {"left": ["it did not end"]}
                )
                warm = next((one["warm_kib"] for one in facts if "warm_kib" in one), None)
                row = {"way": way, "rank": rank, "losses": wanted.cases, "named_rightly": len(named)}
                found.append({**row, "left": ending["left"], "warm_kib": warm, "kib": ending.get("kib")})
                print(found[-1], flush=True)
    save(wanted, started, None, found)


def one(wanted: argparse.Namespace) -> None:
    """Run a single case, and print all that is known of it."""
    setting = Setting(
        wanted.way,
        wanted.ranks,
        elements=wanted.elements,
        algorithm=wanted.algorithm,
        shared=not wanted.private,
        timeout=wanted.timeout,
        moment=wanted.moment,
        closes_first=wanted.closes_first,
    )
    fault = make_fault(wanted.action, wanted.victim, wanted.phase)
    with make_place([wanted.way]) as place:
        outcome = place.run(setting, fault)
    print(json.dumps(outcome.summary(), indent=1))
    for rank, reports in outcome.reports.items():
        print(f"rank {rank} ended with {outcome.codes.get(rank)}", *reports, sep="\n    ")
    print(outcome.output)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(required=True)
    for mode, cases in ((matrix, None), (thaws, 500), (cycles, 1000)):
        words = modes.add_parser(mode.__name__, help=mode.__doc__)
        words.set_defaults(run=mode)
        words.add_argument("--cases", type=int, default=cases)
        words.add_argument("--seed", type=int, default=1)
        words.add_argument("--output", default=mode.__name__)
        words.add_argument("--freezes-at-once", type=int, default=6)
        if mode is matrix:
            words.add_argument("--kills-at-once", type=int, default=2)
            words.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
            words.add_argument("--phases", nargs="+", default=PHASES, choices=PHASES)
            words.add_argument("--actions", nargs="+", default=("kill", "freeze"))
    words = modes.add_parser("one", help=one.__doc__)
    words.set_defaults(run=one)
    words.add_argument("way", choices=WAYS)
    words.add_argument("action", choices=("kill", "freeze"))
    words.add_argument("phase", choices=PHASES)
    words.add_argument("--ranks", type=int, default=4)
    words.add_argument("--victim", type=int, default=1)
    words.add_argument("--elements", type=int, default=300_000)
    words.add_argument("--algorithm")
    words.add_argument("--private", action="store_true", help="arrays in private memory")
    words.add_argument("--timeout", type=float, default=30.0)
    words.add_argument("--moment", type=float, default=0.5)
    words.add_argument("--closes-first", action="store_true")
    wanted = parser.parse_args()
    wanted.run(wanted)


if __name__ == "__main__":
    main()
