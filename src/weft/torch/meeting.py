"""How the ranks of a torch process group meet: through the store that the group has already.

Only the members of a new group know of it, so nothing but its own store can bring them together. The
variables ``WEFT_ADDRESS``, ``WEFT_PORT`` and ``WEFT_SECRET`` say where rank 0 of the *job* listens, who need
not be in the group: they are not used here. Whoever can reach the store can read the note that is left there,
and so could come in a rank's place; that is true of every backend of torch.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from torch import distributed as dist

from weft import limits
from weft.errors import InputError
from weft.runtime.boards import Note
from weft.runtime.engines.native import NativeEngine
from weft.runtime.environment import LOOPBACK, Place
from weft.runtime.names import look_up
from weft.runtime.rendezvous import join
from weft.runtime.start import open_communicator
from weft.torch.internals import DEFAULT_TIMEOUT_S, store_host
from weft.torch.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime.communicator import Communicator
    from weft.schedule import Schedule
    from weft.topology import Topology

_KEY: Final = "weft/note"
_LONGEST_LOOK_S: Final = 1.0
"""What torch's store waits for cannot be interrupted from the keyboard: not longer than this at a time."""

_SOME_PORT: Final = 9
_ELSEWHERE: Final = "192.0.2.1"
"""Nobody has this address (RFC 5737): to ask which way leads out of this machine. Nothing is sent to it."""


@dataclass(frozen=True)
class GroupBoard:
    """A key in the store of a group.

    Parameters
    ----------
    store
        Which only the group's ranks use.
    key
        Used by nobody before.
    """

    store: Any
    key: str

    def __str__(self) -> str:
        return f"the process group's store, key {self.key!r}"

    def leave(self, note: Note, timeout: float) -> None:  # noqa: ARG002 - the store has its own
        """Put a note there."""
        try:
            self.store.set(self.key, note.encode().decode())
        except RuntimeError as error:
            raise self._lost(error) from error

    def read(self, timeout: float) -> Note | None:
        """Note that is there within a moment."""
        try:
            self.store.wait([self.key], timedelta(seconds=min(timeout, _LONGEST_LOOK_S)))
        except RuntimeError as error:  # torch has no narrower one for a store that is gone
            if isinstance(error, dist.DistNetworkError):
                raise self._lost(error) from error
            return None
        return Note.decode(self.store.get(self.key))

    def remove(self) -> None:
        """Take the note away, if the store is still there."""
        try:
            self.store.delete_key(self.key)
        except RuntimeError:
            return  # some stores cannot, and nobody reads this key again

    def _lost(self, error: RuntimeError) -> ConnectionError:
        return ConnectionError(f"{self}: {str(error).partition(chr(10))[0]}")


def connect(
    group: dist.ProcessGroup | None = None,
    *,
    plan: Plan | str | Path | None = None,
    schedule: Schedule | str | Path | None = None,
    topology: Topology | str | None = None,
    algorithm: str | None = None,
    transport: str = "auto",
    streams: int = 2,
    timeout: float = DEFAULT_TIMEOUT_S,
    planning: float = 20.0,
) -> Communicator:
    """Communicator of the ranks of a process group, whatever its backend; every rank of the group calls this.

    Parameters
    ----------
    group
        By default all ranks of torch.distributed.
    plan, schedule, topology, algorithm, transport, streams, planning
        As for `weft.init`.
    timeout
        Seconds for meeting, and for each operation unless it is given its own.

    Raises
    ------
    InputError
        If there is no group, or this process is not in it.
    TimedOut, PeerLost
        If other ranks do not come.
    """
    if not dist.is_available() or not dist.is_initialized():
        msg = "there is no process group; call torch.distributed.init_process_group() first"
        raise InputError(msg)
    found = dist.group.WORLD if group is None else group
    if not isinstance(found, dist.ProcessGroup) or found.rank() < 0:
        msg = "this process is not in the group that was given; only its members call connect"
        raise InputError(msg)
    store, rank = found.get_group_store(), found.rank()
    # Every rank counts how often it was here: the note of an earlier meeting is not taken for this one's.
    number = store.add(f"weft/{rank}", 1)
    options = Options(
        plan=plan,
        schedule=schedule,
        topology=topology,
        algorithm=algorithm,
        transport=transport,
        streams=streams,
        planning=planning,
    )
    return meet(store, rank, found.size(), options, timeout=timeout, key=f"{_KEY}/{number}")


def meet(
    store: Any, rank: int, size: int, options: Options, *, timeout: float, key: str = _KEY
) -> Communicator:
    """Communicator of ranks that share a store, and a key in it that nobody has used before."""

    def connect_engine(cables: Topology | None) -> NativeEngine:
        address = find_own_address(store, timeout) if rank == 0 and size > 1 else None
        place = Place(rank, size, address=address, job=key, board=GroupBoard(store, key))
        return NativeEngine.connect(
            join(place, timeout=timeout),
            transport=options.transport,
            streams=options.streams,
            timeout=timeout,
            topology=cables,
        )

    return open_communicator(
        connect_engine,
        plan=options.plan,
        schedule=options.schedule,
        topology=options.topology,
        algorithm=options.algorithm,
        timeout=timeout,
        planning=options.planning,
    )


def find_topology(options: Options, size: int) -> Topology | str | None:
    """What ``WEFT_TOPOLOGY`` names, for a group of all ranks of the job to which nothing else was given."""
    if options.topology is not None or options.plan is not None or options.schedule is not None:
        return options.topology
    everybody = not dist.is_initialized() or size == dist.get_world_size()
    return os.environ.get("WEFT_TOPOLOGY") or None if everybody else None


def find_own_address(store: Any, timeout: float) -> str:
    """Address of this machine on the way to the store's host, where the other ranks reach it too.

    A host name that leads back to this machine may stand for its loopback address, as in Debian's
    ``/etc/hosts``; ranks of other machines then need the address of the way out.
    """
    host = store_host(store) or os.environ.get("MASTER_ADDR") or LOOPBACK
    address = _address_towards(host, timeout)
    named = host != "localhost" and not _is_loopback(host)
    if not _is_loopback(address) or not named:
        return address
    try:
        return _address_towards(_ELSEWHERE, timeout)
    except InputError:
        return address  # no way leads out: all ranks are here


def _address_towards(host: str, timeout: float) -> str:
    try:
        family, where = look_up(host, _SOME_PORT, min(timeout, limits.MAX_UNPROVEN_SECONDS))[0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(where)  # of datagrams: nothing is sent
            return str(way.getsockname()[0])
    except OSError as error:
        msg = f"the host of the process group's store, {host}: {error.strerror or error}"
        raise InputError(f"{msg}; MASTER_ADDR must be reachable from every rank") from error


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
