"""What the MPI peers have in common: a rank through mpi4py, whichever MPI that loads."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, ClassVar, Final

from weft.bench.peers.peer import Call, JobInvitation, Peer, PeerRank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.bench.task import BenchTask

DTYPES: Final = {"float32": "FLOAT", "float64": "DOUBLE", "int32": "INT32_T", "int64": "INT64_T"}
"""MPI's names; the halves are not in the standard."""


class MpiRank(PeerRank):
    """One rank; MPI starts with the import."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._world: Any = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()

    def bind(self, task: BenchTask, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Call:
        """The calls with buffers, which copy nothing in Python."""
        mpi, world = self._mpi, self._world
        dtype = getattr(mpi, DTYPES[task.dtype])
        given, result = [source, dtype], [target, dtype]
        op = getattr(mpi, task.op.upper())
        if task.collective == "all_gather":
            return lambda: world.Allgather(given, result)
        if task.collective == "reduce_scatter":
            return lambda: world.Reduce_scatter_block(given, result, op)
        if task.collective == "broadcast":
            return lambda: world.Bcast(result, 0)
        if source is target:
            return lambda: world.Allreduce(mpi.IN_PLACE, result, op)
        return lambda: world.Allreduce(given, result, op)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._world.Barrier()

    def versions(self) -> dict[str, str]:
        """Of mpi4py and of the library it loaded."""
        import mpi4py

        library = self._mpi.Get_library_version().strip("\0\n").split("\n")[0]
        return {"mpi4py": mpi4py.__version__, "library": " ".join(library.split(",")[0].split())}

    def close(self) -> None:
        """Leave the job, together."""
        self._mpi.Finalize()


class MpiPeer(Peer):
    """An MPI library whose launcher starts the ranks."""

    dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)

    def find_program(self, program: str, install: str) -> str:
        """Path of a launcher; refuses where it is not installed."""
        return shutil.which(program) or self.refuse(f"no {program} on the PATH; {install}")

    def join(self, invitation: JobInvitation) -> MpiRank:  # noqa: ARG002 - the launcher has said all
        """Join the job and return this rank of it."""
        return MpiRank()
