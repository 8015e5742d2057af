"""``monitored_barrier``: a barrier that names the ranks which are missing.

Rank 0 looks for a note of every other rank in the store of the group, and answers with a note of its own:
that all ranks have called the barrier, or that some have not. No connection is used, so none breaks when a
rank is missing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from weft.errors import PeerLost, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.peer_connections import StoreNotes

_Found = TypeVar("_Found")

_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05
_VERDICT_S: Final = 5.0
"""How much longer than rank 0 the others wait for its answer, once it has called the barrier."""

_PASSED: Final = "passed"
_FAILED: Final = "failed"
_LATEST: Final = "barrier/latest"
"""Where rank 0 notes the number of the barrier that it is at."""


class MonitoredBarrier:
    """The monitored barriers of a group, on one rank.

    Parameters
    ----------
    notes
        The notes in the store of the group.
    rank, ranks
        This rank, and all.
    check
        Raises once the group has failed.
    """

    def __init__(self, notes: StoreNotes, rank: int, ranks: Sequence[int], check: Callable[[], None]) -> None:
        self._notes, self._rank, self._ranks, self._check = notes, rank, ranks, check
        self._count = 0
        self._may_be_behind = False

    def wait(self, seconds: float, name_all: bool) -> None:
        """Return once all ranks have called this, as often as this one.

        Parameters
        ----------
        seconds
            The time for all ranks to call this.
        name_all
            Whether the error names all ranks that are missing, and not only the first.

        Raises
        ------
        TimedOut
            At rank 0 with the ranks that are missing; at the others if rank 0 is missing or has given up.
        """
        if self._may_be_behind:
            self._catch_up()
        self._count += 1
        if self._rank == 0:
            self._monitor(seconds, name_all)
        else:
            self._notes.put(f"{self._key}/{self._rank}", "here")
            self._await_answer(seconds)

    @property
    def _key(self) -> str:
        return f"barrier/{self._count}"

    def _monitor(self, seconds: float, name_all: bool) -> None:
        missing = [rank for rank in self._ranks if rank != 0]
        self._notes.put(_LATEST, str(self._count))

        def all_here() -> bool:
            missing[:] = [rank for rank in missing if self._notes.get(f"{self._key}/{rank}") is None]
            return not missing

        if self._poll(all_here, seconds):
            self._notes.put(f"{self._key}/0", _PASSED)
            return
        self._notes.put(f"{self._key}/0", _FAILED)
        named = missing if name_all else missing[:1]
        who = ("Ranks " if len(named) > 1 else "Rank ") + ", ".join(map(str, named))
        hint = f"[Rank 0]: {who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
        if seconds <= 0:
            hint = f"Rank 0 timed out in monitoredBarrier after 0 ms; {hint}"
        raise TimedOut("monitored_barrier", seconds, named, hint)

    def _await_answer(self, seconds: float) -> None:
        answer = self._poll(self._find_answer, seconds)
        if answer is None and self._notes.get(_LATEST) == str(self._count):
            # Rank 0 is there, and is about to say which ranks are not.
            answer = self._poll(self._find_answer, _VERDICT_S)
        if answer == _PASSED:
            return
        self._may_be_behind = True
        reached = f"Rank {self._rank} successfully reached monitoredBarrier, but received errors"
        # In torch's words, which its tests and other people's tools look for.
        hint = f"{reached} while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
        raise TimedOut("monitored_barrier", seconds, [0] if answer is None else [], hint)

    def _find_answer(self) -> str | None:
        """Return the answer of rank 0, None as long as there is none."""
        key = f"{self._key}/0"
        answer = self._notes.get(key)
        if answer is None and self._notes.has_left(0):
            answer = self._notes.get(key)  # a rank that leaves has answered before: look once more
            if answer is None:
                raise PeerLost(0, None, None, "monitored_barrier", reason="it has left the process group")
        return answer

    def _catch_up(self) -> None:
        """Continue with the barrier that rank 0 is at, or with its next."""
        self._may_be_behind = False
        latest = self._notes.get(_LATEST)
        if latest is not None:
            number = int(latest)
            is_over = self._notes.get(f"barrier/{number}/0") is not None
            self._count = max(self._count, number if is_over else number - 1)

    def _poll(self, find: Callable[[], _Found], seconds: float) -> _Found:
        """Call a function until it finds something, or the time is over; return what it has found last."""
        deadline, pause = time.monotonic() + seconds, _SHORTEST_PAUSE_S
        while not (found := find()):
            self._check()
            if time.monotonic() >= deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return found
