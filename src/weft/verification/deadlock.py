"""Whether a schedule can get stuck where receive buffers are finite.

A connection is (src, dst, route) and delivers its messages in order. It has `slots` receive buffers: a
message takes one when it is sent and frees it when it is consumed, that is, copied or added into its place.
Two events per message, then, and each waits for *all* of its preconditions:

- sending: the values it reads were written; the message before it on the connection was sent; the message
  `slots` places before it was consumed;
- consuming: it was sent; the message before it was consumed; whatever reads the places it overwrites was
  sent; whatever wrote them earlier was consumed.

A schedule gets stuck exactly when these preconditions form a circle, in whichever order the ranks work.

Executors that receive, reduce and forward in one instruction (MSCCL's ``rrs``, ``rcs``, ``rrcs``) need an
outgoing slot before they consume: ``fused=True`` adds that consuming a message waits for the slot of the
first message that sends on exactly what was received. A fused ring needs two slots where a plain one needs
one.

Without a bound on the slots nothing can get stuck. Take the events step by step, within a step first the
sendings and then the consumptions, both in row order: values read come from earlier steps, reads of a step
precede its writes, and a connection's order is row order, so every precondition lies earlier in this order.

The C++ half is ``cpp/verification/deadlock.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import _core
from weft.errors import InputError, VerificationError

if TYPE_CHECKING:
    from weft.schedule import Schedule

# In the order of the native `Reason`; each follows "waits until" and the awaited event.
_REASONS: Final = (
    "",
    "which comes before it on the connection",
    "which takes its receive slot",
    "which takes the slot it must forward into",
    "which brings the value",
    "which still reads the place",
    "which writes the place before it",
)
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class DeadlockWait:
    """One event of a deadlock; it waits for the next one of the circle.

    Parameters
    ----------
    transfer
        First row of the message.
    event
        ``"sent"`` or ``"consumed"``: what cannot happen.
    reason
        Why it waits for the next one, as half a sentence about that one.
    """

    transfer: int
    event: str
    reason: str


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Messages that wait for each other in a circle."""

    slots: int
    fused: bool
    circle: tuple[DeadlockWait, ...]

    def to_error(self, schedule: Schedule) -> VerificationError:
        """Describe it as the error that `weft.verify` raises."""
        first = self.circle[0]
        plural, executor = "" if self.slots == 1 else "s", " in a fused executor" if self.fused else ""
        sentences = [self._sentence(schedule, index) for index in range(min(_SHOWN, len(self.circle)))]
        rest = len(self.circle) - len(sentences)
        more = f"; and {rest:,} more like it, back to the first" if rest else ""
        return VerificationError(
            "deadlock",
            f"with {self.slots} receive slot{plural} per connection{executor}, {len(self.circle):,} events "
            f"wait for each other: {'; '.join(sentences)}{more}",
            transfer=first.transfer,
            rank=int((schedule.dst if first.event == "consumed" else schedule.src)[first.transfer]),
            chunk=int(schedule.chunk[first.transfer]),
        )

    def _sentence(self, schedule: Schedule, index: int) -> str:
        wait, awaited = self.circle[index], self.circle[(index + 1) % len(self.circle)]
        row = wait.transfer
        way = f"rank {int(schedule.src[row])} to {int(schedule.dst[row])}, chunk {int(schedule.chunk[row])}"
        until = f"transfer {awaited.transfer} is {awaited.event}"
        reason = f", {wait.reason}" if wait.reason else ""
        return f"transfer {row} ({way}) cannot be {wait.event} until {until}{reason}"


def find_deadlock(schedule: Schedule, slots: int, *, fused: bool = False) -> Deadlock | None:
    """Find messages that wait for each other, if there are such.

    Parameters
    ----------
    schedule
        Any legal schedule; it need not compute its collective.
    slots
        Receive buffers of each connection.
    fused
        Whether the executor receives, reduces and forwards in one instruction.

    Raises
    ------
    InputError
        If `slots` is less than 1.

    Notes
    -----
    Time and memory grow with rows. Most schedules take only a scan, because a slot that is freed in an
    earlier step than it is taken in cannot be part of a circle.
    """
    if slots < 1:
        raise InputError(f"{slots} receive slots: a connection needs at least 1")
    what = (schedule.table, schedule.ranks, schedule.source, schedule.message_starts)
    waits = _core.find_deadlock(*what, fused, min(slots, max(schedule.messages, 1)))
    if not waits:
        return None
    events = tuple(
        DeadlockWait(row, "consumed" if consume else "sent", _REASONS[reason])
        for row, consume, reason in waits
    )
    return Deadlock(slots, fused, events)


def minimum_slots(schedule: Schedule, *, fused: bool = False) -> int:
    """Smallest number of receive slots per connection with which a schedule cannot get stuck.

    Notes
    -----
    By doubling, then bisection: every further slot removes preconditions and adds none.
    """
    return _core.minimum_slots(
        schedule.table, schedule.ranks, schedule.source, schedule.message_starts, fused
    )
