"""Topology-aware against topology-blind, on the wire: contests in the lab, raw times into JSON.

A case is one emulated cluster with those who run on it; it becomes one file in ``results`` beside this script
and one picture in ``docs/images``. It needs root, iproute2, torch and Open MPI, and a machine that does
nothing else.

    python benchmarks/lab/gallery.py                       # all cases; half an hour on 2 cores
    python benchmarks/lab/gallery.py --only torus-2x4      # one of them; may be repeated
    python benchmarks/lab/gallery.py --quick               # one round each: does everything run?
    python benchmarks/lab/gallery.py --table               # what is there already, for docs/lab.md
    python benchmarks/lab/gallery.py --pictures            # draw that anew
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from charts import Bar, draw_bars

from weft import lab
from weft.algorithms import halving_doubling, registry
from weft.lab.contest import Entrant, hold, peers_of
from weft.topology import Topology, load_topology
from weft.topology.toml_file import parse_toml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

FOLDER = Path(__file__).with_name("results")
IMAGES = Path(__file__).parents[2] / "docs" / "images"
ROUNDS = 7


def algorithms(*names: str) -> Callable[[Topology], list[Entrant]]:
    """Weft with schedules of its own, as users could have had them without a plan."""

    def make(topology: Topology) -> list[Entrant]:
        return [
            Entrant(f"weft {name}", schedule=registry.find(name).build(topology, "all_reduce", 0))
            for name in names
        ]

    return make


def exchanges(topology: Topology) -> list[Entrant]:
    """HDRM, and halving-doubling on ranks as they come, in both orders."""
    both = [
        Entrant(f"weft halving-doubling, {order} first", schedule=schedule)
        for order in ("nearest", "farthest")
        for schedule in [halving_doubling.all_reduce(topology, order=order)]
    ]
    return [*algorithms("hdrm")(topology), *both]


@dataclass(frozen=True)
class Case:
    """One contest."""

    name: str
    title: str
    topology: str
    size_bytes: int
    against: tuple[str, ...] = ("gloo",)
    entrants: Callable[[Topology], list[Entrant]] = field(default=lambda _topology: [])


def star(speeds: Iterable[str]) -> str:
    """A switch with a cable of each of these speeds."""
    links = [
        f'[[links]]\nsrc = {rank}\ndst = "s0"\nbandwidth = "{speed}"\nlatency = "10us"\nduplex = true\n'
        for rank, speed in enumerate(speeds)
    ]
    return f'name = "one slow NIC"\nranks = {len(links)}\nswitches = 1\n' + "\n".join(links)


CASES = [
    Case(
        "star",
        "Star of 8, 50 Mbit/s, 4 MB: nothing to win",
        "switch:8@bw=50Mbit/s",
        4_000_000,
        ("gloo", "mpi", "mpi4"),
    ),
    Case(
        "torus-2x4",
        "Torus 2x4, 20 Mbit/s, 4 MB, hashed paths",
        "torus:2x4@bw=20Mbit/s,routing=ecmp,seed=4",
        4_000_000,
        entrants=algorithms("multitree"),
    ),
    Case(
        "torus-4x4",
        "Torus 4x4, 10 Mbit/s, 4 MB, hashed paths",
        "torus:4x4@bw=10Mbit/s,routing=ecmp",
        4_000_000,
        entrants=algorithms("multitree"),
    ),
    Case(
        "mesh-4x4",
        "Mesh 4x4, 10 Mbit/s, 4 MB",
        "mesh:4x4@bw=10Mbit/s",
        4_000_000,
        entrants=algorithms("bidirectional_ring", "multitree", "bucket"),
    ),
    Case(
        "uneven-hosts",
        "Hosts with 4, 2 and 1 ranks behind 40, 20 and 10 Mbit/s, 4 MB",
        "hosts:4,2,1@uplink=40Mbit/s/20Mbit/s/10Mbit/s",
        4_000_000,
        ("gloo", "mpi"),
        entrants=algorithms("hierarchical"),
    ),
    Case(
        "slow-nic",
        "Star of 8, 40 Mbit/s, one of them 10 Mbit/s, 4 MB",
        star(["40Mbit/s"] * 7 + ["10Mbit/s"]),
        4_000_000,
        ("gloo", "mpi"),
        entrants=algorithms("halving_doubling"),
    ),
    Case(
        "bigraph",
        "BiGraph(2,4), 20 Mbit/s, 500 kB, whole messages",
        "bigraph:2,4@bw=20Mbit/s",
        500_000,
        entrants=exchanges,
    ),
]


def load(case: Case) -> Topology:
    """The cluster of a case."""
    return parse_toml(case.topology, case.name) if "\n" in case.topology else load_topology(case.topology)


def run(case: Case, rounds: int) -> dict[str, Any]:
    """Hold a contest; everything that was measured, as it is in the file."""
    began = time.monotonic()
    with lab.build(load(case)) as network:
        built = time.monotonic() - began
        entrants = [Entrant("weft"), *case.entrants(network.topology)]
        everyone = [*entrants, *peers_of(network, case.against)]
        tell = lambda now: print(f"  {now}", file=sys.stderr, flush=True)  # noqa: E731
        outcomes = hold(network, everyone, case.size_bytes, rounds=rounds, timeout=600, progress=tell)
    parameters = {
        "name": case.name,
        "title": case.title,
        "topology": case.topology,
        "ranks": network.topology.ranks,
        "size_bytes": case.size_bytes,
        "rounds": rounds,
    }
    results = [{**asdict(one), "deviation": one.deviation} for one in outcomes]
    return {"parameters": parameters, "summary": {"build_s": built}, "results": results}


def ratio(found: dict[str, Any], one: dict[str, Any]) -> float:
    """How many times as long as Weft somebody took."""
    return float(one["median_seconds"] / found["results"][0]["median_seconds"])


def table() -> str:
    """All results that are stored, for docs/lab.md."""
    return format_table(stored())


def format_table(results: list[dict[str, Any]]) -> str:
    """Results for people."""
    lines = [
        "| cluster | who | algorithm | median s | fastest to slowest | predicted s | off | times weft's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in results:
        title = found["parameters"]["title"]
        for one in found["results"]:
            predicted = one["predicted_seconds"]
            cells = [
                title,
                one["name"],
                one["algorithm"] or "",
                f"{one['median_seconds']:.3f}",
                f"{min(one['seconds']):.3f} to {max(one['seconds']):.3f}",
                "" if predicted is None else f"{predicted:.3f}",
                "" if predicted is None else f"{100 * one['deviation']:+.1f} %",
                f"{ratio(found, one):.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
            title = ""
    return "\n".join(lines) + "\n"


def picture(found: dict[str, Any]) -> str:
    """The same as bars."""
    bars = [
        Bar(
            one["name"] if one["name"] != "weft" else f"weft: {one['algorithm']}",
            one["median_seconds"],
            (min(one["seconds"]), max(one["seconds"])),
            one["predicted_seconds"],
            own=one["runtime"] == "weft",
        )
        for one in found["results"]
    ]
    return draw_bars(found["parameters"]["title"], bars)


def stored() -> list[dict[str, Any]]:
    """What was measured before."""
    files = [FOLDER / f"{case.name}.json" for case in CASES]
    return [result_files.read(file) for file in files if file.exists()]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--pictures", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(), end="")
        return
    if not given.pictures:
        for case in CASES:
            if given.only is None or case.name in given.only:
                print(case.title, file=sys.stderr, flush=True)
                started = result_files.start()
                found = run(case, 1 if given.quick else ROUNDS)
                print(format_table([found]), flush=True)
                if not given.quick:
                    result_files.write(FOLDER / f"{case.name}.json", started, **found)
    for found in stored():
        (IMAGES / f"lab-{found['parameters']['name']}.svg").write_text(picture(found), "utf-8")


if __name__ == "__main__":
    main()
