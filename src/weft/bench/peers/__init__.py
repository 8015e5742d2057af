"""The runtimes that can be measured: one file each, behind `weft.bench.peers.peer`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.bench.peers.peer import Peer

PEERS: Final = {
    "gloo": "gloo.Gloo",
    "mpi": "open_mpi.OpenMpi",
    "mpi4": "open_mpi_4.OpenMpi4",
    "mpich": "mpich.Mpich",
    "oneccl": "oneccl.OneCcl",
}
"""Module and class of each, by its name on the command line."""

_CLASSES: Final = {"weft": "weft_peer.Weft", **PEERS}


def find_entry(name: str) -> Peer:
    """The peer of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in _CLASSES:
        raise InputError(f"--against {name}: there is no such peer; known: {', '.join(PEERS)}")
    module, kind = _CLASSES[name].split(".")
    peer: Peer = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return peer


def find_peers(names: Sequence[str]) -> list[Peer]:
    """The peers of some names, each once.

    Raises
    ------
    InputError
        If one is unknown or named twice.
    """
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--against: {name} is there twice")
    return [find_entry(name) for name in names]
