"""What a rank does in each phase: one all-reduce in two halves after another, every sum checked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import numpy as np

import weft
from support.faults.case import Setting
from weft.runtime.bootstrap import dialer
from weft.runtime.engines import engine_choice
from weft.runtime.transport import connect

Enter = Callable[[str], None]
"""Says which phase begins, and that the one before is over."""


class WrongSum(Exception):
    """An operation has returned, and its result is not right."""


class Workload(Protocol):
    """What one rank does."""

    def prepare(self) -> None:
        """Make what a program has before it uses Weft, and keeps afterwards."""
        ...

    def start(self, enter: Enter) -> None:
        """Join and connect; goes through the phases of the start."""
        ...

    def learn(self) -> None:
        """The first operation of its kind."""
        ...

    def reduce(self) -> None:
        """First half of an all-reduce."""
        ...

    def gather(self) -> None:
        """Second half."""
        ...

    def close(self) -> None:
        """Leave, as a program does that has finished or given up."""
        ...

    def arrays(self) -> list[Any]:
        """Memory that is this program's own after an operation has failed."""
        ...


class OverCommunicator:
    """Works with `weft.init`, whichever the engine."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._comm: weft.Communicator | None = None
        self._halves: Any = None
        self._array: Any = None

    def prepare(self) -> None:
        if self.setting.way == "torch":
            import torch.distributed as dist

            job = _torch_job()
            dist.init_process_group("gloo", **job)
            _await_all(**job)
        elif self.setting.way == "mpi":
            from mpi4py import MPI

            MPI.COMM_WORLD.Barrier()

    def start(self, enter: Enter) -> None:
        setting = self.setting
        if setting.way == "torch":
            from weft.runtime.engines import peer_watch

            _announce_joining(enter, peer_watch)
        elif setting.way == "mpi":
            enter("connect")
        else:
            _announce_joining(enter, engine_choice)
        how = {"engine": setting.way} if setting.way in ("torch", "mpi") else {"transport": setting.transport}
        comm = weft.init(**how, algorithm=setting.algorithm, timeout=setting.timeout)
        self._comm = comm
        self._array = (comm.empty if setting.shared else np.empty)(setting.elements, np.float32)
        self._halves = comm.halves(setting.elements)
        self._total = comm.size * (comm.size + 1) / 2

    def learn(self) -> None:
        assert self._comm is not None
        self._array.fill(self._comm.rank + 1)
        self._comm.all_reduce(self._array)
        self._check(self._array, "all_reduce")

    def reduce(self) -> None:
        assert self._comm is not None
        self._array.fill(self._comm.rank + 1)
        self._halves.reduce(self._array)
        self._check(self._array[self._halves.mine], "reduce")

    def gather(self) -> None:
        self._halves.gather(self._array)
        self._check(self._array, "gather")

    def close(self) -> None:
        if self._comm is not None:
            self._comm.close()
            self._comm = self._halves = None

    def arrays(self) -> list[Any]:
        return [] if self._array is None else [self._array]

    def _check(self, values: Any, what: str) -> None:
        if not (values == self._total).all():
            wrong = np.flatnonzero(values != self._total)
            found = values[wrong[0]]
            where = f"element {wrong[0]} is {found}, not {self._total}"
            msg = f"{what}: {len(wrong)} of {len(values)} elements are wrong; {where}"
            raise WrongSum(msg)


class OverGroup:
    """Works with torch's process groups on the backend of `weft.torch`."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._share: Any = None

    def prepare(self) -> None:
        self._job = _torch_job()
        _await_all(**self._job)

    def start(self, enter: Enter) -> None:
        import torch
        import torch.distributed as dist

        _announce_joining(enter, engine_choice)
        dist.init_process_group("weft", timeout=timedelta(seconds=self.setting.timeout), **self._job)
        self._rank, self._size = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_SIZE"])
        each = self.setting.elements // self._size
        self._share, self._whole = torch.empty(each), torch.empty(each * self._size)
        self._total = self._size * (self._size + 1) / 2

    def learn(self) -> None:
        import torch.distributed as dist

        self._whole.fill_(self._rank + 1)
        dist.all_reduce(self._whole)
        self._check(self._whole, "all_reduce")

    def reduce(self) -> None:
        import torch.distributed as dist

        self._whole.fill_(self._rank + 1)
        dist.reduce_scatter_tensor(self._share, self._whole)
        self._check(self._share, "reduce_scatter_tensor")

    def gather(self) -> None:
        import torch.distributed as dist

        dist.all_gather_into_tensor(self._whole, self._share)
        self._check(self._whole, "all_gather_into_tensor")

    def close(self) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    def arrays(self) -> list[Any]:
        return [] if self._share is None else [self._share.numpy(), self._whole.numpy()]

    def _check(self, values: Any, what: str) -> None:
        if not (values == self._total).all():
            msg = f"{what}: {int((values != self._total).sum())} of {len(values)} elements are wrong"
            raise WrongSum(msg)


def make_workload(setting: Setting) -> Workload:
    """What suits a setting."""
    return OverGroup(setting) if setting.way == "group" else OverCommunicator(setting)


def _torch_job() -> dict[str, Any]:
    """Who this is among how many, and a store that rank 0 serves, as without torchrun."""
    from torch.distributed import TCPStore

    rank, size = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_SIZE"])
    port, limit = int(os.environ["WEFT_TEST_STORE_PORT"]), timedelta(seconds=30)
    store = TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=limit)
    return {"store": store, "rank": rank, "world_size": size}


def _await_all(store: Any, rank: int, world_size: int) -> None:
    """Return when all ranks have come so far; what breaks before is torch's own matter."""
    store.set(f"ready/{rank}", "")
    store.wait([f"ready/{other}" for other in range(world_size)])
    time.sleep(0.2)


def _announce_joining(enter: Enter, place: Any) -> None:
    """Let this process say when the library joins, is admitted, goes on to connect, and makes connections."""
    join, connect_peers = place.join, connect.connect_peers
    be_admitted = dialer.Dialer.wait_until_admitted

    def joining(*words: Any, **named: Any) -> Any:
        enter("join")
        control_plane = join(*words, **named)
        enter("connect")
        return control_plane

    def being_admitted(*words: Any, **named: Any) -> Any:
        admitted = be_admitted(*words, **named)
        enter("admitted")
        return admitted

    def connecting(*words: Any, **named: Any) -> Any:
        enter("lines")
        return connect_peers(*words, **named)

    place.join, connect.connect_peers = joining, connecting
    dialer.Dialer.wait_until_admitted = being_admitted
