"""Clusters as values: ranks, switches and directed links, however they were described.

`load_topology` is the door: a spec string, a file, or a networkx graph. `Topology` is what everything
downstream sees; it knows nothing of where it came from.

What reads and writes descriptions is loaded on first use: a job whose cluster nobody describes needs none
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.topology.graph import Grid, Routing, Topology

if TYPE_CHECKING:
    from weft.topology.load import load_topology
    from weft.topology.toml_file import save_topology

__all__ = ["Grid", "Routing", "Topology", "load_topology", "save_topology"]


def __getattr__(name: str) -> Any:
    if name == "load_topology":
        from weft.topology.load import load_topology

        return load_topology
    if name == "save_topology":
        from weft.topology.toml_file import save_topology

        return save_topology
    raise AttributeError(f"module 'weft.topology' has no attribute {name!r}")
