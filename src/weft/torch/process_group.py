"""``torch.distributed.init_process_group("weft")``: a process group that runs on Weft.

This module has the beginning and the end of a group; `weft.torch.group_methods` has its collectives. Methods
that are in neither raise (`weft.torch.internals.make_stand_in`).
"""

from __future__ import annotations

import atexit
import time
import warnings
import weakref
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from torch import distributed as dist

from weft.errors import InputError
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.environment import LOOPBACK
from weft.runtime.byte_exchange import CommunicatorWords, broadcast_bytes
from weft.runtime.resources import close_on_error
from weft.torch.call_arguments import check_time
from weft.torch.failures import DeferredFailures
from weft.torch.group_methods import BACKEND, GroupMethods
from weft.torch.internals import TCPStore, make_stand_in, register
from weft.torch.peer_connections import PeerConnections, open_peer_connections
from weft.torch.store_bootstrap import Options, find_topology, meet

if TYPE_CHECKING:
    from weft.runtime.communicator import Communicator

_EXIT_PATIENCE_S: Final = 10.0
"""How long a process that ends waits for running operations, so that other ranks get its part of them."""

_CANCELLED_WITHIN_S: Final = 5.0
"""How long a group that is aborted waits until the operations that it has cancelled have ended."""


class WeftProcessGroup(GroupMethods):
    """Ranks that compute collectives together; made by ``init_process_group`` and ``new_group``.

    Parameters
    ----------
    store
        The store through which the ranks have connected.
    communicator
        The communicator that runs the collectives.
    connections
        The connections for messages between two ranks.
    failures
        The failures of operations that were not waited for yet.
    """

    def __init__(
        self, store: Any, communicator: Communicator, connections: PeerConnections, failures: DeferredFailures
    ) -> None:
        super().__init__(communicator, connections, failures)
        limit = timedelta(seconds=communicator.timeout)
        self._stand_in = make_stand_in(communicator.rank, communicator.size, limit)
        register(self, self._stand_in)
        self._store = store
        self._ended = False
        # At the end of the process the group ends, and its communicator with it.
        atexit.unregister(communicator.close)
        _groups.add(self)

    def name(self) -> str:
        """Return the name of the backend."""
        return BACKEND

    _get_backend_name = getBackendName = name

    def get_group_store(self) -> Any:
        """Return the store through which the ranks have connected."""
        return self._store

    @property
    def options(self) -> Any:
        """The options of the group as torch has them: its timeout is there."""
        return self._stand_in.options

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time that an operation may take from here on."""
        check_time(timeout)
        seconds = check_timeout(timeout.total_seconds())
        self.communicator.timeout = self.failures.timeout = seconds
        self._stand_in.options._timeout = timeout

    def shutdown(self) -> None:
        """Finish the operations that were started, each within its own deadline, and close the group.

        An operation that cannot be finished does not raise here, where torch could not go on, but where it is
        waited for; a warning names it.
        """
        if not self._has_ended():
            self._end(None)
            self._warn()

    def abort(self) -> None:
        """Close the group at once and cancel running operations, whose ``wait`` raises a `RuntimeFailure`.

        Ranks that are in an operation with this one get `PeerLost`.
        """
        if not self._has_ended():
            self._end(0.0)

    def _has_ended(self) -> bool:
        """Return whether the group is closed, or belongs to the parent of this forked child."""
        return self._ended or self.failures.forked

    def _end(self, patience: float | None) -> bool:
        """Close the group; return whether operations were cancelled after `patience` seconds."""
        self._leaving = True
        self._connections.leave()
        cancelled = self.failures.drain(patience) > 0
        if cancelled:
            self._connections.abort()
            self.communicator.abort()
            self.failures.drain(_CANCELLED_WITHIN_S)  # nothing writes to a tensor afterwards
        else:
            self._connections.close()
            self.communicator.close()
        self.failures.close()
        self._ended = True
        return cancelled

    def _warn(self) -> None:
        """Warn of a failure that was never raised, and of messages that were never received."""
        if self.failures.unreported is not None:
            msg = f"an operation that nobody has waited for has failed: {self.failures.unreported}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)
        for sender, tags in self._connections.unreceived().items():
            msg = f"messages of rank {sender} with tags that were never received are lost: {tags[:10]}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once every rank has called this; name the ranks that have not after `timeout`.

        It uses the store of the group alone, so the ranks that have called it can go on after a failure.

        Parameters
        ----------
        timeout
            By default that of the group.
        wait_all_ranks
            Name all ranks that are missing, and not only the first of them.

        Raises
        ------
        TimedOut
            At rank 0 with the ranks that are missing, at the others if rank 0 is missing or has given up.
        """
        self._check_usable()
        check_time(timeout)
        seconds = self.communicator.timeout if timeout is None else timeout.total_seconds()
        self._connections.barrier.wait(seconds, wait_all_ranks)


_groups: weakref.WeakSet[WeftProcessGroup] = weakref.WeakSet()


def _leave_all() -> None:
    """Close all groups at the end of the process; torch would keep their objects longer."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for group in tuple(_groups):
        if not group._has_ended() and group._end(max(0.0, deadline - time.monotonic())):
            msg = "this process ended while operations of its process group were under way"
            hint = "they were cancelled: wait for them, or call destroy_process_group"
            warnings.warn(f"{msg}; {hint}", RuntimeWarning, stacklevel=1)
        group.__dict__.clear()


atexit.register(_leave_all)


def init_process_group(communicator: Communicator) -> None:
    """Make torch's default process group run on a communicator; every rank of it calls this.

    A default group that exists is destroyed first: after a rank was lost it cannot be used any more. The new
    group has the ranks of the communicator, and a store of its own at rank 0.

    Parameters
    ----------
    communicator
        The result of `weft.Communicator.shrink` or `weft.init`; it is closed with the group.

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
    store = None
    place = b""
    if communicator.rank == 0:
        address = _own_address(communicator)
        store = TCPStore(address, 0, communicator.size, True, limit, wait_for_workers=False)
        place = store.port.to_bytes(2) + address.encode()
    place = broadcast_bytes(CommunicatorWords(communicator, "process group"), place)
    if store is None:
        host, port = place[2:].decode(), int.from_bytes(place[:2])
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
    """Return the address of this rank at which the other ranks reach it."""
    control_plane = communicator._control_plane
    if control_plane is None or len({member.boot_id for member in control_plane.members}) == 1:
        return LOOPBACK
    return control_plane.address


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Return the communicator that a group of backend weft runs on; by default that of all ranks.

    Raises
    ------
    InputError
        If the group has another backend; `weft.torch.connect` makes a communicator of its ranks.
    """
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if not isinstance(group, WeftProcessGroup):
        outside = cast("Any", group) == dist.GroupMember.NON_GROUP_MEMBER
        what = "this process is not in the group" if outside else "the process group is not of backend weft"
        what = "there is no process group" if group is None else what
        raise InputError(f"{what}; init_process_group('weft') makes one, weft.torch.connect takes any")
    return group.communicator


def create(given: Any, options: Options | None) -> WeftProcessGroup:
    """Make a group, for torch: connect its ranks."""
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"pg_options of backend weft are weft.torch.Options, not {type(options).__name__}")
    options = options or Options()
    seconds = given.timeout.total_seconds()
    found = options.communicator
    if found is None:
        options = replace(options, topology=find_topology(options, given.group_size))
        found = meet(given.store, given.group_rank, given.group_size, options, timeout=seconds)
    failures = DeferredFailures(found.timeout)
    with close_on_error(found):
        check = partial(failures.check, reports=False)
        connections = open_peer_connections(given.store, found, options, check, seconds)
    return WeftProcessGroup(given.store, found, connections, failures)


dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])
