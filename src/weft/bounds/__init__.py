"""Lower bounds: the time that a collective needs on a topology whatever the schedule, with proofs."""
