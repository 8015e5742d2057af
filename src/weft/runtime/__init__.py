"""The runtime: bootstrap of a job, transport between its ranks, and the collectives that they run."""

from weft.runtime.bootstrap.client import join
from weft.runtime.bootstrap.control_plane import ControlPlane
from weft.runtime.bootstrap.environment import Place, find_place
from weft.runtime.bootstrap.members import Member
from weft.runtime.communicator import Communicator
from weft.runtime.engines import Record
from weft.runtime.handles import Handle
from weft.runtime.start import init

__all__ = [
    "Communicator",
    "ControlPlane",
    "Handle",
    "Member",
    "Place",
    "Record",
    "find_place",
    "init",
    "join",
]
