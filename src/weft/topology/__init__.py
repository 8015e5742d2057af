"""Clusters as values: ranks, switches and directed links, however they were described.

`load_topology` is the door: a spec string, a file, or a networkx graph. `Topology` is what everything
downstream sees; it knows nothing of where it came from.
"""

from weft.topology.graph import Grid, Routing, Topology
from weft.topology.load import load_topology
from weft.topology.toml_file import save_topology

__all__ = ["Grid", "Routing", "Topology", "load_topology", "save_topology"]
