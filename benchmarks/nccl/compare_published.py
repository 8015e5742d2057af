"""Published results of nccl-tests beside simulated schedules of NCCL, its own cost model, and Weft's best.

Nothing is fitted. Clusters are the presets dgx-h100 and dgx-a100 with effective speeds, none of which comes
from a collective (`weft.topology.rated_links` names their sources), and latencies are the presets'. Which
algorithm NCCL ran is what the source says, else what NCCL's cost model chooses for the size. Where that is
the ring and the published figure is above what the interfaces of a box carry, it was no ring, and the tree
counts: the same rule for every row. Tables that cannot be drawn, or that their authors posted because
something was wrong, are listed with the reason.

Rings and trees stand there twice: as simulated, and with NCCL's protocols. The second is the simulation on
the same links without latency, of the bytes that a protocol sends, flags included, plus the latency that
NCCL's cost model has for the protocol, and the protocol with which that is least. A third time counts what
the threads of NCCL's channels copy at most, by the tables of that model, where that takes longer than the
links do. The second and the third were decided after the first was seen, and so was the rule for figures
above the interfaces.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

from weft.algorithms import nccl_ring, nccl_tree
from weft.planning import compare
from weft.planning.nccl_costs import PAYLOAD, PROTOCOLS, NcclCluster
from weft.schedule import Schedule
from weft.simulation import simulate
from weft.topology import load_topology
from weft.topology.rated_links import network_port
from weft.units import format_size

HERE = Path(__file__).parent
PUBLISHED = HERE / "published_results.json"
RESULTS = HERE / "compare_published.json"

LARGE: Final = 256 << 20
SMALL: Final = (1 << 10, 64 << 10)
PEAK: Final = 8 << 30
"""Size that stands for a peak whose size the source does not say."""

TOLERANCE: Final = 0.15
_SIMULATED: Final = {"Ring": nccl_ring, "Tree": nccl_tree}
_NAMES: Final = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvls_tree": "NVLSTree"}
_PROTOCOL: Final = re.compile(r"NCCL_PROTO=(\w+)")
_MOST_RANKS_FOR_BEST: Final = 64
"""Weft's best is not searched on more ranks: that takes hours."""

_PORTS: Final = re.compile(r"(\d+)x (\d+) Gb/s")
IDENTITY: Final = ("algorithm", "settings", "note")
SIMULATED_KEYS: Final = (
    *(f"{kind}_{name}_us" for kind in ("simulated", "protocol", "limited") for name in ("ring", "tree")),
    *("best_of_weft", "best_of_weft_us"),
)
KEPT: Final = (
    "kind",
    "source",
    "found_later",
    "gpu",
    "nodes",
    "gpus_per_node",
    "nics_per_node",
    "nic_gbit_per_s",
    "assumed",
    "network",
    "settings",
    "note",
)


def why_not(row: dict[str, Any]) -> str | None:
    """Why a published row is not compared, or None."""
    note, gpu = row["note"] or "", row["gpu"] or ""
    nics, gigabits = ports(row)
    checks = (
        (row["collective"] != "all_reduce", "another collective"),
        ("too slow" in note or "odd:" in note, f"the source says so itself: {note}"),
        (not gpu.startswith(("H100", "A100")), "the GPU is not named, or neither H100 nor A100"),
        (row["algorithm"] not in (None, "Ring", "Tree"), f"{row['algorithm']} sums in switches"),
        (row["nodes"] > 1 and (not nics or not gigabits), "network interfaces are not named"),
        (row["gpus_per_node"] not in (4, 8), f"{row['gpus_per_node']} GPUs of each box"),
    )
    return next((reason for excluded, reason in checks if excluded), None)


def ports(row: dict[str, Any]) -> tuple[int, int]:
    """Network interfaces of a box and Gbit/s of each; 0 where the source does not say."""
    if row["nics_per_node"] is None and row["note"]:
        found = _PORTS.search(row["note"])
        return (int(found[1]), int(found[2])) if found else (0, 0)
    return row["nics_per_node"] or 0, row["nic_gbit_per_s"] or 0


def cluster_of(row: dict[str, Any]) -> tuple[str, NcclCluster]:
    """Preset with effective speeds, and what NCCL's cost model takes.

    Interfaces beyond one for each GPU are bundled: a GPU uses all of its own. In boxes of four GPUs NVLink
    joins these one by one; they are drawn on an NVSwitch of the same speed, so that only NCCL's model knows.
    """
    generation = "hopper" if row["gpu"].startswith("H100") else "ampere"
    preset = "dgx-h100" if generation == "hopper" else "dgx-a100"
    # The CPUs of NVIDIA's own boxes: Intel's in the DGX H100, AMD's in the DGX A100.
    cpu = row["processor"] or ("intel" if generation == "hopper" else "amd")
    gpus: int = row["gpus_per_node"]
    if row["nodes"] == 1:
        return f"{preset}:1@speed=effective", NcclCluster(1, generation=generation, cpu=cpu)
    nics, gigabits = ports(row)
    bundle = max(nics // gpus, 1)
    nics, gigabits = nics // bundle, gigabits * bundle
    speed = network_port(gigabits * 1000).effective
    boxes = f"{preset}:{row['nodes']}" if gpus == 8 else f"rails:{row['nodes']}x{gpus}"
    spec = f"{boxes}@speed=effective,nics={nics},nic={speed // 10**6}MB/s"
    model = NcclCluster(row["nodes"], gpus, generation, nics, gigabits, cpu=cpu, nvswitch=gpus == 8)
    return spec, model


@lru_cache(maxsize=2)
def schedule_of(spec: str, algorithm: str) -> Schedule:
    """NCCL's schedule; only the last ones are kept, because a ring of 1,024 ranks has 17 million rows."""
    schedule: Schedule = _SIMULATED[algorithm].all_reduce(load_topology(spec))
    return schedule


@cache
def simulated(spec: str, algorithm: str, size: int) -> float:
    """Microseconds of a simulated schedule of NCCL."""
    return simulate(schedule_of(spec, algorithm), size).seconds * 1e6


def with_protocol(
    spec: str, model: NcclCluster, algorithm: str, size: int, only: str | None, *, limited: bool = False
) -> float:
    """Microseconds on the same links without latency, plus the protocol's; of the best protocol.

    If `limited`, no less than the channels' threads need to copy.
    """
    latencies = ("lat", "nic_lat", "pcie_lat") if model.boxes > 1 else ("lat",)
    plain = spec + "".join(f",{name}=0s" for name in latencies)
    return min(
        model.latency_microseconds(size, algorithm.lower(), name)
        + max(
            simulated(plain, algorithm, round(size / PAYLOAD[name])),
            size / (1000 * model.copy_limit(algorithm.lower(), name)) if limited else 0.0,
        )
        for name in PROTOCOLS
        if only in (None, name)
    )


@cache
def best_of_weft(spec: str, size: int) -> tuple[str, float]:
    """Name and microseconds of the fastest schedule that is no library's."""
    print(f"best of {spec} at {format_size(size)}", flush=True)
    row = compare(spec, size, time_limit=None).best_of_others
    assert row is not None
    assert row.seconds is not None
    return row.algorithm, row.seconds * 1e6


def algorithm_of(row: dict[str, Any], chosen: str) -> tuple[str, str]:
    """What NCCL ran, and who says so: the source, a setting in it, or NCCL's cost model.

    No ring is faster than the interfaces that it crosses; a tree over two boxes crosses them half as often.
    """
    if row["algorithm"]:
        return row["algorithm"], "source"
    said_by = "cost model"
    if "NVLS_ENABLE=0" in (row["note"] or ""):
        chosen, said_by = "ring", "setting"
    nics, gigabits = ports(row)
    if chosen == "ring" and row["nodes"] > 1 and row["busbw_gb_per_s"] > nics * gigabits / 8:
        return "Tree", "above the interfaces"
    return _NAMES[chosen], said_by


def simulate_row(row: dict[str, Any], *, with_best: bool) -> dict[str, Any]:
    """What has to be simulated for a published row: microseconds, and Weft's best."""
    spec, model = cluster_of(row)
    size = row.get("size_bytes") or PEAK
    forced = forced_protocol(row)
    found: dict[str, Any] = {}
    for name in _SIMULATED:
        found[f"simulated_{name.lower()}_us"] = simulated(spec, name, size)
        found[f"protocol_{name.lower()}_us"] = with_protocol(spec, model, name, size, forced)
    best = best_of_weft(spec, size) if with_best else None
    return {**found, "best_of_weft": best and best[0], "best_of_weft_us": best and best[1]}


def limit_row(row: dict[str, Any]) -> dict[str, float | None]:
    """The same within what the threads of channels copy; not for many ranks, which would take long."""
    spec, model = cluster_of(row)
    size = row.get("size_bytes") or PEAK
    few = model.ranks <= _MOST_RANKS_FOR_BEST
    return {
        f"limited_{name.lower()}_us": with_protocol(
            spec, model, name, size, forced_protocol(row), limited=True
        )
        if few
        else None
        for name in _SIMULATED
    }


def forced_protocol(row: dict[str, Any]) -> str | None:
    """The protocol that the source has set, if any."""
    found = _PROTOCOL.search(row["settings"] or "")
    return found[1] if found else None


def compare_row(row: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """One published row beside what was simulated for it."""
    spec, model = cluster_of(row)
    size = row.get("size_bytes") or PEAK
    ranks = row["nodes"] * row["gpus_per_node"]
    bus_bytes = size * 2 * (ranks - 1) / ranks / 1000
    chosen = model.choose(size)
    algorithm, said_by = algorithm_of(row, chosen.algorithm)
    plain = algorithm.lower() if algorithm in _SIMULATED else ""
    expected = (
        min(model.microseconds(size, plain, name) for name in PROTOCOLS) if plain else chosen.microseconds
    )
    time_us = row.get("time_us") or bus_bytes / row["busbw_gb_per_s"]

    def off(kind: str) -> float | None:
        took = known[f"{kind}_{plain}_us"] if plain else None
        return time_us / took - 1 if took else None

    best_us = known["best_of_weft_us"]
    return {
        **{key: row[key] for key in KEPT},
        "topology": spec,
        "size_bytes": size,
        "size_known": row.get("size_bytes") is not None,
        "published_us": time_us,
        "published_busbw_gb_per_s": row["busbw_gb_per_s"],
        "algorithm": algorithm,
        "algorithm_said_by": said_by,
        **{key: known[key] for key in SIMULATED_KEYS},
        **{
            f"{kind}_{name}_busbw_gb_per_s": bus_bytes / known[f"{kind}_{name}_us"]
            for kind in ("simulated", "protocol")
            for name in ("ring", "tree")
        },
        "deviation_of_busbw": off("simulated"),
        "protocol_deviation_of_busbw": off("protocol"),
        "limited_deviation_of_busbw": off("limited"),
        "model_us": expected,
        "model_busbw_gb_per_s": bus_bytes / expected,
        "best_of_weft_busbw_gb_per_s": best_us and bus_bytes / best_us,
    }


def table_of(row: dict[str, Any]) -> tuple[str, ...]:
    """What rows of one table share."""
    return tuple(str(row[key]) for key in ("kind", "source", "gpu", "nodes", "network", *IDENTITY))


def main() -> None:
    """Compare, and write compare_published.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-best", action="store_true", help="leave out Weft's best")
    parser.add_argument("--keep", action="store_true", help="take what was simulated from the result file")
    given = parser.parse_args()
    started = result_files.start()
    published = json.loads(PUBLISHED.read_text("utf-8"))["results"]
    largest: dict[tuple[str, ...], int] = {}
    for row in published:
        largest[table_of(row)] = max(largest.get(table_of(row), 0), row.get("size_bytes") or PEAK)
    before = json.loads(RESULTS.read_text("utf-8")) if given.keep else {"results": []}
    stored = {
        (row["source"], row["topology"], row["size_bytes"], row["published_busbw_gb_per_s"]): row
        for row in before["results"]
        if row["kind"] != "excluded"
    }
    kept_commit = before.get("parameters", before).get("simulated_at")
    kept_commit = kept_commit or before.get("provenance", {}).get("commit")
    results: list[dict[str, Any]] = []
    excluded: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in published:
        reason = why_not(row)
        if reason is not None:
            about = {"source": row["source"], "nodes": row["nodes"], "reason": reason}
            excluded[table_of(row)] = {"kind": "excluded", **about}
            continue
        size = row.get("size_bytes") or PEAK
        shown = size == SMALL[0] or (size >= LARGE and size == largest[table_of(row)])
        shown &= row["nodes"] * row["gpus_per_node"] <= _MOST_RANKS_FOR_BEST
        place = (row["source"], cluster_of(row)[0], size, row["busbw_gb_per_s"])
        known = stored.get(place) or simulate_row(row, with_best=shown and not given.without_best)
        if "limited_ring_us" not in known:
            known = {**known, **limit_row(row)}
        found = compare_row(row, known)
        results.append({**found, "largest_of_table": size == largest[table_of(row)]})
    result_files.write(
        RESULTS,
        started,
        parameters={
            "large_bytes": LARGE,
            "tolerance": TOLERANCE,
            "peak_bytes": PEAK,
            "simulated_at": kept_commit or started.commit,
        },
        summary={"compared": len(results), "excluded": len(excluded), **count_near(results)},
        results=results + list(excluded.values()),
    )


def count_near(results: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows there are and are near: large, of a named algorithm, small, summed in the NVSwitch.

    The last are near or not by NCCL's own cost model alone, because sums in switches are not simulated.
    """
    run = [row for row in results if row["deviation_of_busbw"] is not None]
    large = [row for row in run if row["size_bytes"] >= LARGE]
    groups = {
        "large": large,
        "large_named": [row for row in large if row["algorithm_said_by"] == "source"],
        "small": [row for row in run if row["size_bytes"] <= SMALL[-1]],
    }
    counts: dict[str, int] = {}
    for group, rows in groups.items():
        counts[group] = len(rows)
        counts[f"{group}_within"] = sum(abs(row["deviation_of_busbw"]) <= TOLERANCE for row in rows)
        for kind in ("protocol", "limited"):
            found = [row[f"{kind}_deviation_of_busbw"] for row in rows]
            counts[f"{group}_within_with_{kind}"] = sum(
                abs(off) <= TOLERANCE for off in found if off is not None
            )
        counts[f"{group}_within_by_model"] = sum(map(is_near_by_model, rows))
    in_switch = [row for row in results if row["algorithm"].startswith("NVLS") and row["size_bytes"] >= LARGE]
    counts["large_in_switch"] = len(in_switch)
    counts["large_in_switch_within_by_model"] = sum(map(is_near_by_model, in_switch))
    return counts


def is_near_by_model(row: dict[str, Any]) -> bool:
    """Whether NCCL's own cost model comes near to a published row."""
    return bool(abs(row["published_us"] / row["model_us"] - 1) <= TOLERANCE)


def _kept() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["results"]
    return found


def _machine(row: dict[str, Any]) -> str:
    nics, gigabits = ports(row)
    network = f", {nics} x {gigabits} Gbit/s" if row["nodes"] > 1 else ""
    assumed = " (assumed)" if row["assumed"] else ""
    return f"{row['nodes']} x {row['gpus_per_node']} {row['gpu'][:4]}{network}{assumed}"


def _source(row: dict[str, Any]) -> str:
    issue = re.fullmatch(r"https://github.com/NVIDIA/([a-z-]+)/issues/(\d+)", row["source"])
    if issue:
        return f"[{issue[1]} {issue[2]}]({row['source']})"
    known = re.match(r"https?://(?:github\.com/)?([^/: ]+(?:/[^/: ]+)?)", row["source"])
    return known[1] if known else row["source"].split(",")[0][:30]


def _head(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"


def _best(row: dict[str, Any], unit: str) -> str:
    value = row[f"best_of_weft_{unit}"]
    return "" if value is None else f"{value:.0f} ({row['best_of_weft']})"


def _percent(off: float | None) -> str:
    return "" if off is None else f"{100 * off:+.0f} %"


def large_table() -> str:
    """Largest size of every table: busbw in GB/s."""
    lines = [
        _head(
            *("boxes and interfaces", "size", "source", "NCCL ran", "published", "ring", "tree", "deviation"),
            *("ring, protocol", "tree, protocol", "NCCL's model", "Weft's best"),
        )
    ]
    for row in _kept():
        if row["kind"] == "excluded" or row["size_bytes"] < LARGE or not row["largest_of_table"]:
            continue
        said = "" if row["algorithm_said_by"] == "source" else "?"
        off = row["deviation_of_busbw"]
        cells = [
            *(_machine(row), format_size(row["size_bytes"]) if row["size_known"] else "peak", _source(row)),
            row["algorithm"] + said,
            *(
                f"{row[f'{name}_busbw_gb_per_s']:.0f}"
                for name in ("published", "simulated_ring", "simulated_tree")
            ),
            _percent(off),
            f"{row['protocol_ring_busbw_gb_per_s']:.0f}",
            f"{row['protocol_tree_busbw_gb_per_s']:.0f}",
            f"{row['model_busbw_gb_per_s']:.0f}",
            _best(row, "busbw_gb_per_s"),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def deviation_table() -> str:
    """Deviations of every large row whose algorithm is simulated, by how much of NCCL is counted."""
    heads = ("boxes and interfaces", "size", "source", "NCCL ran", "published", "simulated")
    lines = [_head(*heads, "with protocol", "within channels", "NCCL's model")]
    for row in _kept():
        if row["kind"] == "excluded" or row["size_bytes"] < LARGE or row["deviation_of_busbw"] is None:
            continue
        said = "" if row["algorithm_said_by"] == "source" else "?"
        cells = [
            *(_machine(row), format_size(row["size_bytes"]), _source(row), row["algorithm"] + said),
            f"{row['published_busbw_gb_per_s']:.0f}",
            *(_percent(row[f"{kind}deviation_of_busbw"]) for kind in ("", "protocol_", "limited_")),
            _percent(row["published_us"] / row["model_us"] - 1),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def small_table() -> str:
    """Small messages: microseconds."""
    lines = [
        _head(
            "boxes and interfaces",
            "size",
            "source",
            "published",
            "ring",
            "tree",
            "ring, protocol",
            "tree, protocol",
            "NCCL's model",
            "Weft's best",
        )
    ]
    for row in _kept():
        if row["kind"] == "excluded":
            continue
        # Of an excerpt that ends before 1 KiB the largest size stands.
        ends_before = row["largest_of_table"] and row["size_bytes"] < SMALL[0]
        if row["size_bytes"] not in SMALL and not ends_before:
            continue
        cells = [
            *(_machine(row), format_size(row["size_bytes"]), _source(row)),
            *(
                f"{row[name]:.0f}"
                for name in (
                    *("published_us", "simulated_ring_us", "simulated_tree_us"),
                    *("protocol_ring_us", "protocol_tree_us", "model_us"),
                )
            ),
            _best(row, "us"),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def excluded_table() -> str:
    """Published tables that are not compared, and why."""
    found = [row for row in _kept() if row["kind"] == "excluded"]
    rows = (f"| {_source(row)} | {row['nodes']} | {row['reason']} |\n" for row in found)
    return _head("source", "boxes", "reason") + "".join(rows)


if __name__ == "__main__":
    main()
