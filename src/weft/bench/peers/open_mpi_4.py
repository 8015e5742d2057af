"""Open MPI 4 as Debian has it, beside which mpi4py's own choice may be another."""

from __future__ import annotations

from typing import ClassVar

from weft.bench.peers.open_mpi import OpenMpi


class OpenMpi4(OpenMpi):
    """The system's ``mpirun.openmpi`` and its library."""

    name: ClassVar[str] = "mpi4"
    crowding: ClassVar[tuple[str, ...]] = ("--oversubscribe",)
    shared_memory: ClassVar[str] = "vader"

    def find(self) -> tuple[str, str]:
        """Find its launcher, and the library that mpi4py is to load."""
        return self.find_program("mpirun.openmpi", "apt install openmpi-bin"), "libmpi.so.40"
