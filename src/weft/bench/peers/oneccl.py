"""oneCCL over Intel MPI's shared memory, which is its default and its fastest transport within a machine.

It has no interface for Python, so a small one of ours (``oneccl.cpp``) is compiled against it first.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from weft.bench.peers.peer import Call, JobInvitation, JobPlace, Peer, PeerRank, Start, one_thread
from weft.errors import RuntimeFailure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.bench.task import BenchTask

VARIABLE: Final = "WEFT_ONECCL"
_INSTALL: Final = (
    f"name a virtual environment by {VARIABLE}, with: "
    "pip install oneccl-devel==2021.17.2 impi-rt==2021.17.2 intel-sycl-rt==2025.3.2"
)
_SHIM: Final = "WEFT_BENCH_ONECCL_SHIM"
_COMPILE_S: Final = 300.0
_DTYPES: Final = {"int32": 4, "int64": 6, "float16": 8, "float32": 9, "float64": 10, "bfloat16": 11}
_OPS: Final = {"sum": 0, "prod": 1, "min": 2, "max": 3}
_CALLS: Final = (
    "announce",
    "join",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "barrier",
    "version",
)


class OneCclRank(PeerRank):
    """One rank of a job of oneCCL."""

    def __init__(self, shim: ctypes.CDLL, invitation: JobInvitation) -> None:
        assert invitation.rank is not None
        self.rank = invitation.rank
        self._shim = shim
        check(shim.join(bytes.fromhex(invitation.announcement), self.rank, invitation.ranks))

    def bind(self, task: BenchTask, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Call:
        """Addresses are looked up once: ctypes is slow enough without."""
        given, result = (ctypes.c_void_p(array.ctypes.data) for array in (source, target))
        count = ctypes.c_size_t(task.count)
        dtype, op = _DTYPES[task.dtype], _OPS[task.op]
        if task.collective == "broadcast":
            broadcast = self._shim.broadcast
            return lambda: check(broadcast(result, count, dtype))
        if task.collective == "all_gather":
            gather = self._shim.all_gather
            return lambda: check(gather(given, result, count, dtype))
        reducing = getattr(self._shim, task.collective)
        return lambda: check(reducing(given, result, count, dtype, op))

    def barrier(self) -> None:
        """Wait for all ranks."""
        check(self._shim.barrier())

    def versions(self) -> dict[str, str]:
        """Return the version of oneCCL."""
        return {"oneccl": self._shim.version().decode().split()[0]}

    def close(self) -> None:
        """Nothing: the process ends now, and the launcher with it."""


class OneCcl(Peer):
    """Intel MPI starts the ranks."""

    name: ClassVar[str] = "oneccl"
    dtypes: ClassVar[tuple[str, ...]] = tuple(_DTYPES)

    def start(self, job: JobPlace) -> Start:
        """Compile the interface, then one launcher."""
        self.refuse_seats(job)
        named = os.environ.get(VARIABLE)
        if named is None:
            self.refuse(_INSTALL)
        root = Path(named).absolute()
        for part in ("include/oneapi/ccl.hpp", "lib/libccl.so.1", "bin/mpiexec.hydra"):
            if not (root / part).is_file():
                self.refuse(f"{root / part} is not there; {_INSTALL}")
        # Not in the folder of the jobs: memory may be mounted so that nothing there can be executed.
        folder = job.resources.enter_context(tempfile.TemporaryDirectory(prefix="weft-bench-"))
        shim = self._compile(root, Path(folder))
        variables = {
            _SHIM: str(shim),
            "LD_LIBRARY_PATH": str(root / "lib"),
            "I_MPI_ROOT": str(root),
            "I_MPI_FABRICS": "shm",
            "CCL_ATL_TRANSPORT": "mpi",
        }
        return Start(
            (str(root / "bin/mpiexec.hydra"), "-n", str(job.ranks)), 1, {**one_thread(), **variables}
        )

    def _compile(self, root: Path, folder: Path) -> Path:
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            self.refuse("no C++ compiler; apt install g++")
        target = folder / "oneccl.so"
        source = Path(__file__).with_suffix(".cpp")
        library = root / "lib" / "libccl.so.1"
        words = [compiler, "-O2", "-shared", "-fPIC", "-std=c++17", f"-I{root / 'include'}", str(source)]
        # What it needs in turn is found when it runs, in the same directory.
        words += ["-o", str(target), str(library), "-Wl,--allow-shlib-undefined"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if done.returncode:
            self.refuse(f"{source.name} does not compile against {root}: {done.stderr[-300:]}")
        return target

    def rank(self) -> int | None:
        """As the launcher tells."""
        return int(os.environ["PMI_RANK"])

    def announce(self) -> str:
        """Where the ranks meet."""
        shim = _load()
        address = ctypes.create_string_buffer(shim.address_bytes())
        check(shim.announce(address))
        return address.raw.hex()

    def join(self, invitation: JobInvitation) -> OneCclRank:
        """Join the job and return this rank of it."""
        return OneCclRank(_load(), invitation)


def check(problem: bytes | None) -> None:
    """Raise what a call returned, if it returned something."""
    if problem is not None:
        raise RuntimeFailure(problem.decode("utf-8", "replace"))


def _load() -> Any:
    """The interface, loaded once however often this is called."""
    shim = ctypes.CDLL(os.environ[_SHIM])
    for name in _CALLS:
        getattr(shim, name).restype = ctypes.c_char_p
    shim.address_bytes.restype = ctypes.c_size_t
    return shim
