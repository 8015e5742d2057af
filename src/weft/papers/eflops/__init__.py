"""EFLOPS (Dong et al., HPCA 2020): a network interface for each GPU, a BiGraph, and ranks mapped onto it.

Three studies: what sharing a NIC costs (`sharing`), also where the root complex is slow (`root_paths`), what
hashing and crossing flows cost on the network (`fabrics`), and what both mean for training (`scaling`). The
abstract has two numbers and no set-up, so none of these can be held against the paper's own; each says what
comes out for cases that are named. Each claim has one row that counts; the others begin with "variant".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from weft.papers.eflops import fabrics, scaling, sharing
from weft.papers.eflops.charts import draw
from weft.papers.eflops.root_paths import ROOT_PATHS
from weft.papers.eflops.rows import fabric_rows, root_rows, scaling_rows, sharing_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings


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
    rooted
        Whether servers with published speeds of the root complex are studied.
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
    rooted: bool = True


_NONE: Final = Effort(gpus=(), shapes=(), workers=(), checked=0, rooted=False)
NEEDED: Final = {
    "eflops-nic": replace(_NONE, gpus=(sharing.USUAL,), nics=(1,)),
    "eflops-hdrm": replace(_NONE, shapes=Effort().shapes),
    "eflops-scaling": replace(_NONE, workers=scaling.WORKERS[-1:]),
}
"""What of the studies suffices for each claim."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return len(effort.gpus) + effort.rooted + len(effort.shapes) + len(effort.workers) + bool(effort.checked)


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the studies of sharing, of fabrics and of scaling."""
    shared = list(sharing.sweep(effort.gpus, effort.nics, effort.sizes, tell))
    if shared:
        yield from sharing_rows(shared)
    rooted = list(sharing.through_root(effort.nics, effort.sizes[-1], tell)) if effort.rooted else []
    if rooted:
        yield from root_rows(rooted)
    against = list(
        fabrics.sweep(effort.shapes, effort.oversubscriptions, effort.sizes, range(effort.seeds), tell)
    )
    if against:
        yield from fabric_rows(against, effort.seeds)
    scaled = list(scaling.scale(effort.workers, range(effort.training_seeds), tell))
    checks = []
    if effort.checked:
        tell("every link")
        checks = [scaling.check(setup, effort.checked, "wfbp", "fp16") for setup in scaling.SETUPS]
    if scaled:
        yield from scaling_rows(scaled, checks)
    data: dict[str, Any] = {
        "sharing": [one.to_dict() for one in shared],
        "root_paths": [asdict(path) for path in ROOT_PATHS],
        "through_root": [one.to_dict() for one in rooted],
        "fabrics": [one.to_dict() for one in against],
        "scaling": [one.to_dict() for one in scaled],
        "checks": checks,
    }
    return data, lambda: draw(shared, rooted, against, scaled)
