"""Join through the store of a process group of torch.distributed, which only its members know.

A process that can reach the store can read the note, and so could come in a rank's place; that is
true of every backend of torch.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.errors import InputError, RuntimeFailure
from weft.runtime.bootstrap.environment import LOOPBACK, Place, on_one_machine
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.bootstrap.secret_note import SecretNote
from weft.runtime.foreign_calls import call_within

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_LOOK_S: Final = 1.0
"""What torch's store waits for cannot be interrupted from the keyboard: not longer than this at a time."""

_SOME_PORT: Final = 9
_ELSEWHERE: Final = "192.0.2.1"
"""Nobody has this address (RFC 5737): to ask which way leads out of this machine. Nothing is sent to it."""


_ANSWER_S: Final = 10.0
"""A store that does not answer for so long is taken for lost: its process may be frozen."""


class AnsweringStore:
    """A store of torch.distributed whose calls end: torch waits without a deadline for a frozen process.

    Parameters
    ----------
    store
        Which only the ranks of a group use.
    answer_s
        Seconds that it has for an answer.
    """

    def __init__(self, store: Any, answer_s: float = _ANSWER_S) -> None:
        self._store, self._answer_s = store, answer_s

    def add(self, key: str, amount: int) -> int:
        """Add to a number, and return it."""
        return int(self._ask(lambda: self._store.add(key, amount)))

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key to a value."""
        self._ask(lambda: self._store.set(key, value))

    def get(self, key: str) -> bytes:
        """A value that is there."""
        found: bytes = self._ask(lambda: self._store.get(key))
        return found

    def check(self, keys: list[str]) -> bool:
        """Whether values are there."""
        return bool(self._ask(lambda: self._store.check(keys)))

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Return when values are there."""
        self._ask(lambda: self._store.wait(keys, timeout), timeout.total_seconds())

    def delete_key(self, key: str) -> None:
        """Take a value away."""
        self._ask(lambda: self._store.delete_key(key))

    def _ask(self, call: Callable[[], Any], seconds: float = 0.0) -> Any:
        """What the store answers, or raises; a RuntimeError, as torch's own, if that takes too long."""
        try:
            return call_within(seconds + self._answer_s, "weft store", call)
        except TimeoutError as error:
            raise RuntimeError(f"it has not answered for {self._answer_s:.0f} s") from error


def count_visit(store: Any, rank: int) -> int:
    """How often this rank was here: what an earlier meeting left in the store is not taken for this one's.

    Raises
    ------
    RuntimeFailure
        If the store does not answer.
    """
    try:
        return AnsweringStore(store).add(f"weft/{rank}", 1)
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        msg = f"the store of the process group does not answer: {said}"
        raise RuntimeFailure(f"{msg}; did the process that serves it die or freeze?") from error


@dataclass(frozen=True)
class GroupExchangeStore:
    """A key in the store of a group.

    Parameters
    ----------
    store
        Which only the group's ranks use.
    key
        Used by nobody before.
    """

    store: AnsweringStore
    key: str

    def __str__(self) -> str:
        return f"the process group's store, key {self.key!r}"

    def leave(self, note: SecretNote, timeout: float) -> None:  # noqa: ARG002 - the store has its own
        """Put a note there."""
        try:
            self.store.set(self.key, note.encode().decode())
        except RuntimeError as error:
            raise self._lost(error) from error

    def read(self, timeout: float) -> SecretNote | None:
        """Note that is there within a moment."""
        from torch.distributed import DistNetworkError

        try:
            self.store.wait([self.key], timedelta(seconds=min(timeout, _LONGEST_LOOK_S)))
            return SecretNote.decode(self.store.get(self.key))
        except DistNetworkError as error:
            raise self._lost(error) from error
        except RuntimeError:  # what torch raises where a key is not there in time
            return None

    def remove(self) -> None:
        """Take the note away, if the store is still there."""
        try:
            self.store.delete_key(self.key)
        except RuntimeError:
            return  # some stores cannot, and nobody reads this key again

    def _lost(self, error: RuntimeError) -> ConnectionError:
        return ConnectionError(f"{self}: {str(error).partition(chr(10))[0]}")


def find_place_in_group(store: Any, rank: int, size: int, key: str, timeout: float) -> Place:
    """Place of a member of a group that joins through an unused key of the group's store."""
    address = find_own_address(store, timeout) if rank == 0 and size > 1 else None
    patient = AnsweringStore(store, min(timeout, _ANSWER_S))
    return Place(rank, size, address=address, job=key, secret_exchange=GroupExchangeStore(patient, key))


def find_own_address(store: Any, timeout: float) -> str:
    """Address where rank 0 of a group listens: loopback if all ranks are here, else where others reach it.

    The launcher says whether all ranks are on this machine; the host of the store must then be this machine
    too. Else it is the address on the way to the store's host. A host name that leads back to this machine
    may stand for its loopback address, as in Debian's ``/etc/hosts``; ranks of other machines then need the
    address of the way out.
    """
    host = _store_host(store) or os.environ.get("MASTER_ADDR") or LOOPBACK
    if on_one_machine() and _is_here(host, timeout):
        return LOOPBACK
    address = _address_towards(host, timeout)
    named = host != "localhost" and not _is_loopback(host)
    if not _is_loopback(address) or not named:
        return address
    try:
        return _address_towards(_ELSEWHERE, timeout)
    except InputError:
        return address  # no way leads out: all ranks are here


def _is_here(host: str, timeout: float) -> bool:
    """Whether a host is this machine: only an address of its own can be bound."""
    try:
        family, where = look_up(host, 0, min(timeout, limits.MAX_UNPROVEN_SECONDS))[0]
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind(where)
    except OSError:
        return False
    return True


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


def _store_host(store: Any) -> str | None:
    """Host of the store behind a group's store, if it has one."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return str(store.host) if isinstance(store, TCPStore) else None
