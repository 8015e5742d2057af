"""The runtimes that can be measured: one file each, behind `weft.bench.peers.peer`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.bench.peers.peer import Peer

PEERS: Final = {
    "gloo": "weft.bench.peers.gloo",
    "mpi": "weft.bench.peers.open_mpi",
    "mpi4": "weft.bench.peers.open_mpi_4",
    "mpich": "weft.bench.peers.mpich",
    "oneccl": "weft.bench.peers.oneccl",
}
_MODULES: Final = {"weft": "weft.bench.peers.weft_peer", **PEERS}


def find_entry(name: str) -> Peer:
    """The peer of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in _MODULES:
        msg = f"--against {name}: there is no such contestant; known: {', '.join(PEERS)}"
        raise InputError(msg)
    entry: Peer = importlib.import_module(_MODULES[name]).ENTRY
    return entry


def find_peers(names: Sequence[str]) -> list[Peer]:
    """The peers of some names, each once.

    Raises
    ------
    InputError
        If one is unknown or named twice.
    """
    for name in names:
        if names.count(name) > 1:
            msg = f"--against: {name} is there twice"
            raise InputError(msg)
    return [find_entry(name) for name in names]
