"""EFLOPS (Dong et al., HPCA 2020): a network interface for each GPU, a BiGraph, and ranks mapped onto it.

Three studies: what sharing a NIC costs (`sharing`), what hashing and crossing flows cost on the network
(`fabrics`), and what both mean for training (`scaling`). The abstract has two numbers and no set-up, so none
of these can be held against the paper's own; each says what comes out for cases that are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.papers.eflops import fabrics, scaling, sharing
from weft.papers.eflops.charts import draw
from weft.papers.eflops.rows import fabric_rows, scaling_rows, sharing_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings

TITLE: Final = "EFLOPS: algorithm and system co-design for a high performance distributed training platform"
REFERENCE: Final = "J. Dong et al., HPCA 2020"
ASSUMPTIONS: Final = (
    (
        "of the paper only the abstract was at hand: two numbers, 11.3x and 6.08x, and 'near-linear'. Its "
        "servers, networks, speeds, sizes, baselines and batches are not known, and neither is what the "
        "numbers are measured on; all set-ups here are ours"
    ),
    (
        "HD is halving-doubling. Nearest first sends the large parts to near ranks, as HDRM does; farthest "
        "first is how recursive halving is often described. A ring goes from server to server, or visits "
        "another with each hop where ranks are dealt out to servers one by one"
    ),
    (
        "the wiring of a BiGraph and HDRM's map are those of the simulator of MultiTree's authors; that a "
        "GPU reaches its own NIC over its own PCIe switch is our reading"
    ),
    "PCIe links carry 12 GB/s (3.0 x16) with 250 ns, NICs and cables 12.5 GB/s (100 Gb/s) with 1 us: assumed",
    (
        "a server that shares has two GPUs on each PCIe switch and its NICs on the root complex; one that "
        "does not has a PCIe switch for each GPU. GPUs of one server talk over PCIe in both, without NVLink"
    ),
    (
        "sharing is ideal: a link carries its full speed however many want it, in turns of whole messages, "
        "or at equal rates where that is said. No packet is lost, nothing is paused, nobody is served "
        "unfairly; the abstract speaks of congestion, and what it costs beyond sharing is not modelled"
    ),
    (
        "ECMP hashes source and destination with a seed, and each pair keeps its way; a Clos has as many "
        "ranks on each leaf as the BiGraph on each switch, and as many spines, or a half or a quarter"
    ),
    (
        "in the second study a rank is a GPU with its NIC on a link of 12 GB/s, and what is inside servers "
        "plays no part"
    ),
    (
        "ResNet-50 is computed by a roofline of the V100 (docs/workloads.md), 64 images for each GPU, fp32 "
        "and fp16, which sends half and computes in a third of the time; wfbp sends each tensor alone, ddp "
        "in buckets of 25 MB. Collectives follow one another on one channel, with simulated times"
    ),
    "BiGraphs in training: 2,8 4,8 4,16 8,16 8,32 16,32; shared NICs four to a leaf, as many spines",
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Parameters
    ----------
    gpus, nics
        Of servers that share.
    sizes
        Bytes of all-reduces alone.
    shapes, oversubscriptions, seeds
        BiGraphs, Clos networks, and how many seeds of the hash.
    workers, training_seeds
        GPUs that train, and seeds there.
    checked
        GPUs at which every link is simulated as well; 0 for none.
    """

    gpus: tuple[int, ...] = (2, 4, 8, 16)
    nics: tuple[int, ...] = (1, 2)
    sizes: tuple[int, ...] = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
    shapes: tuple[tuple[int, int], ...] = ((4, 8), (4, 16), (8, 16))
    oversubscriptions: tuple[int, ...] = (1, 2, 4)
    seeds: int = 32
    workers: tuple[int, ...] = scaling.WORKERS
    training_seeds: int = 4
    checked: int = 32


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return len(effort.gpus) + len(effort.shapes) + len(effort.workers) + bool(effort.checked)


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the studies of sharing, of fabrics and of scaling."""
    shared = list(sharing.sweep(effort.gpus, effort.nics, effort.sizes, tell))
    against = list(
        fabrics.sweep(effort.shapes, effort.oversubscriptions, effort.sizes, range(effort.seeds), tell)
    )
    scaled = list(scaling.scale(effort.workers, range(effort.training_seeds), tell))
    checks = []
    if effort.checked:
        tell("every link")
        checks = [scaling.check(setup, effort.checked, "wfbp", "fp16") for setup in scaling.SETUPS]
    rows = (
        *sharing_rows(shared),
        *fabric_rows(against, effort.seeds),
        *scaling_rows(scaled, checks),
    )
    data: dict[str, Any] = {
        "sharing": [one.to_dict() for one in shared],
        "fabrics": [one.to_dict() for one in against],
        "scaling": [one.to_dict() for one in scaled],
        "checks": checks,
    }
    return rows, data, draw(shared, against, scaled)
