"""Collectives among the ranks of a process group of torch.distributed, on CPUs and GPUs.

Tensors stay on their device, and torch adds them there. Those on GPUs travel through the user's group, NCCL
as a rule: the sends and receives of a step are one group call, or they would wait for each other, and its end
is tested in a loop. Those on CPUs, and what ranks tell each other, travel through connections of the engine's
own, which gloo makes through the store of the user's group; so they never meet the user's.

gloo can wait for a receive with a deadline, once, but not test it; and a wait that runs out closes all its
connections. That is how a rank that gives up makes the others notice: it sends the reason into receives that
everybody keeps open for it, and hangs up. It is also how a wait is interrupted when the watch over all ranks
(`weft.runtime.engines.peer_watch`) finds one of them dead or frozen.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError, MissingPackageError
from weft.runtime.bootstrap.group_store import count_visit, find_place_in_group
from weft.runtime.bootstrap.members import peer_lost
from weft.runtime.engines.gloo_connections import VERDICT_S, connect_gloo
from weft.runtime.engines.messaging import FAREWELL_S, FailureKind, MessagingEngine, OperationFailure, heard
from weft.runtime.engines.peer_watch import Interrupter, PeerWatch
from weft.runtime.engines.tensor_buffers import TensorFlat, flatten_tensor
from weft.runtime.resources import close_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.engines import Prepared
    from weft.runtime.engines.interpreter import MessageChannel, Move

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
        raise MissingPackageError("engine 'torch'", "torch", error) from error
    if not dist.is_available() or not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group() first")
    found = dist.group.WORLD if group is None else group
    if dist.get_rank(found) < 0:
        raise InputError("this process is not in the group that was given; only its members connect")
    return found


class TorchEngine(MessagingEngine[TensorFlat]):
    """Runs schedules among the ranks of a process group.

    Parameters
    ----------
    group
        The user's, which carries tensors that are not on CPUs.
    watch
        Over the ranks of this engine, as they are numbered in that group.
    rank
        Of this process among them.
    name
        Of these ranks' own connections in the group's store, used by nobody before.
    timeout
        Seconds for connecting.
    owns_watch
        Whether the watch ends with this engine.
    """

    def __init__(
        self, group: Any, watch: PeerWatch, rank: int, name: str, *, timeout: float, owns_watch: bool = False
    ) -> None:
        import torch.distributed as dist

        pairs = [pair.split(":") for pair in str(dist.get_backend_config(group)).split(",")]
        # gloo says that it serves GPUs, but its sends and receives do not.
        self._backends = {device: kind for device, kind in pairs if kind != "gloo"} | {"cpu": "gloo"}
        gloo = GlooChannel(connect_gloo(group.get_group_store(), watch, rank, name, timeout), watch, rank)
        super().__init__(watch.members, rank, gloo)
        self._group, self._watch, self._owns_watch = group, watch, owns_watch
        self._grouped = GroupedChannel(group, watch)
        self._interrupter = Interrupter(watch, gloo.hang_up)

    @staticmethod
    def join(group: Any, *, timeout: float, connect_timeout: float) -> TorchEngine:
        """Engine of all ranks of a group, which `find_group` gave.

        Parameters
        ----------
        timeout
            Seconds for all ranks to come.
        connect_timeout
            Seconds for connecting them, first for the watch over them and then by gloo.
        """
        rank, store = group.rank(), group.get_group_store()
        number = count_visit(store, rank)
        place = find_place_in_group(store, rank, group.size(), f"weft/engine/{number}", timeout)
        watch = PeerWatch.start(place, timeout, connect_timeout)
        with close_on_error(watch):
            return TorchEngine(group, watch, rank, str(number), timeout=connect_timeout, owns_watch=True)

    def split(
        self, members: Sequence[int], exchange: Callable[[bytes], list[bytes]], timeout: float
    ) -> TorchEngine | None:
        """Engine of some of the ranks, over connections of their own."""
        names = exchange(secrets.token_hex(8).encode())
        if not members:
            return None
        name, rank = names[members[0]].decode(), members.index(self.rank)
        return TorchEngine(self._group, self._watch.among(members), rank, name, timeout=timeout)

    def run(self, prepared: Prepared, flat: TensorFlat, out: TensorFlat, op: str, wait: float) -> None:
        """Run one operation, within so many seconds."""
        with self._interrupter:
            super().run(prepared, flat, out, op, wait)

    def close(self) -> None:
        """Leave the job, and tell the ranks that wait for this one."""
        super().close()
        self._interrupter.close()
        if self._owns_watch:
            self._watch.close()

    def flatten(self, array: Any, *, writable: bool) -> TensorFlat:
        """Take a tensor where it is, or a numpy array."""
        flat = flatten_tensor(array, writable=writable)
        device = flat.values.device.type
        if device not in self._backends:
            moves = " and ".join(f"{device} with {name}" for device, name in self._backends.items())
            raise TypeError(f"this process group does not move tensors on {device}, only on {moves}")
        return flat

    def channel(self, flat: TensorFlat) -> MessageChannel:
        """What carries such values."""
        return self.messenger if flat.values.device.type == "cpu" else self._grouped


class GlooChannel:
    """Messages of gloo.

    Parameters
    ----------
    backend
        Used by nobody else.
    watch
        Over its ranks.
    rank
        Of this process in it.
    """

    def __init__(self, backend: Any, watch: PeerWatch, rank: int) -> None:
        self._backend, self._watch, self._rank = backend, watch, rank
        others = [other for other in range(len(watch.ranks)) if other != rank]
        self._farewells = {other: self.write((0, 0)) for other in others}
        self._news = {other: self._listen(room, other) for other, room in self._farewells.items()}

    def _listen(self, room: Any, other: int) -> Any:
        try:
            return self._backend.recv([room], other, _FAREWELL)
        except RuntimeError as error:  # it was lost since gloo has connected it
            gone = self._watch.await_loss(VERDICT_S)
            raise peer_lost(self._watch.members[other if gone is None else gone], "init") from error

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
            if time.monotonic() < deadline or self._watch.lost is not None:
                raise self._explain(peer) from error
            raise OperationFailure(FailureKind.LATE, peer) from error

    def write(self, words: tuple[int, int]) -> Any:
        """Two numbers as something to send."""
        import torch

        # torch has no unsigned numbers of 64 bits that gloo moves.
        return torch.tensor([word - (1 << 64) if word >> 63 else word for word in words])

    def read(self, values: Any) -> tuple[int, int]:
        """The two numbers that came."""
        first, second = (word % (1 << 64) for word in values.tolist())
        return first, second

    def tell(self, failure: OperationFailure) -> None:
        """Send the reason to all that can be reached, and hang up."""
        words = self.write((failure.kind, failure.rank))
        sent = []
        for other in self._news:
            with suppress(RuntimeError):
                sent.append(self._backend.send([words], other, _FAREWELL))
        for work in sent:
            with suppress(RuntimeError):
                _wait(work, FAREWELL_S)
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections, from any thread: what waits for them raises an error."""
        for other in self._news:
            with suppress(RuntimeError):
                _wait(self._backend.recv([self.write((0, 0))], other, _HANG_UP), 0)

    def _explain(self, peer: int) -> OperationFailure:
        """Why a connection is closed: a rank is lost, or the peer has said why; else it is taken for lost."""
        if (gone := self._watch.lost) is not None:
            return OperationFailure(FailureKind.LOST, gone)
        try:
            _wait(self._news[peer], FAREWELL_S)
        except RuntimeError:
            gone = self._watch.await_loss(VERDICT_S)
            return OperationFailure(FailureKind.LOST, peer if gone is None else gone)
        return heard(self.read(self._farewells[peer]), peer, self._rank)


class GroupedChannel:
    """Messages of NCCL, and of others that want all transfers of a step in one call.

    Parameters
    ----------
    group
        The user's.
    watch
        Over the ranks that use it, as they are numbered in that group.
    """

    def __init__(self, group: Any, watch: PeerWatch) -> None:
        self._group, self._watch = group, watch

    def start(self, moves: Sequence[Move]) -> Sequence[tuple[int, list[Any]]]:
        """Start sends and receives in one call; waiting for one of them is waiting for the call."""
        import torch.distributed as dist

        transfers = [
            dist.P2POp(
                dist.isend if move.sends else dist.irecv,
                move.values,
                group=self._group,
                group_peer=self._watch.ranks[move.peer],
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
                if (gone := self._watch.lost) is not None:
                    raise OperationFailure(FailureKind.LOST, gone)
                if time.monotonic() > deadline:
                    raise OperationFailure(FailureKind.LATE, peer)
                time.sleep(_NAP_S)
            work.wait()


def _wait(work: Any, seconds: float) -> None:
    work.wait(timedelta(seconds=max(_SHORTEST_WAIT_S, seconds)))
