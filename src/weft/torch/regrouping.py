"""A process group over a communicator that is there already, such as that of the survivors of a lost rank."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
from torch import distributed as dist

from weft.runtime.bootstrap.environment import LOOPBACK
from weft.torch.group_options import Options
from weft.torch.internals import TCPStore
from weft.torch.methods import BACKEND

if TYPE_CHECKING:
    from weft.runtime.communicator import Communicator

_LONGEST_ADDRESS = 64


def init_process_group(communicator: Communicator) -> None:
    """Make torch's default process group run on a communicator; every rank of it calls this.

    A default group that exists is destroyed first: after a rank was lost it is of no use any more. The new
    group has the ranks of the communicator, and a store of its own at rank 0.

    Parameters
    ----------
    communicator
        What `weft.Communicator.shrink` or `weft.init` returned; closed with the group.

    Examples
    --------
    ::

        except weft.PeerLost:
            survivors = weft.torch.communicator().shrink()
            weft.torch.init_process_group(survivors)
            model = DistributedDataParallel(model.module)
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    limit = timedelta(seconds=communicator.timeout)
    place = np.zeros(_LONGEST_ADDRESS + 2, np.uint8)
    store = None
    if communicator.rank == 0:
        address = _own_address(communicator)
        store = TCPStore(address, 0, communicator.size, True, limit, wait_for_workers=False)
        encoded = store.port.to_bytes(2) + address.encode()
        place[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    told = communicator.broadcast(place, kind="process group").tobytes()
    if store is None:
        host, port = told[2:].rstrip(b"\0").decode(), int.from_bytes(told[:2])
        store = TCPStore(host, port, communicator.size, False, limit)
    dist.init_process_group(
        BACKEND,
        store=store,
        rank=communicator.rank,
        world_size=communicator.size,
        timeout=limit,
        pg_options=Options(communicator=communicator),
    )


def _own_address(communicator: Communicator) -> str:
    """Address of this rank where the others reach it."""
    plane = communicator._control_plane
    alone = plane is None or plane.size == 1 or len({one.boot_id for one in plane.members}) == 1
    return LOOPBACK if alone or plane is None else plane.address
