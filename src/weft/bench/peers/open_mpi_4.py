"""Open MPI 4 as Debian has it, beside which mpi4py's own choice may be another."""

from __future__ import annotations

from typing import ClassVar

from weft.bench.peers.mpi_rank import MpiPeer
from weft.bench.peers.open_mpi import find_program, need_mpi4py, variables
from weft.bench.peers.peer import JobPlace, Start
from weft.bench.peers.remote_mpi import start_remotely


class OpenMpi4(MpiPeer):
    """The system's ``mpirun.openmpi`` and its library."""

    name: ClassVar[str] = "mpi4"

    def start(self, job: JobPlace) -> Start:
        """``mpirun`` starts the ranks."""
        need_mpi4py(self.name)
        program = find_program(self.name, "mpirun.openmpi", install="apt install openmpi-bin")
        command: tuple[str, ...] = (program,)
        remote = {"OMPI_MCA_btl": "self,vader"}
        if job.seats is not None:
            command, remote = start_remotely(job, program)
            remote["OMPI_MCA_btl"] = "self,vader,tcp"
        command = (*command, "--oversubscribe", "--bind-to", "none", "-n", str(job.ranks))
        library = {"MPI4PY_LIBMPI": "libmpi.so.40"}
        return Start(command, 1, {**variables(job.ranks, job.folder), **library, **remote})


ENTRY = OpenMpi4()
