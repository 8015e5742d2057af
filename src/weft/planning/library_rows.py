"""On which clusters a comparison shows what Gloo and MPI libraries would run, if it is not asked for them.

They are libraries for hosts on a switched network. Where ranks are wired to ranks (a torus, a full mesh) or
are GPUs inside boxes, their rows would tell nothing but that nobody runs them there. NCCL's rows need no such
rule, because its algorithms refuse every cluster that has no boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.algorithms.registry import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.algorithms.registry import Algorithm
    from weft.topology import Topology

_PARTS_OF_BOXES: Final = ("nvswitch", "pcie", "nic", "grace")
_COMPOSED: Final = {"all_reduce": "sums", "broadcast": "copies"}
"""What MPICH does inside the hosts before or after the same between them."""


def refuse_by_default(lines: Iterable[Algorithm], topology: Topology, collective: str) -> dict[str, Refusal]:
    """Find the algorithms that a comparison does not try unless it is asked for them, by name, and why.

    Examples
    --------
    >>> from weft.algorithms.registry import find
    >>> from weft.topology import load_topology
    >>> lines = [find("ring"), find("open_mpi_choice"), find("mpich_choice")]
    >>> list(refuse_by_default(lines, load_topology("torus:4x4"), "all_reduce"))
    ['open_mpi_choice', 'mpich_choice']
    >>> refuse_by_default(lines, load_topology("hosts:4,4"), "all_reduce")["mpich_choice"].reason
    'MPICH sums inside each host first, not modelled; --algorithm mpich_choice does so among all ranks'
    """
    yardsticks = [line for line in lines if line.yardstick]
    if not _is_of_hosts(topology):
        reason = "shown for hosts on switches; --algorithm asks for them elsewhere"
        return {line.name: Refusal(line.name, reason) for line in yardsticks}
    composed = collective in _COMPOSED and 1 < len(topology.hosts) < topology.ranks
    return {
        line.name: Refusal(
            line.name,
            f"MPICH {_COMPOSED[collective]} inside each host first, not modelled;"
            f" --algorithm {line.name} does so among all ranks",
        )
        for line in yardsticks
        if composed and line.library == "mpich"
    }


def _is_of_hosts(topology: Topology) -> bool:
    """Whether no two ranks share a cable and no switch is a part of a box of GPUs."""
    ranks = topology.ranks
    if bool(((topology.link_src < ranks) & (topology.link_dst < ranks)).any()):
        return False
    parts = {name.rpartition(".")[2].rstrip("0123456789") for name in topology.switch_names}
    return parts.isdisjoint(_PARTS_OF_BOXES)
