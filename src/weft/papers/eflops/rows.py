"""Claims of the EFLOPS abstract beside what was simulated."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from weft.papers.claims import factor_row, percent_row
from weft.papers.eflops.all_reduces import FARTHEST, NEAREST, RING
from weft.papers.eflops.fabrics import SAME
from weft.papers.eflops.root_paths import ROOT_PATHS
from weft.papers.eflops.scaling import BATCH, EFLOPS, SETUPS
from weft.papers.eflops.sharing import SERVERS, USUAL
from weft.topology.servers import PCIE_SPEED
from weft.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.papers.claims import ClaimRow
    from weft.papers.eflops.fabrics import Against
    from weft.papers.eflops.scaling import Scaled
    from weft.papers.eflops.sharing import Shared

AT_THE_NIC: Final = 11.3
"""The abstract's "up to" for what is gained at the network interface."""

BEYOND: Final = 6.08
"""The abstract's "up to" for what algorithm and topology gain further."""


NIC_CLAIM: Final = f"a NIC for each GPU: communication up to {AT_THE_NIC:g}x as fast"
FABRIC_CLAIM: Final = f"HDRM on a BiGraph: up to {BEYOND:g}x as fast again"
SCALING_CLAIM: Final = "ResNet-50 scales nearly linearly"
VARIANT: Final = "variant: "
"""Before every row that is not the one by which a claim of the abstract is judged."""


def _variant(of: str, setup: str, ours: float, why: str) -> ClaimRow:
    return factor_row(f"{VARIANT}{of}", setup, ours, why)


def sharing_rows(cells: Sequence[Shared]) -> Iterator[ClaimRow]:
    """What a NIC of one's own gains."""
    fair = [one for one in cells if one.sharing == "fluid"]
    cells = [one for one in cells if one.sharing == "queue"]
    usual = [one for one in cells if (one.gpus, one.nics) == (USUAL, 1)]
    best = max(usual, key=lambda one: one.gain)
    yield factor_row(
        NIC_CLAIM,
        f"{SERVERS} servers of {USUAL} GPUs that share one NIC; the most of all algorithms and sizes: "
        f"{best.algorithm}, {format_size(best.size_bytes)}; {AT_THE_NIC:g}x would take "
        f"{AT_THE_NIC:g} GPUs for a NIC, or {needed_root() / 1e9:.1f} GB/s through the root "
        f"complex if PCIe has {PCIE_SPEED / 1e9:g}",
        best.gain,
        f"ideal sharing of a NIC by {USUAL} GPUs costs a factor of {USUAL} and no more, and the paper's "
        "servers are not known to us",
        up_to=AT_THE_NIC,
        claim_id="eflops-nic",
    )
    even = max((one for one in fair if (one.gpus, one.nics) == (USUAL, 1)), key=lambda one: one.gain)
    yield _variant(
        "a NIC for each GPU, links shared at equal rates",
        f"the same, where messages share a link at equal rates and not in turns: {even.algorithm}, "
        f"{format_size(even.size_bytes)}",
        even.gain,
        f"as much as ideal sharing of {USUAL} can cost, and no more",
    )
    worst = max(cells, key=lambda one: one.gain)
    yield _variant(
        "a NIC for each GPU, more GPUs",
        f"the most of all servers tried: {worst.gpus} GPUs for {_nics(worst.nics)}, {worst.algorithm}, "
        f"{format_size(worst.size_bytes)}",
        worst.gain,
        f"more GPUs behind a NIC gain as much more: {worst.gain / worst.per_nic:.0%} of the factor "
        f"{worst.per_nic:g} here; how many the paper's servers have is not known to us",
    )
    yield _beyond_ideal(cells, fair)
    yield _variant(
        "a NIC for each GPU, on average",
        f"{USUAL} GPUs and one NIC, mean over {len({one.algorithm for one in usual})} algorithms and "
        f"{len({one.size_bytes for one in usual})} sizes",
        fmean(one.gain for one in usual),
        "an algorithm that keeps most of its traffic inside servers has little to gain",
    )
    for name in dict.fromkeys(one.algorithm for one in usual):
        yield _sharing_row(name, [one for one in cells if one.algorithm == name])


def needed_root() -> float:
    """Bytes per second through the root complex at which ideal sharing by `USUAL` GPUs makes the claim.

    Examples
    --------
    >>> round(needed_root() / 1e9, 2)
    8.5
    """
    return USUAL * PCIE_SPEED / AT_THE_NIC


def root_rows(cells: Sequence[Shared]) -> Iterator[ClaimRow]:
    """What a NIC of one's own gains for each published speed of the path through the root complex."""
    for path in ROOT_PATHS:
        mine = [one for one in cells if one.root == path.speed]
        for few in sorted({one.nics for one in mine}):
            turns, rates = (
                max((one for one in mine if (one.nics, one.sharing) == (few, kind)), key=lambda one: one.gain)
                for kind in ("queue", "fluid")
            )
            yield _variant(
                f"a NIC for each GPU, root complex {path.name}",
                f"{USUAL} GPUs and {_nics(few)}, {path.speed / 1e9:g} GB/s through a port of the root "
                f"complex, the most of all algorithms: {turns.algorithm}, {format_size(turns.size_bytes)}",
                turns.gain,
                f"{_judge(turns.gain)}; at equal rates {rates.gain:.2f}x. Speed: {path.source}",
            )


def _judge(gain: float) -> str:
    if gain < AT_THE_NIC:
        return f"sharing and this path together explain {gain:.2f}x, and not {AT_THE_NIC:g}x"
    return f"sharing and this path together explain {AT_THE_NIC:g}x, and more than that"


def _beyond_ideal(cells: Sequence[Shared], fair: Sequence[Shared]) -> ClaimRow:
    most = max(cells, key=lambda one: one.gain / one.per_nic)
    evenly = next(
        one for one in fair if (one.gpus, one.nics, one.algorithm) == (most.gpus, most.nics, most.algorithm)
    )
    return _variant(
        "what sharing costs beyond the number of GPUs for each NIC, at most",
        f"the gain over GPUs per NIC: {most.gpus} GPUs, {_nics(most.nics)}, {most.algorithm}, "
        f"{format_size(most.size_bytes)}",
        most.gain / most.per_nic,
        "above 1 whole messages wait in turn for two shared links in line, the way from a PCIe switch to the "
        f"root complex and a NIC; at equal rates it is {evenly.gain / evenly.per_nic:.2f}x. {AT_THE_NIC:g}x "
        f"would be {AT_THE_NIC / USUAL:.2f}x for {USUAL} GPUs and one NIC",
    )


_WHERE: Final = {
    RING: "a ring crosses each NIC once each way, however many GPUs share it: nothing to gain",
    "ring, ranks dealt out": "every hop leaves its server, so all GPUs want the NIC all the time",
    NEAREST: "the large parts stay inside servers; of the buffer of each of 8 GPUs only an eighth leaves",
    FARTHEST: "the large parts go to other servers: all but what the last steps send inside them",
    "hierarchical": "only one GPU of a server talks to others: nothing is shared, and nothing gained",
}


def _sharing_row(name: str, cells: Sequence[Shared]) -> ClaimRow:
    usual = [one for one in cells if (one.gpus, one.nics) == (USUAL, 1)]
    best = max(usual, key=lambda one: one.gain)
    twice = [one.gain for one in cells if (one.gpus, one.nics) == (USUAL, 2)]
    with_two = f"; with two NICs {max(twice):.2f}x at most" if twice else ""
    return _variant(
        f"{name}: a NIC for each GPU over one for {USUAL}",
        f"the most of all sizes, at {format_size(best.size_bytes)}; mean {fmean(o.gain for o in usual):.2f}x",
        best.gain,
        _WHERE[name] + with_two,
    )


def fabric_rows(cells: Sequence[Against], seeds: int) -> Iterator[ClaimRow]:
    """What HDRM on a BiGraph gains."""
    fair = [one for one in cells if one.sharing == "fluid"]
    cells = [one for one in cells if one.sharing == "queue"]
    halving = [one for one in cells if one.hashed and one.algorithm in (NEAREST, FARTHEST)]
    over = sorted({one.network for one in halving})
    best = max(halving, key=lambda one: one.most)
    yield factor_row(
        FABRIC_CLAIM,
        f"over halving-doubling on a Clos with ECMP, the most of {seeds} seeds, of {', '.join(over)} "
        f"oversubscribed, all sizes and both orders: {_where(best)}; {best.flows} flows meet on one link "
        f"with the worst seed, and the mean over seeds is {best.mean:.2f}x there",
        best.most,
        "the paper's network, size and baseline are not known to us, and others give other numbers, so that "
        "this one is near means nothing",
        up_to=BEYOND,
        claim_id="eflops-hdrm",
    )
    even = max((one for one in fair if one.hashed), key=lambda one: one.most)
    yield _variant(
        "HDRM on a BiGraph, links shared at equal rates",
        f"the same, where flows share a link at equal rates and not in turns: {_where(even)}",
        even.most,
        "flows of later steps then take from those of earlier ones that others wait for, which in turns go "
        f"first; mean over seeds {even.mean:.2f}x",
    )
    for name in (FARTHEST, NEAREST):
        plain = [one for one in halving if (one.network, one.algorithm) == ("1:1", name)]
        yield _hashed_row(plain, seeds)
    yield from _ring_rows(cells)
    yield from _map_rows(cells)
    yield _variant(
        "HDRM on a BiGraph, on average over all of these",
        f"{len(cells)} cells: networks, rivals and sizes",
        fmean(one.mean for one in cells),
        "a mean over what we chose to try, and so no result of anybody's",
    )


def _ring_rows(cells: Sequence[Against]) -> Iterator[ClaimRow]:
    rings = [one for one in cells if one.hashed and one.algorithm == RING]
    for pick, when in ((max, "small buffers"), (min, "large buffers")):
        one = pick(rings, key=lambda one: one.most)
        why = (
            f"a ring has {2 * (one.ranks - 1)} steps and HDRM {2 * (one.ranks - 1).bit_length()}: latency"
            if pick is max
            else "both send as little as can be, and a ring from leaf to leaf never meets itself: no gain"
        )
        yield _variant(f"HDRM on a BiGraph over a ring, {when}", _where(one), one.most, why)


def _map_rows(cells: Sequence[Against]) -> Iterator[ClaimRow]:
    for name in (FARTHEST, NEAREST):
        here = [one for one in cells if one.network == SAME and one.algorithm == name]
        one = max(here, key=lambda one: one.most)
        yield _variant(
            f"HDRM on a BiGraph, what the map alone gains, {name}",
            f"halving-doubling with ranks as they come on the same BiGraph, the most: {_where(one)}",
            one.most,
            f"{one.flows} flows on the busiest link, with HDRM one",
        )


def _hashed_row(cells: Sequence[Against], seeds: int) -> ClaimRow:
    one = max(cells, key=lambda one: one.most)
    return _variant(
        f"HDRM on a BiGraph, Clos not oversubscribed, {one.algorithm}",
        f"the most of {seeds} seeds and all sizes: {_where(one)}",
        one.most,
        f"hashing alone: {one.flows} flows on one link with the worst seed, though there is a link for each; "
        f"mean over seeds {one.mean:.2f}x",
    )


def scaling_rows(cells: Sequence[Scaled], checks: Sequence[dict[str, Any]]) -> Iterator[ClaimRow]:
    """ResNet-50 on the most GPUs; the claim is judged by the case in which it scales least."""
    most = max(one.workers for one in cells)
    last = [one for one in cells if one.workers == most]
    ours = sorted((one for one in last if one.setup == EFLOPS), key=lambda one: one.efficiency)
    for place, one in enumerate(ours):
        rivals = {
            other.setup: other for other in last if (other.policy, other.dtype) == (one.policy, one.dtype)
        }
        others = ", ".join(f"{name} {100 * rivals[name].efficiency:.1f} %" for name in SETUPS[1:])
        least = "" if place else f"; the least of {len(ours)} policies and precisions"
        yield percent_row(
            f"{VARIANT if place else ''}{SCALING_CLAIM}",
            f"{most} V100, batch {BATCH} each, {one.dtype}, {one.policy}: share of {most} times one GPU"
            f"{least}; {one.computing_s * 1e3:.1f} ms of computing; {others}",
            one.efficiency,
            "the abstract has no number",
            "" if place else "eflops-scaling",
        )
    if checks:
        worst = max(checks, key=lambda one: abs(one["difference"]))
        yield percent_row(
            f"{VARIANT}one channel with the times of all-reduces alone takes as long as every rank and link",
            f"{len(checks)} set-ups at {worst['workers']} GPUs; the worst is {worst['setup']}, "
            f"{worst['policy']}, {worst['dtype']}",
            abs(worst["difference"]),
            "costs are lines between simulated sizes, and GPUs are not done with one at the same moment",
        )


def _where(one: Against) -> str:
    network = "the same BiGraph" if one.network == SAME else f"Clos {one.network}"
    rival = "" if one.algorithm == RING else f"{one.algorithm}, "
    return f"{rival}{network}, {one.ranks} ranks, {format_size(one.size_bytes)}"


def _nics(count: int) -> str:
    return "one NIC" if count == 1 else f"{count} NICs"
