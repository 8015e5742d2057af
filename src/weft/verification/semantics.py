"""Whether a schedule computes its collective.

Chunks never meet, so each is replayed by itself. The value of a place (rank, slot) is how often each
contribution is in it, none, once, or more, and whether it is defined at all: a place that nobody wrote is
undefined, and so is what is copied or summed from it, until a copy of a defined value overwrites it. In the
end each target rank's buffer must be defined and hold every contribution exactly once. What happens on the
way does not matter: a sum that counts a rank twice and is overwritten later does no harm.

The C++ half, ``cpp/verification/semantics.cpp``, does the replay, unless counting shows that a chunk is
right (``cpp/verification/disjoint_sums.hpp``). It stops at the first wrong chunk, which it
replays once more to learn which transfer spoilt it. Here findings become sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import _core
from weft.errors import VerificationError, list_some
from weft.schedule import Op
from weft.schedule.ir import EVERY
from weft.verification.missing_transfer import describe_missing_transfer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule

BLOCK_BYTES: Final = 16 << 20
"""Memory for partial sums; contributors that do not fit are replayed in blocks. More makes nothing faster."""


def check_semantics(schedule: Schedule, *, block_bytes: int = BLOCK_BYTES) -> VerificationError | None:
    """Find the first place where a schedule fails its collective.

    Parameters
    ----------
    schedule
        Any legal schedule.
    block_bytes
        Memory for partial sums. The answer does not depend on it.

    Returns
    -------
    VerificationError or None
        Of check ``hazard`` or ``semantics``. For ``semantics``, `rank` is the one whose result is wrong and
        `transfer` the one to blame: where an undefined value came in, where a contribution was counted again,
        or where a complete result was spoilt; None if a transfer is missing, which the message describes.

    Notes
    -----
    Time grows with rows, and with rows times ranks / 64 in chunks of sums that must be replayed bit by bit;
    memory with rows and `block_bytes`.
    """
    finding = _core.check_semantics(
        schedule.table, schedule.ranks, schedule.source, schedule.target, block_bytes
    )
    if finding is None:
        return None
    describe = {
        _core.Fault.hazard: _describe_hazard,
        _core.Fault.undefined: _describe_undefined,
        _core.Fault.wrong_sum: _describe_wrong_sum,
    }
    return describe[finding.fault](schedule, finding)


def _describe_hazard(schedule: Schedule, finding: _core.Finding) -> VerificationError:
    first, second = finding.other, finding.transfer
    ops = " and ".join(Op(int(schedule.op[row])).name.lower() for row in (first, second))
    problem = (
        f"transfers {first} and {second} ({ops}) both write {_place(finding.chunk, finding.slot)} at step "
        f"{int(schedule.step[second])}; only reduces may share a place within a step"
    )
    return VerificationError("hazard", problem, transfer=second, rank=finding.rank, chunk=finding.chunk)


def _describe_undefined(schedule: Schedule, finding: _core.Finding) -> VerificationError:
    row, chunk = finding.transfer, finding.chunk
    if row < 0:
        problem = f"the result is undefined: rank {finding.rank} never receives chunk {chunk}"
        return VerificationError("semantics", problem, rank=finding.rank, chunk=chunk)
    step = int(schedule.step[row])
    if finding.unheld_sender:
        culprit, does, slots = int(schedule.src[row]), "sends", schedule.src_slot
    else:
        culprit, does, slots = int(schedule.dst[row]), "adds to", schedule.dst_slot
    place = _place(chunk, 0 if slots is None else int(slots[row]))
    problem = f"the result is undefined: rank {culprit} {does} {place} at step {step} before it holds it"
    return VerificationError("semantics", problem, transfer=row, rank=finding.rank, chunk=chunk)


def _describe_wrong_sum(schedule: Schedule, finding: _core.Finding) -> VerificationError:
    faults: list[str] = []
    transfer = finding.transfer
    if finding.missing:
        faults.append(f"lacks {_ranks(finding.missing)}")
    if finding.doubled:
        row = finding.other
        transfer = transfer if finding.missing else row
        first = f"rank {finding.doubled[0]} " if len(finding.doubled) > 1 else ""
        way = f"rank {int(schedule.src[row])} to {int(schedule.dst[row])}, step {int(schedule.step[row])}"
        where = f"({first}doubled at transfer {row}: {way})"
        faults.append(f"counts {_ranks(finding.doubled)} more than once {where}")
    what = "sum" if int(schedule.source[finding.chunk]) == EVERY else "result"
    ending = "" if finding.transfer >= 0 else "; nothing is ever sent to it"
    if finding.missing and transfer >= 0:
        lack = describe_missing_transfer(schedule, finding.chunk, finding.rank, finding.missing)
        if lack is not None:  # then the last write of the result did no harm
            ending, transfer = f": {lack}", finding.other if finding.doubled else -1
    return VerificationError(
        "semantics",
        f"the {what} {' and '.join(faults)}{ending}",
        transfer=transfer if transfer >= 0 else None,
        rank=finding.rank,
        chunk=finding.chunk,
    )


def _place(chunk: int, slot: int) -> str:
    return f"chunk {chunk}" if slot == 0 else f"chunk {chunk} in slot {slot}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {list_some(map(str, ranks))}"
