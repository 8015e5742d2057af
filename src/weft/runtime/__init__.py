"""Running: where a process stands in its job, how its ranks find each other, and what they do together."""

from weft.runtime.communicator import Communicator
from weft.runtime.engines import Record
from weft.runtime.environment import Place, find_place
from weft.runtime.members import Member
from weft.runtime.rendezvous import join
from weft.runtime.roster import Roster
from weft.runtime.start import init
from weft.runtime.work import Work

__all__ = ["Communicator", "Member", "Place", "Record", "Roster", "Work", "find_place", "init", "join"]
