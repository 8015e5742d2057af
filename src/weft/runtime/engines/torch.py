"""Collectives among the ranks of a process group of torch.distributed, on CPUs and GPUs.

Tensors stay on their device, and torch adds them there. Those on GPUs travel through the user's group, NCCL
as a rule: the sends and receives of a step are one group call, or they would wait for each other, and its end
is tested in a loop. Those on CPUs, and what ranks tell each other, travel through connections of the engine's
own, which gloo makes through the store of the user's group; so they never meet the user's.

gloo can wait for a receive with a deadline, once, but not test it; and a wait that runs out closes all its
connections. That is how a rank that gives up makes the others notice: it sends the reason into receives that
everybody keeps open for it, and hangs up.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import InputError, TimedOut
from weft.runtime.arithmetic import TensorArithmetic
from weft.runtime.engines.messaging import (
    CARD_BYTES,
    FAREWELL_S,
    Failure,
    Kind,
    MessagingEngine,
    heard,
    read_card,
    write_card,
)
from weft.runtime.engines.tensors import TensorFlat, flatten_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from weft.runtime.interpreter import Channel, Move
    from weft.runtime.roster import Member

_DATA, _FAREWELL, _HANG_UP = 101, 102, 103
_NAP_S: Final = 5e-5
_SHORTEST_WAIT_S: Final = 1e-3
"""gloo counts milliseconds, and takes none for any number of them."""


def find_group(group: Any) -> Any:
    """The process group to work beside.

    Raises
    ------
    InputError
        If there is none, this process is not in it, or torch is not installed.
    """
    try:
        import torch.distributed as dist
    except ImportError as error:
        msg = f"engine 'torch' needs torch ({error}); pip install 'weft[torch]'"
        raise InputError(msg) from error
    if not dist.is_available() or not dist.is_initialized():
        msg = "engine 'torch' works over torch.distributed; call torch.distributed.init_process_group() first"
        raise InputError(msg)
    found = dist.group.WORLD if group is None else group
    if dist.get_rank(found) < 0:
        msg = "this process is not in the group that was given to weft.init"
        raise InputError(msg)
    return found


class TorchEngine(MessagingEngine[TensorFlat, Any]):
    """Runs schedules among the ranks of a process group.

    Parameters
    ----------
    group
        The user's, which carries tensors that are not on CPUs.
    places
        Of each rank in that group.
    rank
        Of this process among them.
    name
        Of these ranks' own connections in the group's store, used by nobody before.
    timeout
        Seconds for meeting the others.
    """

    def __init__(self, group: Any, places: list[int], rank: int, name: str, *, timeout: float) -> None:
        import torch.distributed as dist

        pairs = [pair.split(":") for pair in str(dist.get_backend_config(group)).split(",")]
        # gloo says that it serves GPUs, but its sends and receives do not.
        self._backends = {device: kind for device, kind in pairs if kind != "gloo"} | {"cpu": "gloo"}
        backend, members = _connect(group, name, rank, len(places), timeout)
        super().__init__(members, rank, GlooChannel(backend, rank, len(places)))
        self._group, self._places = group, places
        self._grouped = GroupedChannel(group, places)

    @staticmethod
    def join(group: Any, *, timeout: float) -> TorchEngine:
        """Engine of all ranks of a group, which `find_group` gave."""
        rank, size = group.rank(), group.size()
        # Every rank counts how often it was here: what an earlier engine left in the store is not taken.
        number = group.get_group_store().add(f"weft/{rank}", 1)
        return TorchEngine(group, list(range(size)), rank, str(number), timeout=timeout)

    def split(
        self, members: Sequence[int], tell: Callable[[bytes], list[bytes]], timeout: float
    ) -> TorchEngine | None:
        """Engine of some of the ranks, over connections of their own."""
        names = tell(secrets.token_hex(8).encode())
        if not members:
            return None
        places = [self._places[member] for member in members]
        name, rank = names[members[0]].decode(), members.index(self.rank)
        return TorchEngine(self._group, places, rank, name, timeout=timeout)

    def flatten(self, array: Any, *, writable: bool) -> TensorFlat:
        """Take a tensor where it is, or a numpy array."""
        flat = flatten_tensor(array, writable=writable)
        device = flat.values.device.type
        if device not in self._backends:
            moves = " and ".join(f"{device} with {name}" for device, name in self._backends.items())
            msg = f"this process group does not move tensors on {device}, only on {moves}"
            raise TypeError(msg)
        return flat

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array in ordinary memory."""
        return np.empty(elements, dtype)

    def channel(self, flat: TensorFlat) -> Channel:
        """What carries such values."""
        return self.messenger if flat.values.device.type == "cpu" else self._grouped

    def values(self, flat: TensorFlat) -> Any:
        """What the arithmetic takes."""
        return flat.values

    def arithmetic(self, flat: TensorFlat, op: str) -> TensorArithmetic:
        """What computes."""
        return TensorArithmetic(flat.values, op)


class GlooChannel:
    """Messages of gloo.

    Parameters
    ----------
    backend
        Used by nobody else.
    rank, size
        Of this process in it.
    """

    def __init__(self, backend: Any, rank: int, size: int) -> None:
        self._backend, self._rank = backend, rank
        self._farewells = {other: self.write((0, 0)) for other in range(size) if other != rank}
        self._news = {
            other: backend.recv([room], other, _FAREWELL) for other, room in self._farewells.items()
        }

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, Any]]:
        """Start sends and receives; for each its peer and what torch gave."""
        return [(move.peer, self._start(move)) for move in moves]

    def _start(self, move: Move) -> Any:
        begin = self._backend.send if move.sends else self._backend.recv
        try:
            return begin([move.values], move.peer, _DATA)
        except RuntimeError as error:
            raise self._explain(move.peer) from error

    def wait(self, handle: tuple[int, Any], deadline: float) -> None:
        """Wait once, for as long as there is time."""
        peer, work = handle
        try:
            _wait(work, deadline - time.monotonic())
        except RuntimeError as error:
            if time.monotonic() < deadline:
                raise self._explain(peer) from error
            raise Failure(Kind.LATE, peer) from error

    def write(self, words: tuple[int, int]) -> Any:
        """Two numbers as something to send."""
        import torch

        # torch has no unsigned numbers of 64 bits that gloo moves.
        return torch.tensor([word - (1 << 64) if word >> 63 else word for word in words])

    def read(self, values: Any) -> tuple[int, int]:
        """The two numbers that came."""
        first, second = (word % (1 << 64) for word in values.tolist())
        return first, second

    def tell(self, failure: Failure) -> None:
        """Send the reason to all that can be reached, and hang up."""
        words = self.write((failure.kind, failure.rank))
        sent = []
        for other in self._news:
            with suppress(RuntimeError):
                sent.append(self._backend.send([words], other, _FAREWELL))
        for work in sent:
            with suppress(RuntimeError):
                _wait(work, FAREWELL_S)
        for other in self._news:
            with suppress(RuntimeError):
                _wait(self._backend.recv([self.write((0, 0))], other, _HANG_UP), 0)

    def _explain(self, peer: int) -> Failure:
        """Why a connection is closed: its rank may have said, else it is gone."""
        try:
            _wait(self._news[peer], FAREWELL_S)
        except RuntimeError:
            return Failure(Kind.LOST, peer)
        return heard(self.read(self._farewells[peer]), peer, self._rank)


class GroupedChannel:
    """Messages of NCCL, and of others that want all transfers of a step in one call.

    Parameters
    ----------
    group
        The user's.
    places
        Of each rank in that group.
    """

    def __init__(self, group: Any, places: Sequence[int]) -> None:
        self._group, self._places = group, places

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, list[Any]]]:
        """Start sends and receives in one call; who waits for one of them waits for the call."""
        import torch.distributed as dist

        transfers = [
            dist.P2POp(
                dist.isend if move.sends else dist.irecv,
                move.values,
                group=self._group,
                group_peer=self._places[move.peer],
            )
            for move in moves
        ]
        works = dist.batch_isend_irecv(transfers) if transfers else []
        return [(move.peer, works) for move in moves]

    def wait(self, handle: tuple[int, list[Any]], deadline: float) -> None:
        """Test until it is over, then have the current stream go on after it."""
        peer, works = handle
        for work in works:
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise Failure(Kind.LATE, peer)
                time.sleep(_NAP_S)
            work.wait()


def _wait(work: Any, seconds: float) -> None:
    work.wait(timedelta(seconds=max(_SHORTEST_WAIT_S, seconds)))


def _connect(group: Any, name: str, rank: int, size: int, timeout: float) -> tuple[Any, list[Member]]:
    """Connections of gloo among ranks of a group, and who everybody is."""
    import torch
    from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo

    store, limit = group.get_group_store(), timedelta(seconds=timeout)
    cards = [torch.empty(CARD_BYTES, dtype=torch.uint8) for _ in range(size)]
    try:
        backend: Any = ProcessGroupGloo(PrefixStore(f"weft/{name}/", store), rank, size, limit)
        backend.allgather([cards], [torch.from_numpy(write_card(rank))]).wait(limit)
    except RuntimeError as error:
        raise TimedOut("init", timeout, hint=f"not all ranks called weft.init ({error})") from error
    return backend, [read_card(card.numpy().tobytes()) for card in cards]
