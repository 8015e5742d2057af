"""Running: where a process stands in its job, and how the ranks of the job find each other."""

from weft.runtime.environment import Place, find_place
from weft.runtime.rendezvous import join
from weft.runtime.roster import Member, Roster

__all__ = ["Member", "Place", "Roster", "find_place", "join"]
