"""Six emulated clusters, probed: how near the speeds are, and how good a plan made from the probed file is.

python benchmarks/lab/probe.py        # as root, five minutes; into probe.json beside this file

Both plans are timed on the emulated network, in turn, and by the engine: what planning loses because it was
told what was measured, and not what is there. Speeds are payload: of each frame, 4.4 % are headers.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.lab import Network, build, emulated
from weft.lab.contest import Entrant, hold
from weft.runtime.launcher.launch import launch
from weft.schedule import Schedule
from weft.topology import Topology, load_topology

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SLOW_NIC = [(host, "s0", "8Mbit/s" if host == 3 else "40Mbit/s", "40Mbit/s") for host in range(5)]
SLOW_CABLES = [
    (0, 1, "40Mbit/s", "40Mbit/s"),
    (1, 2, "40Mbit/s", "8Mbit/s"),
    (2, 3, "40Mbit/s", "40Mbit/s"),
    (0, 3, "12Mbit/s", "12Mbit/s"),
]
CLUSTERS = {
    "star": "switch:6@bw=40Mbit/s",
    "torus": "torus:2x4@bw=20Mbit/s",
    "two leaves": "fattree:2,1,3@bw=40Mbit/s,uplink=40Mbit/s",
    "uneven hosts": "hosts:4,2,1@uplink=40Mbit/s/20Mbit/s/10Mbit/s",
    "slow card": SLOW_NIC,
    "slow cables": SLOW_CABLES,
}
SIZE = 4 << 20
ROUNDS = 7
PLANNING_S = 30.0
ROUTE = -1


def make_truth(name: str, description: Any, folder: Path) -> Topology:
    """Spec, or cables in a file."""
    if isinstance(description, str):
        return load_topology(description)
    ranks = 1 + max(end for cable in description for end in cable[:2] if isinstance(end, int))
    lines = [f'name = "{name}"', f"ranks = {ranks}", f"switches = {int(description[0][1] == 's0')}"]
    for src, dst, there, back in description:
        lines += ["[[links]]", f"src = {src}", f"dst = {json.dumps(dst)}", f'bandwidth = "{there}"']
        lines += [f'back = "{back}"', 'latency = "20us"', "duplex = true"]
    path = folder / "truth.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return load_topology(path)


def probe(network: Network, folder: Path) -> tuple[Topology, dict[str, Any], float]:
    """Topology file and report of ``weft probe`` in a lab, and the seconds that it took."""
    path, out, err = folder / "probed.toml", io.BytesIO(), io.BytesIO()
    command = [str(Path(sys.executable).with_name("weft")), "probe", "-o", str(path), "--json"]
    began = time.monotonic()
    done = launch(command, network.topology.ranks, out=out, err=err, seats=network.seats())
    took = time.monotonic() - began
    if done.exit_code:
        raise SystemExit(err.getvalue().decode())
    text = "".join(line.removeprefix("[0] ") for line in out.getvalue().decode().splitlines())
    return load_topology(path), json.loads(text), took


def on(truth: Topology, schedule: Schedule) -> Schedule:
    """The same transfers on the true network: over the same cables, or the network's own way."""
    found = schedule.topology
    if not truth.direct:
        nothing = {"route_offsets": np.zeros(1, np.int64), "route_links": np.zeros(0, np.int32)}
        return replace(schedule, topology=truth, route=np.full_like(schedule.route, ROUTE), **nothing)
    ends = zip(found.link_src.tolist(), found.link_dst.tolist(), strict=True)
    same = np.array([truth.links_between(*pair)[0] for pair in ends], np.int32)
    return replace(schedule, topology=truth, route_links=same[schedule.route_links])


def plan_time(plan: weft.Plan, truth: Topology) -> tuple[str, float]:
    """Algorithm that a plan chooses, and its simulated time on the true network."""
    choice = plan.choose(SIZE)
    schedule = on(truth, choice.schedule)
    result = weft.simulate(
        schedule, SIZE, segment_bytes=choice.segment_bytes, sharing="fluid", element_bytes=4
    )
    return choice.algorithm, result.seconds


def worst_speed(found: Topology, truth: Topology) -> float | None:
    """Largest relative difference of a link that both have; None if they are not made alike."""
    if (found.switches, found.links) != (truth.switches, truth.links):
        return None
    off = []
    for link in range(truth.links):
        same = found.links_between(int(truth.link_src[link]), int(truth.link_dst[link]))[0]
        off.append(abs(int(found.bandwidth[same]) / int(truth.bandwidth[link]) - 1))
    return round(max(off), 3)


def measure(name: str, description: Any) -> dict[str, Any]:
    """One cluster."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        described = make_truth(name, description, folder)
        truth = emulated(described)
        with build(described) as network:
            found, report, seconds = probe(network, folder)
            # With the addresses of the cables, which a user who draws the truth would give.
            drawn = replace(truth, addresses=network.topology.addresses)
            plans = [weft.plan(where, SIZE, time_limit=PLANNING_S) for where in (drawn, found)]
            entrants = [Entrant(who, plan=plan) for who, plan in zip(("weft", "probed"), plans, strict=True)]
            from_truth, from_probe = hold(network, entrants, SIZE, rounds=ROUNDS, timeout=300)
    best_algorithm, best = plan_time(plans[0], truth)
    algorithm, planned = plan_time(plans[1], truth)
    measured = from_probe.median_seconds / from_truth.median_seconds
    result = {
        "cluster": name,
        "truth": described.name,
        "probe_s": round(seconds, 1),
        "rounds": len(report["rounds"]),
        "worst_speed_deviation": worst_speed(found, truth),
        "groups": report["groups"],
        "explained": report["explained"],
        "notes": report["notes"],
        "links": {
            one["link"]: {
                "bytes_per_s": one["bandwidth"],
                "spread": one["spread"],
                "samples": one["samples"],
            }
            for one in report["links"]
        },
        "plan_from_probe": {"algorithm": algorithm, "simulated_s": round(planned, 4)},
        "plan_from_truth": {"algorithm": best_algorithm, "simulated_s": round(best, 4)},
        "simulated_ratio": round(planned / best, 4),
        "measured_from_probe_s": from_probe.seconds,
        "measured_from_truth_s": from_truth.seconds,
        "measured_ratio": round(measured, 4),
    }
    near = f"speeds within {result['worst_speed_deviation']}, plans {planned / best:.3f}"
    print(f"{name:14} {seconds:5.1f} s  {near}, measured {measured:.3f}", flush=True)
    return result


def main() -> None:
    """Measure all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="clusters, by default all")
    names = parser.parse_args().names or list(CLUSTERS)
    started = result_files.start()
    results = [measure(name, CLUSTERS[name]) for name in names]
    parameters = {"size_bytes": SIZE, "rounds": ROUNDS, "planning_s": PLANNING_S}
    result_files.write(Path(__file__).with_suffix(".json"), started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
