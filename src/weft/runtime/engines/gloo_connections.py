"""Connections of gloo among ranks that watch each other: one that is lost meanwhile is named at once."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from weft.errors import TimedOut
from weft.runtime.bootstrap.group_store import AnsweringStore
from weft.runtime.bootstrap.members import peer_lost
from weft.runtime.transport.heartbeats import FROZEN_AFTER_MS

if TYPE_CHECKING:
    from weft.runtime.engines.peer_watch import PeerWatch

VERDICT_S: Final = 1.0
"""What the watch gets to find out why a connection was closed: rank 0 may have to tell."""

_LOOK_S: Final = 0.01
_ATTEMPTS: Final = 5
"""So many times gloo tries to reach a rank that does not answer, each time for as long as it was given."""


def connect_gloo(store: Any, watch: PeerWatch, rank: int, name: str, timeout: float) -> Any:
    """A backend of gloo for ranks that have met.

    Parameters
    ----------
    store
        Through which gloo tells addresses.
    watch
        Over the ranks.
    rank
        Of this process among them.
    name
        Used by nobody before in this store.
    timeout
        Seconds.

    Raises
    ------
    PeerLost
        If a rank is lost meanwhile.
    TimedOut
        If gloo cannot connect them.

    Notes
    -----
    gloo connects in one call, which nothing interrupts. So that runs in a thread of its own, which is left to
    its deadline if a rank is lost. Such a thread keeps gloo's own descriptors until then, but not the watch.
    """
    from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo

    awaited: set[int] = set()
    watched, size = _interruptible(AnsweringStore(store), watch, timeout, awaited), len(watch.ranks)
    limit = timedelta(seconds=timeout / _ATTEMPTS)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A rank that is frozen is found so long after it froze, also where gloo has less time than that.
    verdict_at = time.monotonic() + FROZEN_AFTER_MS / 1000 + VERDICT_S

    def connect() -> None:
        try:
            answers.put(ProcessGroupGloo(PrefixStore(f"weft/{name}/", watched), rank, size, limit))
        except RuntimeError as error:  # torch has no narrower one
            answers.put(error)

    threading.Thread(target=connect, name="weft connect", daemon=True).start()
    found: Any = None
    while found is None and watch.lost is None:
        with suppress(queue.Empty):
            found = answers.get(timeout=_LOOK_S)
    patience = max(VERDICT_S, verdict_at - time.monotonic())
    if isinstance(found, RuntimeError) and watch.await_loss(patience) is None:
        said = str(found).partition("\n")[0]
        raise TimedOut("init", timeout, awaited, f"gloo cannot connect the ranks: {said}") from found
    if watch.lost is not None:
        raise peer_lost(watch.members[watch.lost], "init")
    return found


def _interruptible(store: AnsweringStore, watch: PeerWatch, timeout: float, awaited: set[int]) -> Any:
    """A store for gloo whose waits end when a rank is lost, or after so many seconds.

    Ranks that were waited for in vain are put into `awaited`.
    """
    from torch import distributed as dist

    kept, deadline = weakref.ref(watch), time.monotonic() + timeout

    def has_lost() -> bool:
        found = kept()
        return found is None or found.lost is not None

    # Without types: the stub says that values are text, but gloo's are bytes.
    base: Any = dist.Store  # type: ignore[attr-defined]

    class Watched(base):  # type: ignore[misc]
        """What gloo uses of a store."""

        def set(self, key: str, value: bytes) -> None:
            store.set(key, value)

        def get(self, key: str) -> bytes:
            return store.get(key)

        def wait(self, keys: list[str], attempt: timedelta) -> None:  # noqa: ARG002 - one of several
            while not store.check(keys):
                if has_lost() or time.monotonic() > deadline:
                    # What gloo calls the addresses that ranks leave ends with their number.
                    tails = [key.rpartition("/")[2] for key in keys if not store.check([key])]
                    awaited.update(int(tail) for tail in tails if tail.isdecimal())
                    raise RuntimeError(f"nobody has set {', '.join(keys)}")
                time.sleep(_LOOK_S)

    return Watched()
