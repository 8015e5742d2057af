"""``torch.distributed.init_process_group("weft")``: a process group that runs on Weft.

This has how a group begins and ends; `weft.torch.methods` has its collectives. Whatever is in neither raises
(`weft.torch.internals.make_stand_in`).
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
from weft.torch.call_arguments import check_time
from weft.torch.failures import DeferredFailures
from weft.torch.group_options import Options
from weft.torch.internals import make_stand_in, register
from weft.torch.methods import BACKEND, GroupMethods
from weft.torch.peer_connections import PeerConnections, open_pairs
from weft.torch.store_bootstrap import find_topology, meet

if TYPE_CHECKING:
    from weft.runtime.communicator import Communicator

_EXIT_PATIENCE_S: Final = 10.0
"""How long a process that ends waits for operations under way, so that the others get its part of them."""

_CANCELLED_WITHIN_S: Final = 5.0
"""How long a group that is aborted waits until what it has cancelled has ended."""


class WeftProcessGroup(GroupMethods):
    """Ranks that compute collectives together; made by ``init_process_group`` and ``new_group``.

    Parameters
    ----------
    store
        That the ranks have met through.
    communicator
        What runs.
    pairs
        For messages between two ranks.
    guard
        Keeps failures.
    """

    def __init__(
        self, store: Any, communicator: Communicator, pairs: PeerConnections, guard: DeferredFailures
    ) -> None:
        super().__init__(communicator, pairs, guard)
        limit = timedelta(seconds=communicator.timeout)
        self._stand_in = make_stand_in(communicator.rank, communicator.size, limit)
        register(self, self._stand_in)
        self._store = store
        self._ended = False
        # At the end of the process the group ends, and its communicator with it.
        atexit.unregister(communicator.close)
        _groups.add(self)

    def name(self) -> str:
        """Name of the backend."""
        return BACKEND

    def _get_backend_name(self) -> str:
        return BACKEND

    getBackendName = _get_backend_name

    def get_group_store(self) -> Any:
        """Store that the ranks have met through."""
        return self._store

    @property
    def options(self) -> Any:
        """Options of the group as torch has them: its timeout is there."""
        return self._stand_in.options

    def set_timeout(self, timeout: timedelta) -> None:
        """Seconds that an operation may take from here on."""
        check_time(timeout)
        seconds = check_timeout(timeout.total_seconds())
        self.communicator.timeout = self.guard.timeout = seconds
        self._stand_in.options._timeout = timeout

    def shutdown(self) -> None:
        """Finish what was started, each operation within its own deadline, and leave.

        An operation that cannot be finished does not raise here, where torch could not go on, but where it is
        waited for; a warning names it.
        """
        if not self._has_ended():
            self._end(None)
            self._warn()

    def abort(self) -> None:
        """Leave at once, and cancel what is under way: its ``wait`` raises a `RuntimeFailure`.

        Ranks that are in an operation with this one get `PeerLost`.
        """
        if not self._has_ended():
            self._end(0.0)

    def _has_ended(self) -> bool:
        """Whether there is nothing to leave any more, or it is the parent's of this forked child."""
        return self._ended or self.guard.forked

    def _end(self, patience: float | None) -> bool:
        """Leave; whether operations had to be cancelled, since they were not over within so many seconds."""
        self._leaving = True
        self._pairs.leave()
        cancelled = self.guard.drain(patience) > 0
        if cancelled:
            self._pairs.abort()
            self.communicator.abort()
            self.guard.drain(_CANCELLED_WITHIN_S)  # nothing writes to a tensor afterwards
        else:
            self._pairs.close()
            self.communicator.close()
        self.guard.close()
        self._ended = True
        return cancelled

    def _warn(self) -> None:
        """Tell what nobody has been told of, and nobody can be told of any more."""
        if self.guard.untold is not None:
            msg = f"an operation that nobody has waited for has failed: {self.guard.untold}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)
        for sender, tags in self._pairs.unreceived().items():
            msg = f"messages of rank {sender} with tags that were never received are lost: {tags[:10]}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once every rank has come; name those that have not after `timeout`.

        Ranks meet through the store of the group, so those that have come can go on after a failure.

        Parameters
        ----------
        timeout
            By default that of the group.
        wait_all_ranks
            Name all ranks that are missing, and not only the first of them.

        Raises
        ------
        TimedOut
            At rank 0 with the ranks that have not come, at the others if rank 0 has not come or has given up.
        """
        self._check_usable()
        check_time(timeout)
        seconds = self.communicator.timeout if timeout is None else timeout.total_seconds()
        self._pairs.meet_all(seconds, wait_all_ranks)


_groups: weakref.WeakSet[WeftProcessGroup] = weakref.WeakSet()


def _leave_all() -> None:
    """Leave all groups at the end of the process; beyond that torch would keep what they refer to."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for group in tuple(_groups):
        if not group._has_ended() and group._end(max(0.0, deadline - time.monotonic())):
            msg = (
                "this process ended while operations of its process group were under way; they were cancelled"
            )
            warnings.warn(
                f"{msg}: wait for them, or call destroy_process_group", RuntimeWarning, stacklevel=1
            )
        group.__dict__.clear()


atexit.register(_leave_all)


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Communicator that a group of backend weft runs on; by default that of all ranks.

    Raises
    ------
    InputError
        If the group has another backend; `weft.torch.connect` makes a communicator of its ranks.
    """
    return weft_group(group).communicator


def weft_group(group: dist.ProcessGroup | None = None) -> WeftProcessGroup:
    """The group, if it is one of Weft's."""
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if not isinstance(group, WeftProcessGroup):
        outside = cast("Any", group) == dist.GroupMember.NON_GROUP_MEMBER
        what = "this process is not in the group" if outside else "the process group is not of backend weft"
        what = "there is no process group" if group is None else what
        msg = f"{what}; init_process_group('weft') makes one, weft.torch.connect takes any"
        raise InputError(msg)
    return group


def create(given: Any, options: Options | None) -> WeftProcessGroup:
    """Make a group, for torch: meet the others, and connect."""
    if options is not None and not isinstance(options, Options):
        msg = f"pg_options of backend weft are weft.torch.Options, not {type(options).__name__}"
        raise TypeError(msg)
    options = options or Options()
    seconds = given.timeout.total_seconds()
    found = options.communicator
    if found is None:
        options = replace(options, topology=find_topology(options, given.group_size))
        found = meet(given.store, given.group_rank, given.group_size, options, timeout=seconds)
    guard = DeferredFailures(found.timeout)
    try:
        pairs = open_pairs(given.store, found, options, partial(guard.check, tells=False), seconds)
    except BaseException:
        found.close()
        raise
    return WeftProcessGroup(given.store, found, pairs, guard)
