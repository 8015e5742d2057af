"""MPICH: of a directory that ``WEFT_MPICH`` names, such as a virtual environment, or the system's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final

from weft.bench.peers.mpi_rank import MpiPeer
from weft.bench.peers.peer import JobPlace, Start, one_thread

VARIABLE: Final = "WEFT_MPICH"
_INSTALL: Final = f"apt install mpich, or pip install mpich in a virtual environment that {VARIABLE} names"
_LIBRARY: Final = "libmpi.so.12"
_PLACES: Final = (f"lib/{_LIBRARY}", "lib/libmpich.so.12", "lib/*/libmpich.so.12")
"""Under the directory of an installation; Debian's has another name."""


class Mpich(MpiPeer):
    """Hydra starts the ranks."""

    name: ClassVar[str] = "mpich"

    def start(self, job: JobPlace) -> Start:
        """Start all ranks by one launcher."""
        self.refuse_seats(job)
        self.need_package("mpi4py")
        program = Path(self._program())
        library = next((found for place in _PLACES for found in program.parents[1].glob(place)), None)
        if library is None:
            self.refuse(f"{program} is there, but no library beside it; {_INSTALL}")
        variables = {**one_thread(), "MPI4PY_LIBMPI": str(library)}
        if library.name != _LIBRARY:  # mpi4py is linked against this name, which Debian's does not have
            Path(job.folder, _LIBRARY).symlink_to(library)
            variables["LD_LIBRARY_PATH"] = job.folder
        return Start((str(program), "-n", str(job.ranks)), 1, variables)

    def _program(self) -> str:
        named = os.environ.get(VARIABLE)
        if named is None:
            return self.find_program("mpiexec.hydra", _INSTALL)
        program = Path(named, "bin", "mpiexec.hydra")
        if not program.is_file():
            self.refuse(f"{VARIABLE}: {program} is not there; {_INSTALL}")
        return str(program)
