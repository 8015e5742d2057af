"""Pictures of the three studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.papers.eflops.all_reduces import FARTHEST, NEAREST, RING
from weft.papers.eflops.fabrics import SAME
from weft.papers.eflops.rows import AT_THE_NIC, BEYOND
from weft.papers.eflops.scaling import DTYPES
from weft.papers.eflops.sharing import USUAL
from weft.papers.svg_charts import bar_chart, curves, line_chart
from weft.topology.servers import PCIE_SPEED
from weft.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.papers.eflops.fabrics import Against
    from weft.papers.eflops.scaling import Scaled
    from weft.papers.eflops.sharing import Shared

_PAPER: Final = "the paper, at most"
_IDEAL: Final = "GPUs per NIC"
_MIB: Final = 1 << 20


def draw(
    shared: Sequence[Shared], rooted: Sequence[Shared], against: Sequence[Against], scaled: Sequence[Scaled]
) -> dict[str, str]:
    """All of them, by name."""
    in_turns = [one for one in shared if one.sharing == "queue"]
    found = {"nics": _over_gpus(in_turns), "nics-sizes": _over_sizes(in_turns)}
    found["nics-root"] = _over_root_paths([*shared, *rooted])
    for name, sharing, how in (("fabrics", "queue", "in turns"), ("fabrics-fair", "fluid", "fairly")):
        found[name] = _over_networks([one for one in against if one.sharing == sharing], how)
    found["fabrics-sizes"] = _rivals_over_sizes([one for one in against if one.sharing == "queue"])
    for policy in dict.fromkeys(one.policy for one in scaled):
        mine = [one for one in scaled if (one.policy, one.dtype) == (policy, DTYPES[-1])]
        found[f"scaling-{policy}"] = _efficiency(mine, policy, DTYPES[-1])
    return found


def _over_gpus(cells: Sequence[Shared]) -> str:
    size = max(one.size_bytes for one in cells)
    mine = [one for one in cells if one.nics == 1 and one.size_bytes == size]
    lines = curves(mine, "algorithm", lambda one: one.gpus, lambda one: one.gain)
    gpus = sorted({one.gpus for one in mine})
    lines[_IDEAL] = [(many, many) for many in gpus]
    lines[_PAPER] = [(gpus[0], AT_THE_NIC), (gpus[-1], AT_THE_NIC)]
    title = f"What a NIC for each GPU gains over one for all, {format_size(size)}"
    return line_chart(
        title, "GPUs that share a NIC", "times as fast", lines, log_x=True, dashed=[_IDEAL, _PAPER]
    )


def _over_sizes(cells: Sequence[Shared]) -> str:
    mine = [one for one in cells if (one.gpus, one.nics) == (USUAL, 1)]
    lines = curves(mine, "algorithm", lambda one: one.size_bytes / _MIB, lambda one: one.gain)
    title = f"What a NIC for each GPU gains over one for {USUAL}"
    return line_chart(title, "MiB", "times as fast", lines, log_x=True)


def _over_root_paths(cells: Sequence[Shared]) -> str:
    size = max(one.size_bytes for one in cells)
    mine = [one for one in cells if (one.gpus, one.size_bytes, one.sharing) == (USUAL, size, "queue")]
    speeds = sorted({one.root for one in mine}, key=lambda root: root or PCIE_SPEED)
    counts = sorted({one.nics for one in mine})
    bars: dict[str, list[float | None]] = {
        f"{few} NIC{'s' if few > 1 else ''} for {USUAL} GPUs": [
            max(one.gain for one in mine if (one.root, one.nics) == (root, few)) for root in speeds
        ]
        for few in counts
    }
    groups = [f"{(root or PCIE_SPEED) / 1e9:g} GB/s" for root in speeds]
    title = f"What a NIC for each GPU gains at most, by the speed of the root complex, {format_size(size)}"
    return bar_chart(title, f"times as fast (line: {_PAPER})", groups, bars, line_at=AT_THE_NIC)


def _over_networks(cells: Sequence[Against], how: str) -> str:
    size, ranks = max(one.size_bytes for one in cells), max(one.ranks for one in cells)
    mine = [one for one in cells if (one.size_bytes, one.ranks) == (size, ranks)]
    networks = [name for name in dict.fromkeys(one.network for one in mine) if name != SAME]
    order = [*networks, SAME]
    by_name = {(one.network, one.algorithm): one for one in mine}
    bars: dict[str, list[float | None]] = {}
    for name in (NEAREST, FARTHEST):
        bars[f"{name}, mean"] = [by_name[network, name].mean for network in order]
        bars[f"{name}, worst"] = [by_name[network, name].most for network in order]
    bars[RING] = [by_name[network, RING].most for network in order]
    title = f"HDRM on a BiGraph over others, {ranks} ranks, {format_size(size)}, links shared {how}"
    groups = [*(f"Clos {network}" for network in networks), SAME]
    return bar_chart(title, f"times as fast (line: {_PAPER})", groups, bars, line_at=BEYOND)


def _rivals_over_sizes(cells: Sequence[Against]) -> str:
    ranks = max(one.ranks for one in cells)
    mine = [one for one in cells if one.ranks == ranks and one.network in (SAME, "1:1")]
    lines = {
        f"{name}, {'BiGraph' if network == SAME else 'Clos'}": [
            (one.size_bytes / _MIB, one.mean)
            for one in mine
            if (one.algorithm, one.network) == (name, network)
        ]
        for network in ("1:1", SAME)
        for name in (NEAREST, FARTHEST, RING)
    }
    title = f"HDRM on a BiGraph over others, {ranks} ranks, mean over seeds"
    return line_chart(title, "MiB", "times as fast", lines, log_x=True)


def _efficiency(cells: Sequence[Scaled], policy: str, dtype: str) -> str:
    lines = curves(cells, "setup", lambda one: one.workers, lambda one: 100 * one.efficiency)
    title = f"ResNet-50, {dtype}, {policy}: share of linear scaling"
    return line_chart(title, "V100 GPUs", "%", lines, log_x=True)
