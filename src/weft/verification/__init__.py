"""One verifier for everybody's schedules; it knows no algorithm.

`verify` raises what is wrong and `inspect` reports it. The checks are `semantics` (with hazards), `routes`
and `deadlock`; `contention` measures what is legal and slow. ``docs/verification.md`` says what each proves.
"""

from weft.verification.contention import ContentionReport, LinkContention, SwitchPair, measure_contention
from weft.verification.deadlock import Deadlock, DeadlockWait, find_deadlock, minimum_slots
from weft.verification.inspection import inspect, verify
from weft.verification.report import VerificationReport

__all__ = [
    "ContentionReport",
    "Deadlock",
    "DeadlockWait",
    "LinkContention",
    "SwitchPair",
    "VerificationReport",
    "find_deadlock",
    "inspect",
    "measure_contention",
    "minimum_slots",
    "verify",
]
