"""Fault injection in jobs of real processes.

A test names a fault and a setting, and gets an `Outcome`: what every rank said, when, and what was left::

    outcome = run(Setting("tcp", ranks=4), Fault.kill(2).during("reduce"))
    assert outcome.problems() == []

No code of the product knows about faults. The rank that a fault is for signals itself, from a thread of the
test program (`support.faults.rank`), at a moment within the phase. Time stamps are CLOCK_MONOTONIC, which all
processes of a machine share.
"""

from support.faults.case import PHASES, Case, Fault, Setting
from support.faults.nursery import Nursery
from support.faults.outcome import Outcome
from support.faults.trial import run

__all__ = ["PHASES", "Case", "Fault", "Nursery", "Outcome", "Setting", "run"]
