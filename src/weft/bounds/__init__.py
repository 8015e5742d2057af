"""Lower bounds: the time that a collective needs on a topology whatever the schedule, with proofs."""

from weft.bounds.collective_bound import Bound, lower_bound

__all__ = ["Bound", "lower_bound"]
