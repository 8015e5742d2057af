"""Sentences of README.md and docs, with the figures that the results give them.

Text around a figure is repeated here as far as it says what the figure is, so that a page that no longer says
what was measured fails `tests/unit/test_doc_figures.py`. Words such as "none" stand here for a zero, and are
checked like numbers.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import result_files

from weft.papers.claims import VERDICTS
from weft.papers.outcomes import stored

FOLDER = Path(__file__).parent
COSTS = ("ns_per_transfer", "user_ns_per_transfer")
OWN_ENGINE = ("memory", "copy", "tcp", "hosts")
"""Ways of `runtime/faults.py` on which Weft itself moves the data."""


def all_sentences() -> dict[str, list[str]]:
    """What each page must say, by its path in the repository."""
    return {
        "README.md": readme(),
        "docs/bench.md": bench(),
        "docs/bounds.md": bounds(),
        "docs/dear.md": dear(),
        "docs/forest.md": forest(),
        "docs/guarantees.md": guarantees(),
        "docs/lab.md": lab(),
        "docs/nccl.md": nccl(),
        "docs/papers/ace.md": ace(),
        "docs/probe.md": probe(),
        "docs/report.md": report(),
        "docs/runtime.md": runtime(),
        "docs/simulation.md": simulation(),
        "docs/studio.md": studio(),
        "docs/verification.md": verification(),
    }


def simulation() -> list[str]:
    """Cost per transfer of growing rings, and the peer's process."""
    *rings, peer = results_of("simulation/ring_scaling")["results"]
    spans = {}
    for stage in ("simulation", "verification"):
        costs = {ring["ranks"]: ring["stages"][stage] for ring in rings}
        spans[stage] = [costs[ranks][kind] for kind in COSTS for ranks in (1024, 4096)]
    ratio, user = peer["peer_over_weft_process"], peer["peer_over_weft_process_user"]
    simulated, verified = spans["simulation"], spans["verification"]
    return [
        (
            f"`weft.simulate` takes {simulated[0]:.0f} ns per transfer at 1,024 ranks "
            f"and {simulated[1]:.0f} at 4,096"
        ),
        f"in user mode {simulated[2]:.0f} and {simulated[3]:.0f}",
        (
            f"`weft.verify` takes {verified[0]:.0f} and {verified[1]:.0f} ns, "
            f"{verified[2]:.0f} and {verified[3]:.0f} of them"
        ),
        (
            f"{ratio['median']:.1f} times as much CPU time as Weft's whole process "
            f"({ratio['min']:.1f} to {ratio['max']:.1f}), {user['median']:.1f} times as much in user mode"
        ),
    ]


def readme() -> list[str]:
    """DeAR, the evidence, and the claims of the papers."""
    times = iteration_medians("hosts")
    memory = peer_ratios("gloo", "private-float32", "shared-float32")
    tcp = peer_ratios("gloo", "tcp-ring")
    gloo = [*memory, *tcp, *peer_ratios("gloo", "private-float16", "private-bfloat16")]
    small, large = [], []
    for peer in ("mpi", "mpi4"):
        small += peer_ratios(peer, "private-float32", most=2 << 20)
        large += peer_ratios(peer, "private-float32", least=16 << 20)
    mutants = results_of("verification/mutants")
    return [
        f"it is {times['wfbp'] / times['dear']:.2f} times as fast as all-reduces behind the backward pass",
        (
            f"and {times['ddp 25'] / times['dear']:.2f} times as fast as DDP on Gloo with its default "
            f"buckets, "
            f"{times['ddp 1'] / times['dear']:.2f} times with buckets of 1 MB"
        ),
        (
            f"faster than Gloo in {sum(ratio > 1 for ratio in gloo)} of {len(gloo)} measured cases. "
            f"Open MPI is faster in {sum(ratio < 1 for ratio in small)} of {len(small)} cases up to 2 MiB, "
            f"and slower in {word_for_zero('all', sum(ratio < 1 for ratio in large))} {len(large)} "
            f"from 16 MiB on"
        ),
        (
            f"Brute-force execution of {mutants['parameters']['mutants']:,} mutated schedules agrees with it "
            f"{word_for_zero('every time', mutants['summary']['disagreements'])}"
        ),
        (
            f"Gloo takes {short(min(memory))} to {short(max(memory))} times as long through shared "
            f"memory and "
            f"{short(min(tcp))} to {short(max(tcp))} times over TCP"
        ),
        (
            f"Open MPI is faster up to about 2 MiB (down to {short(min(small))} times as long), and takes "
            f"{short(min(large), 2)} to {short(max(large))} times as long from 16 MiB on"
        ),
        planned_deviation(),
        *claims(),
    ]


def claims() -> list[str]:
    """How the claims of the papers came out, and the figures that the table of papers has of them."""
    found = [one for entry in stored().values() for one in entry.outcomes.values()]
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in VERDICTS}
    ours = {one.claim_id: one.ours for one in found}
    return [
        (
            f"Of {len(found)} claims of five papers {counts['within_10']} are within 10 %, "
            f"{counts['within_25']} within 25 %, {counts['not_reproduced']} not reproduced, "
            f"{counts['no_number']} have no number"
        ),
        (
            f"{ours['multitree-all-reduce-ring']:.2f}x over ring (paper 2.3x), "
            f"{ours['multitree-all-reduce-2d-ring']:.2f}x over 2D-ring (1.56x)"
        ),
        f"HDRM up to {ours['eflops-hdrm']:.2f}x on an oversubscribed network (6.08x)",
        f"a NIC for each GPU {ours['eflops-nic']:.2f}x, **not 11.3x**",
        f"faster than four conventional ones in {ours['flexreduce-asymmetric']:.0f} % of 72 uneven cases",
        f"{ours['dear-ethernet']:.0f} to 14 % over the best rival on Ethernet",
        f"{ours['ace-memory']:.1f}x less memory bandwidth (3.5x)",
        (
            f"ResNet-50 {ours['ace-resnet50']:.2f}x (1.41x), GNMT {ours['ace-gnmt']:.2f}x (1.12x), "
            f"**DLRM {ours['ace-dlrm']:.2f}x (1.13x) not reproduced**"
        ),
    ]


def bench() -> list[str]:
    """Where Weft is not ahead."""
    shared = peer_ratios("gloo", "shared-float32", least=16 << 20, ranks=(4, 8))
    return [
        f"**Shared tensors at 4 and 8 ranks** are {statistics.median(shared):.0f} times ahead of Gloo",
        f"medians of {peer_rounds()} rounds in turn",
    ]


def bounds() -> list[str]:
    """What a bound costs."""
    torus = row_of("bounds/searches", topology="torus:32x32")
    return [
        (
            f"A torus of 1024 ranks takes {torus['densest_cut_cpu_s']:.2f} CPU s for the equal-shard cut and "
            f"{torus['strongest_partition_cpu_s']:.2f} for the best division, in all about "
            f"{torus['lower_bound_all_reduce_cpu_s']:.1f} for a bound"
        )
    ]


def dear() -> list[str]:
    """Emulated clusters, losses, overhead."""
    hosts = results_of("torch/results/training-hosts")["summary"]["ratios"]
    times, slow = iteration_medians("hosts"), iteration_medians("slow-compute")
    grid = results_of("torch/results/training-torus")["summary"]["ratios"]
    near = [slow[way] for way in ("auto", "dear", "wfbp", "ddp 1")]
    losses = [second for row in results_of("torch/results/losses")["results"] for second in row["all_s"]]
    cost = results_of("torch/results/overhead")
    alone = row_of("torch/results/overhead", way="alone")["step_cpu_us"] / cost["parameters"]["layers"]
    return [
        (
            f"DeAR is {times['wfbp'] / times['dear']:.2f} times as fast as WFBP on the same runtime, of the "
            f"{hosts['ideal wfbp / ideal dear']:.2f} that perfect overlap would give, "
            f"{times['ddp 1'] / times['dear']:.2f} times as fast as DistributedDataParallel on gloo with "
            f"buckets of the best size, and {times['ddp 25'] / times['dear']:.2f} times with torch's default"
        ),
        (
            f"Of the time that perfect overlap would save over WFBP, DeAR saves "
            f"{100 * hosts['share of the ideal gain, dear']:.0f} %, left to choose "
            f"{100 * hosts['share of the ideal gain, auto']:.0f} %"
        ),
        f"All but torch's default buckets are within {100 * (max(near) / min(near) - 1):.0f} % of each other",
        (
            f"Left to choose, it takes DeAR: {grid['best ddp on gloo / auto']:.2f} times as fast as "
            f"DistributedDataParallel on gloo with its ranks in the best order, which is "
            f"{100 * grid['share of what the bound allows over ddp on gloo']:.0f} % of what the bound of "
            f"this network allows. Of the time that perfect overlap would save over WFBP, DeAR saves "
            f"{100 * grid['share of the ideal gain, dear']:.0f} % there, left to choose "
            f"{100 * grid['share of the ideal gain, auto']:.0f} %"
        ),
        f"it took {min(losses):.2f} to {max(losses):.2f} s in {len(losses)} jobs of four ranks",
        (
            f"{cost['summary']['per_parameter']['cpu_us']:.0f} us of processor time per parameter for "
            f"its hook, "
            f"its copy and its update, and {cost['summary']['per_group']['cpu_us']:.0f} us per fusion group, "
            f"{cost['summary']['per_group']['all_threads_us']:.0f} us with the runtime's thread"
        ),
        (
            "an optimizer for each layer costs "
            f"{cost['summary']['of_which_the_optimizers_call']['cpu_us']:.0f} us per layer"
        ),
        f"a linear layer of 16x16 takes {alone:.0f} us forward, backward and update",
        f"at a load of {cost['provenance']['load_before'][0]:.0f}",
    ]


def forest() -> list[str]:
    """Beside equal shards, and how long a packing takes."""
    mesh, torus = (
        row_of("forest/finite", kind="time", topology=spec, size="1GiB")["times_equal_shard_optimum"]
        for spec in ("mesh:8x8", "torus:8x8+fail=0-1")
    )
    packings = results_of("forest/packing")["results"]
    small, large = (
        [row for row in packings if least <= row["ranks"] <= most] for least, most in ((1, 64), (257, 2000))
    )
    one_way = row_of("forest/packing", topology="torus:16x16@bw=1GB/s+fail=0>1")
    gap_256 = max(row["gap_percent"] for row in packings if row["ranks"] == 256)
    return [
        (
            f"On an 8x8 mesh that is {mesh:.2f} times what equal shards can reach at best, on the torus "
            f"with a "
            f"dead link {torus:.2f} times"
        ),
        (
            f"Up to 64 ranks the gap is {max(row['gap_percent'] for row in small):.2f} % in at most "
            f"{max(row['cpu_seconds'] for row in small):.1f} CPU s"
        ),
        (
            f"At 256 ranks it is at most {gap_256:.1f} %; a torus with a one-way dead link takes "
            f"{one_way['cpu_seconds']:.0f} CPU s"
        ),
        (
            f"At 1024 ranks it is at most {max(row['gap_percent'] for row in large):.1f} % in "
            f"{max(row['cpu_seconds'] for row in large):.0f}"
        ),
    ]


def guarantees() -> list[str]:
    """Losses, damaged frames, damaged files, strangers, floods, checksums."""
    matrix = results_of("runtime/faults/matrix")
    cases, by_way = matrix["results"], matrix["summary"]["by_way"]
    kills = [case for case in cases if case["action"] == "kill"]
    known = sum(row["cases"] for row in by_way if (row["action"], row["found_by"]) == ("kill", "watch"))
    own = seconds_of(by_way, cases, "kill", OWN_ENGINE)
    in_torch = seconds_of(by_way, cases, "kill", ("torch",))
    frozen = seconds_of(by_way, cases, "freeze", (*OWN_ENGINE, "torch", "group"))
    raised = {
        ways: (sum(row["raised"] for row in rows), sum(row["named_wrongly"] for row in rows))
        for ways, rows in (
            ("own", [row for row in by_way if row["way"] in OWN_ENGINE]),
            ("all", [row for row in by_way if row["way"] != "mpi"]),
        )
    }
    group = {what: results_of(f"runtime/faults/matrix-group-{what}") for what in ("kills", "freezes")}
    p99 = {
        what: next(row for row in found["summary"]["by_way"] if row["found_by"] == "watch")["seconds"]["p99"]
        for what, found in group.items()
    }
    problems = sum(bool(case["problems"]) for found in group.values() for case in found["results"])
    load = matrix["provenance"]["load_after"]
    quieter = [value for found in group.values() for value in found["provenance"]["load_after"]]
    return [
        f"{len(kills)} kills in every phase, {known} of them where others knew of the rank",
        f"and mpirun, at a load of {min(load):.0f} to {max(load):.0f}",
        f"of the group, repeated at a load of {min(quieter):.0f} to {max(quieter):.0f}",
        (
            f"p99 {percentile(own, 99):.2f} s on Weft's own engine (worst {max(own):.2f} s) and "
            f"{percentile(in_torch, 99):.2f} s on the torch engine"
        ),
        f"{len(group['kills']['results'])} kills and {len(group['freezes']['results'])} freezes of the group",
        f"p99 {p99['kills']:.2f} s and {p99['freezes']:.2f} s, {word_for_zero('no', problems)} problems",
        (
            f"{len(cases) - len(kills)} freezes in the same series: p99 {percentile(frozen, 99):.2f} s, "
            f"worst "
            f"{max(frozen):.2f} s once ranks are connected"
        ),
        (
            f"{word_for_zero('all', raised['own'][1])} of {raised['own'][0]:,} on Weft's own engine; "
            f"{raised['all'][0] - raised['all'][1]:,} of {raised['all'][0]:,} over all ways but mpirun"
        ),
        *frames(),
        *imports(),
        *checksums(),
        *flood_in_short(),
    ]


def frames() -> list[str]:
    """Thaws, damaged frames, strangers and mutants."""
    thaws = results_of("runtime/faults/thaws")["summary"]
    control = results_of("runtime/faults/control")["summary"]
    damaged = results_of("runtime/faults/damaged")["summary"]
    strangers = results_of("runtime/faults/strangers")["summary"]
    mutants = results_of("verification/mutants")
    unseen = damaged["frames_damaged"] - damaged["frames_detected"]
    return [
        (
            f"{thaws['freezes']} freezes and thaws within an all-reduce, "
            f"{thaws['bytes_watched'] / 1e9:.1f} GB "
            f"watched: {word_for_zero('no', thaws['bytes_changed'])} byte"
        ),
        (
            f"{control['frames_damaged']:,} damaged frames of the control plane: "
            f"{word_for_zero('none', control['taken_although_damaged'])} taken"
        ),
        (
            f"{damaged['frames_damaged']:,} damaged frames of data: {word_for_zero('all', unseen)} noticed, "
            f"{word_for_zero('no', damaged['wrong_sums'])} wrong sum"
        ),
        (
            f"{strangers['frames']:,} frames of such peers: "
            f"{word_for_zero('all', strangers['frames'] - strangers['hung_up_on'])} hung up on"
        ),
        (
            f"{mutants['parameters']['mutants']:,} mutants, "
            f"{word_for_zero('none', mutants['summary']['disagreements'])} accepted wrongly"
        ),
    ]


def imports() -> list[str]:
    """Damaged files of clusters."""
    found = results_of("topology/mutated_imports")
    total, each = found["summary"], found["parameters"]["inputs_of_each"]
    return [
        (
            f"{total['inputs']:,} damaged files, {each:,} of each of {len(found['results'])} imports, read "
            f"{total['readings']:,} times: {word_for_zero('no', total['findings'])} findings"
        )
    ]


def checksums() -> list[str]:
    """What the checksum costs at 64 MiB."""
    more = {
        (row["where"], row["ranks"]): f"{100 * (row['seconds_ratio'] - 1):.0f} %"
        for row in results_of("runtime/checksums")["results"]
        if row["size_bytes"] == 64 << 20
    }
    return [
        (
            f"for 64 MiB {more['loopback', 2]} (two ranks) and {more['loopback', 4]} (four) more time over "
            f"loopback, {more['hosts', 2]} and {more['hosts', 4]} between lab hosts"
        )
    ]


def flood_in_short() -> list[str]:
    """The flood, as the table of guarantees has it."""
    found = results_of("runtime/flood")
    low, middle, high = (f"{100 * ratio:.0f} %" for ratio in flood_quartiles(found))
    rate = found["parameters"]["connections_per_s"]
    return [
        (
            f"{rate:,} connections a second, silent and speaking: starts within "
            f"{found['summary']['start']['worst_s']:.1f} s, {middle} of the speed under a flood "
            f"elsewhere in the "
            f"median of {3 * found['parameters']['rounds']} rounds (quartiles {low} and {high})"
        )
    ]


def runtime() -> list[str]:
    """The flood, in full."""
    found = results_of("runtime/flood")
    start = found["summary"]["start"]
    low, middle, high = (f"{ratio:.2f}" for ratio in flood_quartiles(found))
    return [
        (
            f"{found['parameters']['connections_per_s']:,} such connections a second, half of them "
            f"silent, at all "
            f"listeners of a job of {found['parameters']['ranks']} ranks, each allowed "
            f"{found['parameters']['open_files']} open files"
        ),
        (
            f"the job started within {start['median_s']['job']:.2f} s (median of "
            f"{found['parameters']['rounds']}, "
            f"worst {start['worst_s']:.2f} s), beside {start['median_s']['none']:.2f} s without a flood"
        ),
        (
            f"A running job had {middle} of the speed that it has while the same flood is aimed at "
            f"others (median "
            f"of {3 * found['parameters']['rounds']} pairs; quartiles {low} and {high})"
        ),
    ]


def planned_deviation() -> str:
    """How far the plans of the gallery are from their predictions."""
    planned = [
        100 * abs(row_of(f"lab/results/{path.stem}", name="weft")["deviation"])
        for path in (FOLDER / "lab" / "results").glob("*.json")
    ]
    return f"what Weft plans is within {min(planned):.0f} to {max(planned):.1f} % of its prediction"


def every_planned() -> str:
    """How near to their predictions the planned schedules of five fabrics are."""
    found = results_of("lab/planned")
    first: dict[str, dict[str, Any]] = {}
    for row in found["results"]:
        best = first.setdefault(row["fabric"], row)
        if row["predicted_seconds"] < best["predicted_seconds"]:
            first[row["fabric"]] = row
    off = [100 * abs(row["deviation"]) for row in first.values()]
    summary = found["summary"]
    return (
        f"is within {min(off):.1f} to {max(off):.1f} % of it; {summary['within_10_percent']} of "
        f"{summary['rows']} schedules are within 10 %"
    )


def lab() -> list[str]:
    """What the gallery says, and the cut cable."""
    best = [lab_ratio(torus, "gloo, best order") for torus in ("torus-2x4", "torus-4x4")]
    rank_order = [lab_ratio(torus, "gloo, rank order") for torus in ("torus-2x4", "torus-4x4")]
    hdrm = row_of("lab/results/bigraph", name="weft hdrm")
    nearest, farthest = (
        row_of("lab/results/bigraph", name=f"weft halving-doubling, {order} first")
        for order in ("nearest", "farthest")
    )
    cut = row_of("lab/recovery", what="cut")
    (lost,) = (entry for entry in cut["log"] if "lost" in entry)
    return [
        every_planned(),
        planned_deviation(),
        (
            f"{best[0]:.1f} times Gloo on 2x4 and {best[1]:.1f} on 4x4 in the order that suits its ring "
            f"best, "
            f"{rank_order[0]:.1f} and {rank_order[1]:.1f} with ranks as they come"
        ),
        f"forest is {lab_ratio('mesh-4x4', 'weft bucket'):.2f} times as fast as the best with equal shares",
        (
            f"{lab_ratio('uneven-hosts', 'gloo, rank order'):.2f} times Gloo and "
            f"{lab_ratio('uneven-hosts', 'weft hierarchical'):.2f} times an even hierarchical split"
        ),
        (
            f"{lab_ratio('slow-nic', 'gloo, rank order'):.2f} times Gloo, and "
            f"{lab_ratio('slow-nic', 'weft halving_doubling'):.2f} times halving-doubling"
        ),
        (
            f"HDRM is {nearest['median_seconds'] / hdrm['median_seconds']:.2f} times halving-doubling "
            f"that meets "
            f"the nearest first"
        ),
        (
            f"{farthest['median_seconds'] / hdrm['median_seconds']:.1f} times by the median, "
            f"{min(farthest['seconds']) / min(hdrm['seconds']):.2f} by the fastest rounds"
        ),
        (
            f"steps of {cut['step_before_s']:.2f} s before, {lost['noticed_after_s']:.1f} s until all knew, "
            f"{lost['repair_s']:.1f} s to connect and plan, {cut['step_after_s']:.2f} s after"
        ),
    ]


def nccl() -> list[str]:
    """How many published rows the simulation comes near to, and where it is faster than sums at ranks."""
    found = results_of("nccl/compare_published")
    summary = found["summary"]
    two = [
        row
        for row in found["results"]
        if row["kind"] != "excluded"
        and (row["algorithm"], row["nodes"]) == ("NVLSTree", 2)
        and row["best_of_weft"]
        and row["size_bytes"] >= found["parameters"]["large_bytes"]
    ]
    few = [
        row
        for row in found["results"]
        if row["kind"] != "excluded"
        and row["limited_deviation_of_busbw"] is not None
        and row["size_bytes"] >= found["parameters"]["large_bytes"]
    ]
    near = {
        kind: sum(abs(row[f"{kind}_deviation_of_busbw"]) <= 0.15 for row in few)
        for kind in ("limited", "protocol")
    }
    published = sorted(row["published_busbw_gb_per_s"] for row in two)
    best = max(row["best_of_weft_busbw_gb_per_s"] for row in two)
    return [
        f"{summary['large_within']} of {summary['large']} large rows are within 15 %",
        f"{summary['large_named_within']} of {summary['large_named']} where the source names the algorithm",
        (
            f"With the latencies of the protocols {summary['large_within_with_protocol']} of "
            f"{summary['large']} are"
        ),
        f"comes within 15 % of {summary['large_within_by_model']} of the {summary['large']}",
        (
            f"it comes within 15 % of {summary['large_in_switch_within_by_model']} of the "
            f"{summary['large_in_switch']} large rows of NVLS and NVLSTree"
        ),
        (
            f"Of the {len(few)} rows of up to 64 ranks {near['limited']} are within 15 % then, and "
            f"{near['protocol']} without that limit"
        ),
        f"of the {summary['small']} rows up to 64 KiB",
        f"{published[0]:.0f} to {published[-1]:.0f} GB/s published, {best:.0f} for the best of Weft",
    ]


def ace() -> list[str]:
    """What simulating costs."""
    rows = results_of("training/results/contention")["results"]
    whole = {row["endpoint"]: row["cpu_seconds"] for row in rows if row["kind"].startswith("resnet50")}
    alone = [row["cpu_seconds"] for row in rows if row["kind"].startswith("all_reduce")]
    return [
        (
            f"takes {whole['ideal']:.1f} (ideal), {whole['ace']:.1f} (ACE), {whole['comp-opt']:.1f} "
            f"(comp-opt), "
            f"{whole['comm-opt']:.1f} (comm-opt) and {whole['no-overlap']:.1f} CPU seconds (no-overlap)"
        ),
        f"One all-reduce of 64 MiB in 1024 chunks alone takes {min(alone):.1f} to {max(alone):.1f}",
    ]


def probe() -> list[str]:
    """How near probes come."""
    runs = [run for row in results_of("lab/probe_repeats")["results"] for run in row["runs"]]
    off = max(run["worst_speed_deviation"] for run in runs if run["worst_speed_deviation"] is not None)
    longer = max(run["simulated_ratio"] for run in runs) - 1
    measured = [row["measured_ratio"] for row in results_of("lab/probe")["results"]]
    return [
        f"Speeds were within {100 * off:.1f} % of the payload rate",
        (
            f"takes at most {100 * longer:.1f} % longer on the true network than one made from the truth, by "
            f"simulation; measured in the lab, in turn, {min(measured):.3f} to {max(measured):.3f} "
            f"times as long"
        ),
    ]


def report() -> list[str]:
    """How pages were opened."""
    found = results_of("reporting/pages")
    version = found["provenance"]["versions"]["chromium"].partition(".")[0]
    return [f"Each page was opened {found['parameters']['loads']} times with Chromium {version}"]


def studio() -> list[str]:
    """What edits cancelled, and what was refused."""
    loads = [row for row in results_of("studio/load")["results"] if row["kind"] == "load"]
    later, closely, _, overflow = loads
    counts = [(row["comparisons"]["cancelled"], row["comparisons"]["accepted"]) for row in (later, closely)]
    sent = overflow["requests"]
    refused = sum(count for status, count in sent["by_status"].items() if status.endswith(" 429"))
    return [
        (
            f"that cancels {counts[0][0]} of {counts[0][1]} comparisons at {later['rate_per_s']} requests a "
            f"second, and if it comes right behind the comparison, {counts[1][0]} of {counts[1][1]}"
        ),
        (
            f"{refused} of {sent['sent']} requests were refused with 429, "
            f"{overflow['comparisons']['refused']} of them by the queue"
        ),
    ]


def verification() -> list[str]:
    """Estimates, mutants, and the cost of a large ring."""
    found = results_of("limits/estimates")
    reading = [row["operations_per_ns"] for row in found["results"] if row["what"].startswith("read ")]
    others = [row["operations_per_ns"] for row in found["results"] if not row["what"].startswith("read ")]
    mutants = results_of("verification/mutants")["parameters"]["mutants"]
    ring = row_of("verification/speed", algorithm="ring", topology="ring:1024")
    return [
        (
            f"between {min(others):.1f} and {max(others):.1f} operations for each nanosecond, and up to "
            f"{max(reading):.0f} for reading"
        ),
        f"`benchmarks/verification/mutants.py` does the former for {mutants:,} mutants",
        (
            f"a 1024-rank ring, {ring['transfers'] / 1e6:.1f} million transfers, takes "
            f"{ring['cpu_seconds']['verify']:.2f} CPU seconds"
        ),
    ]


def results_of(name: str) -> dict[str, Any]:
    """A result file by its path without the suffix."""
    return result_files.read(FOLDER / f"{name}.json")


def row_of(name: str, /, **wanted: object) -> dict[str, Any]:
    """The one result of a file that has these values."""
    rows = [row for row in results_of(name)["results"] if wanted.items() <= row.items()]
    if len(rows) != 1:
        msg = f"{name}.json has {len(rows)} results with {wanted}, expected one"
        raise LookupError(msg)
    row: dict[str, Any] = rows[0]
    return row


PEERS = FOLDER / "runtime" / "peers"
PEER_JOBS = {
    "private-float32": ("weft", "float32"),
    "shared-float32": ("weft shared", "float32"),
    "tcp-ring": ("weft tcp", "float32"),
    "private-float16": ("weft", "float16"),
    "private-bfloat16": ("weft", "bfloat16"),
}
"""Which job of Weft, and which type, a kind of tensors is where everything ran beside each other."""


def peer_ratios(
    peer: str, *kinds: str, least: int = 0, most: int = 1 << 60, ranks: tuple[int, ...] = (2, 4, 8)
) -> list[float]:
    """How many times as long a peer takes, in some kinds of tensors, sizes and numbers of ranks."""
    together = sorted(PEERS.glob("ranks-*.json"))
    found = []
    for path in together or sorted(PEERS.glob("*.json")):
        kind = path.stem.rpartition("-")[0]
        for row in result_files.read(path)["results"]:
            if row["ranks"] not in ranks or not least <= row["size_bytes"] <= most:
                continue
            if not together:
                found += [row["ratios"][peer]] if kind in kinds else []
                continue
            who = row["contestants"]
            found += [
                who[peer]["median_s"] / who[own]["median_s"]
                for own, dtype in (PEER_JOBS[kind] for kind in kinds)
                if row["dtype"] == dtype and own in who and peer in who
            ]
    return found


def peer_rounds() -> str:
    """Over how many rounds its medians are."""
    counts = {
        len(one["seconds"])
        for path in PEERS.glob("ranks-*.json")
        for row in result_files.read(path)["results"]
        for one in row["contestants"].values()
    }
    if not counts:
        return str(results_of("runtime/peers/private-float32-2")["parameters"]["rounds"])
    return f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())


def iteration_medians(name: str) -> dict[str, float]:
    """Seconds of an iteration in one set-up of `torch/lab_training.py`, by way."""
    rows = results_of(f"torch/results/training-{name}")["results"]
    return {row["way"]: statistics.median(row["iteration_s"]) for row in rows}


def seconds_of(
    by_way: list[dict[str, Any]], cases: list[dict[str, Any]], action: str, ways: tuple[str, ...]
) -> list[float]:
    """Seconds until survivors knew, in cases that a watch and not the deadline told of."""
    counts = {(row["way"], row["action"], row["found_by"]): row["cases"] for row in by_way}
    found = [
        case
        for case in cases
        if case["way"] in ways and case["action"] == action and not is_found_by_deadline(case)
    ]
    expected = sum(counts[way, action, "watch"] for way in ways)
    if len(found) != expected:
        msg = f"{len(found)} cases of {action}, but the summary has {expected}"
        raise LookupError(msg)
    return [second for case in found for second in case["seconds_each"]]


def is_found_by_deadline(case: dict[str, Any]) -> bool:
    """As `runtime/faults.py` has it: who never came, and who froze before there were heartbeats."""
    starting = case["phase"] in ("arrive", "admitted", "connect", "lines")
    return case["phase"] == "arrive" or (case["action"] == "freeze" and starting)


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return sorted(values)[max(0, -(-percent * len(values) // 100) - 1)]


def flood_quartiles(found: dict[str, Any]) -> list[float]:
    """Speed when the job is flooded over that when others are, of all rounds; unrounded."""
    runs = [row for row in found["results"] if row["phase"] == "run" and "round" in row]
    speed = {(row["round"], row["flood_at"]): row["operations_per_second"] for row in runs}
    return statistics.quantiles(
        (speed[one, "job"] / speed[one, "unrelated"] for one in {row["round"] for row in runs}), n=4
    )


def lab_ratio(case: str, name: str) -> float:
    """How many times as long as Weft somebody takes in a case of the gallery."""
    weft, other = (row_of(f"lab/results/{case}", name=who)["median_seconds"] for who in ("weft", name))
    return float(other / weft)


def short(value: float, digits: int = 1) -> str:
    """A number with so many significant digits, without an exponent."""
    return f"{float(f'{value:.{digits}g}'):g}"


def word_for_zero(word: str, value: float) -> str:
    """The word that a page has for a count of zero; the count itself if it is another."""
    return word if value == 0 else f"({value} instead of {word})"
