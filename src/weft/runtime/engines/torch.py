"""Collectives over a process group of torch.distributed: gloo on CPUs, NCCL on GPUs.

Tensors stay on their device, and torch adds them there. The engine has a process group of its own beside the
user's, so that messages of the two never meet.

With gloo a receive can be waited for with a deadline, once, and not tested; a wait that runs out closes all
connections of its group. That is how a rank that gives up makes the others notice: it sends the reason into
receives that everybody has kept open for it, and hangs up. With NCCL the sends and receives of a step are one
group call, since otherwise they would wait for each other, and their completion is tested in a loop.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _world

from weft.errors import InputError, TimedOut, UnsupportedError
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
from weft.runtime.engines.tensors import TensorFlat, empty_array, flatten_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from weft.runtime.interpreter import Move

_DATA, _FAREWELL, _HANG_UP = 101, 102, 103
_NAP_S: Final = 5e-5
_SHORTEST_WAIT_S: Final = 1e-3
"""gloo counts milliseconds, and takes none for any number of them."""


def find_group(group: Any) -> Any:
    """The process group to work beside.

    Raises
    ------
    InputError
        If there is none, or this process is not in it.
    """
    if not dist.is_available() or not dist.is_initialized():
        msg = "engine 'torch' works over torch.distributed; call torch.distributed.init_process_group() first"
        raise InputError(msg)
    found = dist.group.WORLD if group is None else group
    if dist.get_rank(found) < 0:
        msg = "this process is not in the group that was given to weft.init"
        raise InputError(msg)
    return found


class TorchEngine(MessagingEngine[TensorFlat, torch.Tensor]):
    """Runs schedules over a process group.

    Parameters
    ----------
    ranks
        Of torch.distributed, in the order of the job's.
    group
        What `find_group` gave, or the group of an engine: for which devices, and with what.
    timeout
        Seconds for meeting the others.
    """

    def __init__(self, ranks: list[int], group: Any, *, timeout: float) -> None:
        self._group = dist.new_group(
            ranks,
            backend=str(dist.get_backend_config(group)),
            timeout=timedelta(seconds=timeout),
            use_local_synchronization=True,
        )
        rank = dist.get_rank(self._group)
        pairs = [pair.split(":") for pair in str(dist.get_backend_config(self._group)).split(",")]
        # gloo says that it serves GPUs, but its sends and receives do not.
        self._backends = {device: name for device, name in pairs if device == "cpu" or name != "gloo"}
        self._device = "cpu" if "cpu" in self._backends else next(iter(self._backends))
        super().__init__(_exchange_cards(self._group, rank, self._device, timeout), rank)
        self._channels: dict[str, GlooChannel | GroupedChannel] = {}
        for device, backend in self._backends.items():
            channel = GlooChannel if backend == "gloo" else GroupedChannel
            self._channels[device] = channel(self._group, rank, self.size, device)

    def split(
        self, members: Sequence[int], tell: Callable[[bytes], list[bytes]], timeout: float
    ) -> TorchEngine | None:
        """Engine of some of the ranks, over a process group of theirs.

        torch names a group by its ranks and by how many groups the process has; so those who have fewer, and
        those who stay outside, make some of their own first.
        """
        ranks = dist.get_process_group_ranks(self._group)
        most = max(int(count) for count in tell(b"%d" % len(_world.pg_names)))
        for _ in range(most - len(_world.pg_names) + (not members)):
            dist.new_group([ranks[self.rank]], backend="gloo", use_local_synchronization=True)
        if not members:
            return None
        if list(members) != sorted(members):
            raise UnsupportedError("split", "torch keeps the ranks of a group in order; give no such key")
        return TorchEngine([ranks[member] for member in members], self._group, timeout=timeout)

    def flatten(self, array: Any, *, writable: bool) -> TensorFlat:
        """Take a tensor where it is, or a numpy array."""
        flat = flatten_tensor(array, writable=writable)
        device = flat.values.device.type
        if device not in self._backends:
            moves = " and ".join(f"{device} with {backend}" for device, backend in self._backends.items())
            msg = f"this process group does not move tensors on {device}, only on {moves}"
            raise TypeError(msg)
        return flat

    def empty(self, elements: int, dtype: np.dtype[Any]) -> Any:
        """Array in ordinary memory; a tensor if the group is for GPUs only."""
        return empty_array(elements, dtype, self._device)

    def messenger(self, flat: TensorFlat) -> GlooChannel | GroupedChannel:
        """What carries such values."""
        return self._channels[flat.values.device.type]

    def values(self, flat: TensorFlat) -> torch.Tensor:
        """What the arithmetic takes."""
        return flat.values

    def arithmetic(self, flat: TensorFlat, op: str) -> TensorArithmetic:
        """What computes."""
        return TensorArithmetic(flat.values, op)

    def close(self) -> None:
        """Leave; the user's group stays.

        So does this one's name: torch would give it to the next group of the same ranks, which would then
        find what this one has left in the store.
        """
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _TensorWords:
    """Two numbers as a tensor."""

    def __init__(self, group: Any, rank: int, size: int, device: str) -> None:
        self._group, self._rank, self._device = group, rank, device
        self._others = [other for other in range(size) if other != rank]

    def write(self, words: tuple[int, int]) -> torch.Tensor:
        """Two numbers as something to send."""
        # torch has no unsigned numbers of 64 bits that every backend moves.
        signed = [word - (1 << 64) if word >> 63 else word for word in words]
        return torch.tensor(signed, dtype=torch.int64, device=self._device)

    def read(self, values: torch.Tensor) -> tuple[int, int]:
        """The two numbers that came."""
        first, second = (word % (1 << 64) for word in values.tolist())
        return first, second


class GlooChannel(_TensorWords):
    """Messages of gloo.

    Parameters
    ----------
    group
        Used by nobody else.
    rank, size
        Of this process in it.
    device
        Where its tensors are.
    """

    def __init__(self, group: Any, rank: int, size: int, device: str) -> None:
        super().__init__(group, rank, size, device)
        self._farewells = {other: self.write((0, 0)) for other in self._others}
        self._news = {
            other: dist.irecv(room, group=group, group_src=other, tag=_FAREWELL)
            for other, room in self._farewells.items()
        }

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, Any]]:
        """Start sends and receives; for each its peer and what torch gave."""
        return [(move.peer, self._start(move)) for move in moves]

    def _start(self, move: Move) -> Any:
        try:
            if move.sends:
                return dist.isend(move.values, group=self._group, group_dst=move.peer, tag=_DATA)
            return dist.irecv(move.values, group=self._group, group_src=move.peer, tag=_DATA)
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

    def tell(self, failure: Failure) -> None:
        """Send the reason to all that can be reached, and hang up."""
        words = self.write((failure.kind, failure.rank))
        sent = []
        for other in self._others:
            with suppress(RuntimeError):
                sent.append(dist.isend(words, group=self._group, group_dst=other, tag=_FAREWELL))
        for work in sent:
            with suppress(RuntimeError):
                _wait(work, FAREWELL_S)
        self.close()

    def close(self) -> None:
        """Hang up: others must not wait for this rank."""
        for other in self._others:
            with suppress(RuntimeError):
                room = self.write((0, 0))
                _wait(dist.irecv(room, group=self._group, group_src=other, tag=_HANG_UP), 0)

    def _explain(self, peer: int) -> Failure:
        """Why a connection is closed: its rank may have said, else it is gone."""
        try:
            _wait(self._news[peer], FAREWELL_S)
        except RuntimeError:
            return Failure(Kind.LOST, peer)
        return heard(self.read(self._farewells[peer]), peer, self._rank)


class GroupedChannel(_TensorWords):
    """Messages of NCCL, and of others that want all transfers of a step in one call."""

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, list[Any]]]:
        """Start sends and receives in one call, and wait for that call, whatever is waited for."""
        transfers = [
            dist.P2POp(
                dist.isend if move.sends else dist.irecv,
                move.values,
                group=self._group,
                group_peer=move.peer,
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

    def tell(self, failure: Failure) -> None:
        """Take back what is under way: NCCL has no way to send a reason."""
        del failure
        self._group.abort()

    def close(self) -> None:
        """Nothing is under way."""


def _wait(work: Any, seconds: float) -> None:
    work.wait(timedelta(seconds=max(_SHORTEST_WAIT_S, seconds)))


def _exchange_cards(group: Any, rank: int, device: str, timeout: float) -> list[Any]:
    """Who everybody is; with NCCL also what connects all ranks before the first message."""
    size = dist.get_world_size(group)
    mine = torch.from_numpy(write_card(rank)).to(device)
    cards = [torch.empty(CARD_BYTES, dtype=torch.uint8, device=device) for _ in range(size)]
    try:
        dist.all_gather(cards, mine, group=group, async_op=True).wait(timedelta(seconds=timeout))
    except RuntimeError as error:
        raise TimedOut("init", timeout, hint=f"not all ranks called weft.init ({error})") from error
    return [read_card(bytes(card.cpu().numpy())) for card in cards]
