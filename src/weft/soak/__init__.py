"""Soak tests of the runtime: random operations on real processes for minutes or hours, every result checked.

`plan` makes the operations from a seed, `worker` is one rank, and `controller` starts the ranks, gives the
orders and keeps the tally. ``weft soak`` prints what it finds (docs/soak.md).
"""

from weft.soak.controller import run
from weft.soak.settings import Settings
from weft.soak.tally import SoakFailure, SoakOutcome, Tally

__all__ = ["Settings", "SoakFailure", "SoakOutcome", "Tally", "run"]
