"""The watch over the ranks of an engine whose data moves through connections that are not Weft's own.

gloo and NCCL do not see that a peer is frozen, and report a dead one only to ranks that talk to it. So
the ranks also meet by Weft's own means, and watch each other as those of the native engine do: processes and
heartbeats within a machine, heartbeats over one connection to rank 0 between machines, all of it in native
threads that Python cannot hold up.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from weft.runtime.bootstrap.client import join
from weft.runtime.transport.connect import connect
from weft.runtime.transport.rank_transport import Transport, TransportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.environment import Place
    from weft.runtime.bootstrap.members import Member

_SMALLEST_ARENA: Final = 4096
_LOOK_S: Final = 0.02


class PeerWatch:
    """Whether one of some ranks is lost, of a job whose ranks all watch each other.

    Parameters
    ----------
    control_plane, transport
        The connections of all ranks of the job.
    ranks
        Those that this watch tells about, as they are numbered in the job.
    """

    def __init__(self, control_plane: ControlPlane, transport: Transport, ranks: Sequence[int]) -> None:
        self.ranks = list(ranks)
        self._control_plane, self._transport = control_plane, transport
        self._lost: int | None = None

    @staticmethod
    def start(place: Place, timeout: float, connect_timeout: float) -> PeerWatch:
        """Meet all ranks of a job and begin to watch them; every rank calls this.

        Parameters
        ----------
        timeout
            Seconds for all ranks to come.
        connect_timeout
            Seconds for connecting them.

        Raises
        ------
        TimedOut, PeerLost
            If others do not come.
        """
        control_plane = join(place, timeout=timeout)
        # Nothing is sent, so that no rank needs to read another's private memory.
        settings = TransportSettings("copy", streams=1, checksums=True, arena_bytes=_SMALLEST_ARENA)
        transport = connect(control_plane, settings, timeout=connect_timeout)
        return PeerWatch(control_plane, transport, range(control_plane.size))

    def among(self, numbers: Sequence[int]) -> PeerWatch:
        """The same about some of these ranks only, in this order; `close` of the whole ends both."""
        return PeerWatch(self._control_plane, self._transport, [self.ranks[number] for number in numbers])

    @property
    def members(self) -> list[Member]:
        """The members of the job that these ranks are, each with its number among them."""
        return [replace(self._control_plane.members[rank], rank=new) for new, rank in enumerate(self.ranks)]

    @property
    def lost(self) -> int | None:
        """Number, among these ranks, of the first that was found dead or frozen."""
        if self._lost is None:
            found = [rank for rank, _ in self._transport.host.losses() if rank in self.ranks]
            self._lost = self.ranks.index(found[0]) if found else None
        return self._lost

    def await_loss(self, seconds: float) -> int | None:
        """The same, after so many seconds for finding out."""
        deadline = time.monotonic() + seconds
        while self.lost is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return self.lost

    def close(self) -> None:
        """Leave the job; the others see that this rank left on purpose."""
        self._transport.close()
        self._control_plane.close()


class Interrupter:
    """Calls something when a rank is lost while a block runs, from a thread that sleeps otherwise.

    For waits that nothing interrupts but the end of their connections.
    """

    def __init__(self, watch: PeerWatch, interrupt: Callable[[], None]) -> None:
        self._watch, self._interrupt = watch, interrupt
        self._needed = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="weft watch", daemon=True)
            self._thread.start()
        self._needed.set()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._closed:
            self._needed.clear()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._needed.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while self._needed.wait() and not self._closed:
            if self._watch.lost is not None:
                self._interrupt()
                return
            time.sleep(_LOOK_S)
