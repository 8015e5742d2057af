"""Claims of the ACE paper beside what was counted and simulated."""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Final

from weft.papers.ace.bandwidth import BandwidthCurve
from weft.papers.ace.computing import BATCHES, COUNTED, WAYS, published_flops_per_s
from weft.papers.ace.iterations import BASELINES
from weft.papers.claims import ClaimRow, factor_row, percent_row
from weft.training.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.papers.ace.byte_counts import ByteCounts
    from weft.papers.ace.computing import Computing
    from weft.papers.ace.iterations import IterationCase

FULL: Final = 0.98
"""Share from which on a bandwidth counts as reached."""

SPEEDUPS: Final = {"resnet50": (1.41, 1.51), "gnmt": (1.12, 1.17), "dlrm": (1.13, 1.19)}
"""The abstract's: on average, and at most, over the best baseline."""

_SHORT_S: Final = 100e-6
"""An iteration shorter than this has few chunks, each of which takes some microseconds in an engine."""

_OVERLAPPING: Final = ("comm-opt", "comp-opt")

STUDY_CLAIMS: Final = (
    "ace-kernel-memory",
    "ace-engine-memory",
    "ace-kernel-processors",
    "ace-fsms",
    "ace-sram",
)
"""Claims of the studies of sensitivity, in the order of their rows."""


_MEMORY: Final = partial(
    factor_row, "the same network bandwidth with 3.5x less memory bandwidth, on average", paper=3.5
)


def counted_rows(counted: Mapping[str, ByteCounts], study: ByteCounts) -> Iterator[ClaimRow]:
    """How much less memory bandwidth an engine needs: counted twice."""
    ones = counted.values()
    sizes = ", ".join(counted)
    ratios = [one.kernel_read_gbs / one.engine_read_gbs for one in ones]
    reads = (ENDPOINTS["comm-opt"].memory_bandwidth or 0) / (ENDPOINTS["ace"].memory_bandwidth or 1)
    yield _MEMORY(
        f"counted in the schedule, mean of {sizes}: bytes that kernels read for each that an engine reads, "
        f"{min(ratios):.2f}x to {max(ratios):.2f}x by size",
        fmean(ratios),
        f"the configurations are {reads:.2f}x apart, but the engine's is a little below the "
        f"{study.engine_read_gbs:.0f} GB/s that it needs on {study.shape}",
        claim_id="ace-memory",
    )
    yield _MEMORY(
        f"counted, mean of {sizes}, with the first step and the last sum of each ring",
        fmean(one.ring_kernel_read_gbs / one.engine_read_gbs for one in ones),
        f"rings of few ranks read {study.ring_reads:.2f} bytes for each byte sent on {study.shape}, not 1.5",
    )


def knee_row(study: ByteCounts, knees: Mapping[str, float]) -> ClaimRow:
    """How much less memory bandwidth an engine needs: simulated."""
    return _MEMORY(
        f"simulated on {study.shape}: least bandwidth that drives {FULL:.0%} of the network, "
        f"{knees['kernels']:.0f} over {knees['engine']:.0f} GB/s",
        knees["kernels"] / knees["engine"],
        "of an engine with room for any number of chunks; as counted, for this size",
    )


def driven_rows(
    counted: Mapping[str, ByteCounts], driven: Mapping[str, Mapping[str, float]]
) -> Iterator[ClaimRow]:
    """What share of the network ACE drives, and how much more than the baselines."""
    for shape, one in counted.items():
        share = driven[shape]["ace"] / one.payload_gbs
        cap = one.cap((ENDPOINTS["ace"].memory_bandwidth or 0) / 1e9, engine=True)
        why = f"what it may read allows for {cap:.0%}"
        if share > cap:
            why += "; rates are those of the middle of an all-reduce, within half a percent"
        elif share < FULL * cap:
            why += "; its FSMs hold too few chunks for the latency of so many steps"
        yield percent_row(f"ACE drives the network of {shape}", "all-reduce alone", share, why)
    gains = {
        (shape, name): found["ace"] / found[name] for shape, found in driven.items() for name in _OVERLAPPING
    }
    each = [
        (name, fmean(gain for (_, other), gain in gains.items() if other == name)) for name in _OVERLAPPING
    ]
    every = fmean(found["ace"] / found[name] for found in driven.values() for name in BASELINES)
    yield factor_row(
        "effective network bandwidth 1.44x that of the baselines, on average",
        "all-reduces alone, mean over sizes and both overlapping baselines; with no-overlap as well it is "
        f"{every:.2f}x",
        fmean(gains.values()),
        f"it is {' and '.join(f'{mean:.2f}x over {name}' for name, mean in each)}, and over which baselines "
        "and workloads the paper's mean is taken is not known",
        paper=1.44,
        claim_id="ace-network",
    )
    where = max(gains, key=lambda key: gains[key])
    yield factor_row(
        "effective network bandwidth up to 2.67x that of a baseline",
        f"the largest of these: over {where[1]} on {where[0]}",
        gains[where],
        "with the 128 GB/s that comp-opt may read, kernels drive less than a third of the network, and "
        "whether the paper's number is of all-reduces alone or of whole iterations is not known",
        up_to=2.67,
        claim_id="ace-network-most",
    )


def study_rows(shape: str, curves: Mapping[str, Sequence[BandwidthCurve]]) -> Iterator[ClaimRow]:
    """Where the curves of the studies become flat."""
    reading = ENDPOINTS["comm-opt"].processor_bandwidth / 1e9
    sram, by_bandwidth = (
        BandwidthCurve("", tuple((kib / 1024, rate) for kib, rate in curve.points))
        for curve in curves["sram"]
    )
    studies = (
        (
            "kernels need 450 GB/s",
            curves["memory"][0],
            450.0,
            " GB/s",
            "they read 1.5 bytes for each byte sent",
        ),
        (
            "ACE needs 128 GB/s",
            curves["memory"][1],
            128.0,
            " GB/s",
            "each byte of the buffer is read once, and reading it faster frees an FSM sooner",
        ),
        ("kernels need 6 processors", curves["processors"][0], 6.0, "", f"each reads {reading:.1f} GB/s"),
        ("ACE needs 16 FSMs", curves["fsms"][0], 16.0, "", "an FSM holds a chunk until it is written back"),
        (
            "ACE needs 4 MB of SRAM",
            sram,
            4.0,
            " MiB",
            (
                "a chunk gives its room back when it enters the next phase, and what else the paper's engine "
                "holds is not known"
            ),
        ),
        (
            "ACE needs 4 MB of SRAM, divided among phases by bandwidth times chunk",
            by_bandwidth,
            4.0,
            " MiB",
            "the paper's rule as recalled gives the slow axes the least room, and they need the most",
        ),
    )
    for (claim, curve, paper, unit, why), claim_id in zip(studies, (*STUDY_CLAIMS, ""), strict=True):
        at_paper = [rate for x, rate in curve.points if x == paper]
        there = f"; the paper's drives {at_paper[0] / curve.most:.1%}" if at_paper else ""
        setup = f"{shape}, smallest figure tried that drives {FULL:.0%} of the most{there}"
        yield ClaimRow(claim, setup, paper, curve.knee(FULL), unit, why, claim_id=claim_id)


def model_rows(model: str, points: Sequence[IterationCase], ways: Sequence[Computing]) -> Iterator[ClaimRow]:
    """Iterations of a model by each way to compute it: on average over sizes, then at most.

    The published layer times count. Ways other than the main ones change one thing, and have no row for the
    most.
    """
    found = [(way, [one for one in points if one.computing == way.name]) for way in ways]
    mean, most = SPEEDUPS[model]
    claim = f"{model}: iterations over the best baseline"
    for way, cases in found:
        gains = [one.speedup for one in cases]
        if way in WAYS:
            setup, why = _setup(way, model, cases), _why(way, model, cases)
        else:
            setup = f"variant of {way.way}: {way.name}"
            best = _best_baselines(cases)
            why = f"{min(gains):.2f}x to {max(gains):.2f}x by size; the best baseline is {best}"
        claim_id = f"ace-{model}" if way == COUNTED else ""
        yield factor_row(f"{claim}, on average", setup, fmean(gains), why, paper=mean, claim_id=claim_id)
    for way, cases in found:
        if way in WAYS:
            largest = max(cases, key=lambda one: one.speedup)
            yield factor_row(
                f"{claim}, at most",
                f"{_setup(way, model, cases)}; the most is on {largest.shape}",
                largest.speedup,
                _why(way, model, cases),
                up_to=most,
                claim_id=f"ace-{model}-most" if way == COUNTED else "",
            )


def _setup(computing: Computing, model: str, cases: Sequence[IterationCase]) -> str:
    """Where times are from, on which sizes, and how much there is to hide."""
    shares = [one.share for one in cases]
    return (
        f"{computing.name}: {_times(computing, model)}, on {', '.join(one.shape for one in cases)}; sending "
        f"takes {min(shares):.1%} to {max(shares):.1%} of computing, {_hidden(cases)}"
    )


def _why(computing: Computing, model: str, cases: Sequence[IterationCase]) -> str:
    """One sentence: what no endpoint can beat, and what ACE itself costs."""
    ideal = max(one.ideal_speedup for one in cases)
    most = (
        f"an endpoint that costs nothing gains {ideal:.2f}x at most over the best baseline "
        f"({_best_baselines(cases)})"
    )
    shortest = min(one.seconds["ace"] for one in cases)
    if shortest < _SHORT_S:
        delay = "feels the time that a chunk spends in the engine"
        return f"an iteration of {shortest * 1e6:.0f} us {delay}, while {most}"
    why = [most]
    slower = max(one.computing_s["ace"] / one.computing_s["ideal"] - 1 for one in cases)
    if slower:
        why.append(f"the memory bandwidth set aside for ACE slows computing by {slower:.1%}")
    if (computing.way, model) == ("published", "resnet50"):
        why.append(f"the published times are of one picture and not of {BATCHES[model]}")
    return " and ".join(why) if len(why) < 3 else f"{', '.join(why[:-1])}, and {why[-1]}"


def _best_baselines(cases: Sequence[IterationCase]) -> str:
    return ", ".join(sorted({one.best_baseline for one in cases}, key=BASELINES.index))


def _times(computing: Computing, model: str) -> str:
    """Where the times of a model are from."""
    if computing.way != "published":
        return f"batch {BATCHES[model]}, fp16"
    if model == "gnmt":
        speed = published_flops_per_s(computing.pictures) / 1e12
        return (
            f"ASTRA-sim 1.0 has none of GNMT, so {speed:.0f} TFLOP/s, as those of ResNet-50 imply, and "
            "4 bytes a parameter"
        )
    return "layer times and bytes of ASTRA-sim 1.0"


def _hidden(found: Sequence[IterationCase]) -> str:
    """What overlapping could gain."""
    waited = min(one.exchanging_s["ideal"] / one.sending_s["ideal"] for one in found)
    if waited:
        return f"but {waited:.0%} or more of that are all-to-alls, which no endpoint hastens and little hides"
    return f"so hiding all of it gains {max(one.bound for one in found):.2f}x at most over no overlap"
